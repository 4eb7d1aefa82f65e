//! A reactor: the reactions of a store, and this process's share of the work.
//!
//! | module | purpose |
//! | --- | --- |
//! | `options` | configures a reactor, and starts it |
//! | `handle` | the handle of a running reactor |
//! | `operate` | runs tasks again, pauses and resumes reactions |
//! | `idle` | waits until there is nothing to do, for tests |
//! | `shared` | the state that planners and runners share |
//! | `registry` | the registered reactions as this process knows them |
//! | `clock`, `stop`, `lags`, `counts` | parts of that state |

mod clock;
mod counts;
mod handle;
mod idle;
mod lags;
mod operate;
mod options;
mod registry;
mod shared;
mod stop;

pub use counts::ReactorCounts;
pub use handle::ReactorHandle;
pub use options::{Reactor, Registration};
pub(crate) use shared::Shared;

/// The maximum number of tasks that are read or changed at once.
const PIECE: usize = 500;

//! The log: each stream in order, each event once.
//!
//! Reading and appending are two traits, so that a feed which is itself replayable and ordered can
//! be read without a copy.
//!
//! | module | purpose |
//! | --- | --- |
//! | `read` | the reading half: partitions, pages and streams |
//! | `append` | the writing half: appends, and their results |
//! | `judge` | the decision about an append, the same for all logs |
//! | `entry` | an event ready to be appended, and the rules that it must follow |

mod append;
mod entry;
mod judge;
mod read;

pub use append::{Append, AppendError, Appended, Expected};
pub use entry::{Entry, MAX_EVENT_BYTES, MAX_EVENTS, check_entries};
pub use judge::judge_append;
pub use read::{Limit, Log, LogPage};

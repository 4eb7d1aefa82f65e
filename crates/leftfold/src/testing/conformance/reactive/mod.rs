//! The cases about changes of documents, tasks, leases and wake-ups.
//!
//! | module | purpose |
//! | --- | --- |
//! | `feed` | change feeds, and reads of the changed documents |
//! | `tasks` | tasks: saved under guard, found, listed and counted |
//! | `coordination` | registrations, heartbeats, leases and wake-ups |
//! | `reactor` | a reactor from documents to handlers |
//! | `fixtures` | values and checks that the cases share |

mod coordination;
mod feed;
mod fixtures;
mod reactor;
mod tasks;

pub use coordination::*;
pub use feed::*;
pub use reactor::*;
pub use tasks::*;

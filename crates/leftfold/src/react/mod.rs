//! Reactions: side effects when documents change, never lost and never on a state that is no longer true.

mod retry;
mod store;
mod task;

pub use retry::Retry;
pub(crate) use retry::later;
pub use store::{
    Change, Changes, Comparing, Depth, Due, Feed, Found, On, Plain, Query, Reactive, Registered, Told, Wanted,
};
pub use task::{Ended, Evolution, Moment, Outcome, Rules, Run, Seen, State, Task, TaskKey};

//! Reactions: side effects that run when documents change. They are never lost, and never run on a
//! state that is no longer true.
//!
//! A [`Reaction`] selects documents, by closures or as data ([`Filter`] in MongoDB's query
//! language, [`Paths`] to watch), and defines a handler. A [`Reactor`] plans a [`Task`] for each
//! such document and runs it. It works in one process or in many; some processes may only plan and
//! others only run.

mod claims;
mod context;
mod events;
mod filter;
mod finish;
mod heartbeat;
mod loader;
mod planner;
mod quarantine;
mod reacting;
mod reaction;
mod reactor;
mod retry;
mod runner;
mod running;
mod shared;
mod store;
mod task;
mod value;
mod watch;

pub use context::{Context, Lock, NotCurrent};
pub use filter::Filter;
pub(crate) use planner::place_name;
pub use reacting::{Counts, Reacting};
pub use reaction::{Cleanup, Draft, HandlerError, Reaction};
pub use reactor::{Reactor, Registration};
pub(crate) use retry::later;
pub use retry::{Every, Retry};
pub use store::{
    Body, Change, Changes, Comparing, Depth, Due, Feed, FoundDocument, FoundDocuments, On, Plain, Query,
    Reactive, Registered, Told, Wanted,
};
pub use task::{
    Cursor, Ended, Evolution, Loser, Moment, Outcome, Rules, Run, Seen, State, Suspicion, Task, TaskKey,
};
pub use value::{Decimal, Fields, Value};
pub use watch::Paths;

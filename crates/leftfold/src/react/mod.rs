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

pub use context::{Context, Lock, NotCurrent};
pub use leftfold_filter::{Decimal, Error as FilterError, Fields, Filter, Paths, Value};
pub(crate) use planner::place_name;
pub use reacting::{ReactorCounts, ReactorHandle};
pub use reaction::{Cleanup, Draft, HandlerError, Reaction};
pub use reactor::{Reactor, Registration};
pub(crate) use retry::later;
pub use retry::{Every, Retry};
pub use store::{
    Body, Comparing, Depth, DocumentFeed, DocumentSource, DueTasks, ExternalCollection, FeedChanges,
    FeedItem, FoundDocument, FoundDocuments, Query, ReactionStore, Registered, TaskChange, WantedTasks,
};
pub use task::{
    Ended, Evolution, Loser, Observation, Rules, Run, RunOutcome, State, StreamProgress, Suspicion, Task,
    TaskKey, TaskMoment,
};

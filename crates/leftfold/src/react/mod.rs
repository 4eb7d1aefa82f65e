//! Reactions: side effects that run when documents change. They are never lost, and never run on a
//! state that is no longer true.
//!
//! A [`Reaction`] selects documents, by closures or as data ([`Filter`] in MongoDB's query
//! language, [`Paths`] to watch), and defines a handler. A [`Reactor`] plans a [`Task`] for each
//! such document and runs it. It works in one process or in many; some processes may only plan and
//! others only run.

mod define;
mod handler;
mod plan;
mod reactor;
mod run;
mod store;
mod task;

pub use define::{Cleanup, Draft, Every, HandlerError, Reaction, Retry};
pub use handler::{Context, Lock, NotCurrent};
pub use leftfold_filter::{Decimal, Error as FilterError, Fields, Filter, Paths, Value};
pub use reactor::{Reactor, ReactorCounts, ReactorHandle, Registration};
pub use store::{
    Body, Comparing, Depth, DocumentFeed, DocumentSource, DueTasks, ExternalCollection, FeedChanges,
    FeedItem, FoundDocument, FoundDocuments, Query, ReactionStore, Registered, TaskChange, WantedTasks,
};
pub use task::{
    Ended, Evolution, Loser, Observation, Rules, Run, RunOutcome, State, StreamProgress, Suspicion, Task,
    TaskKey, TaskMoment,
};

pub(crate) use define::later;
pub(crate) use plan::planner::place_name;

//! Reactions: side effects that run when documents change. They are never lost, and never run on a
//! state that is no longer true.
//!
//! A [`Reaction`] selects documents, by closures or as data ([`Filter`] in MongoDB's query
//! language, [`Paths`] to watch), and defines a handler. A [`Reactor`] plans a [`Task`] for each
//! such document and runs it. It works in one process or in many; some processes may only
//! plan, and some only run.
//!
//! | module | purpose |
//! | --- | --- |
//! | `define` | reactions as users define them: triggers, handlers and policies |
//! | `task` | the work of a reaction for a document: a pure state machine |
//! | `plan` | changed documents and new events become tasks |
//! | `run` | tasks are claimed, handled and finished |
//! | `handler` | the context of a handler |
//! | `reactor` | the service that plans and runs, and its handle |
//! | `store` | the interface to stores |

mod define;
mod handler;
mod plan;
mod reactor;
mod run;
mod store;
mod task;
mod time;

pub use define::{Cleanup, Draft, Every, Reaction, Retry};
pub use handler::{Context, HandlerError, Lock, NotCurrent};
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

pub(crate) use plan::place_name;
pub(crate) use time::later;

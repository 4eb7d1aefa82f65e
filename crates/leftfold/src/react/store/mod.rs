//! The interface between reactions and stores.
//!
//! | module | purpose |
//! | --- | --- |
//! | `reaction_store` | the trait that stores implement |
//! | `documents` | documents as reactions read them, and their places |
//! | `feed` | feeds of changed documents |
//! | `tasks` | changes of tasks, and requests for tasks |
//! | `registry` | registrations of reactions |

mod documents;
mod feed;
mod reaction_store;
mod registry;
mod tasks;

pub use documents::{Body, DocumentSource, ExternalCollection, FoundDocument, FoundDocuments};
pub use feed::{DocumentFeed, FeedChanges, FeedItem};
pub use reaction_store::ReactionStore;
pub use registry::{Comparing, Registered};
pub use tasks::{Depth, DueTasks, Query, TaskChange, WantedTasks};

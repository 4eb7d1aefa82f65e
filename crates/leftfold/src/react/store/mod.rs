//! The interface between reactions and stores.

mod reaction_store;

pub use reaction_store::{
    Body, Comparing, Depth, DocumentFeed, DocumentSource, DueTasks, ExternalCollection, FeedChanges,
    FeedItem, FoundDocument, FoundDocuments, Query, ReactionStore, Registered, TaskChange, WantedTasks,
};

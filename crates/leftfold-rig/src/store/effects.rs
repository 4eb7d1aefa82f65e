//! The store operations that the reactions under test need: items that any program can write, and
//! effects in transactions.

use std::collections::BTreeMap;
use std::future::Future;

use leftfold::react::{Context, HandlerError, ReactionStore};
use leftfold::{Event, Result};
use leftfold_sim::notes::FoldedEvents;

use super::Place;
use crate::react::{Effect, Item};

/// The table or collection of effects.
pub(super) const EFFECTS: &str = "effects";

/// Effects and items in a store.
pub(crate) trait Effects: ReactionStore {
    /// The size of the watched value of a large item.
    const LARGE_BYTES: usize;

    /// Creates the tables or collections of both.
    fn create_tables(&self) -> impl Future<Output = Result<()>> + Send;

    /// Writes or deletes an item, as any program could.
    fn put_item(&self, id: &str, item: Option<&Item>) -> impl Future<Output = Result<()>> + Send;

    /// Inserts items in one write, so that they are planned and claimed together.
    fn insert_items(&self, items: &[(String, Item)]) -> impl Future<Output = Result<()>> + Send;

    /// Writes an unreadable item. Does nothing if the store can't have one.
    fn put_unreadable(&self, id: &str) -> impl Future<Output = Result<()>> + Send;

    /// Returns all items.
    fn items(&self) -> impl Future<Output = Result<BTreeMap<String, Item>>> + Send;

    /// Returns all effects.
    fn effects(&self) -> impl Future<Output = Result<Vec<Effect>>> + Send;

    /// Records the state of a document and completes the task in one transaction.
    fn record(ctx: Context<FoldedEvents>) -> impl Future<Output = Result<(), HandlerError>> + Send;

    /// Records an event and completes the task in one transaction.
    fn pass(ctx: Context<Event>) -> impl Future<Output = Result<(), HandlerError>> + Send;

    /// Returns the planners' valid leases, with their owners.
    fn leaders(&self) -> impl Future<Output = Result<Vec<(String, String)>>> + Send;

    /// Changes the store so that a process passes a place, if the place needs that.
    fn provoke(&self, place: &Place) -> impl Future<Output = Result<()>> + Send;
}

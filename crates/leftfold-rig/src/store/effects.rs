//! What the reactions under test need of a store: items that anybody can write, and effects in transactions.

use std::collections::BTreeMap;
use std::future::Future;

use leftfold::react::{Context, HandlerError, Reactive};
use leftfold::{Event, Result};
use leftfold_sim::notes::Seen;

use super::Place;
use crate::react::{Effect, Item};

/// The table or collection of effects.
pub(super) const EFFECTS: &str = "effects";

/// Effects in a store, and items.
pub(crate) trait Effects: Reactive {
    /// The size of the watched value of a large item.
    const LARGE_BYTES: usize;

    /// Makes the places for both.
    fn lay_out(&self) -> impl Future<Output = Result<()>> + Send;

    /// Writes an item as any program could, or deletes it.
    fn put_item(&self, id: &str, item: Option<&Item>) -> impl Future<Output = Result<()>> + Send;

    /// Inserts items in one go, so that they are planned and claimed together.
    fn insert_items(&self, items: &[(String, Item)]) -> impl Future<Output = Result<()>> + Send;

    /// Writes an item that can't be read. Does nothing where a store has no such items.
    fn put_unreadable(&self, id: &str) -> impl Future<Output = Result<()>> + Send;

    /// All items.
    fn items(&self) -> impl Future<Output = Result<BTreeMap<String, Item>>> + Send;

    /// All effects.
    fn effects(&self) -> impl Future<Output = Result<Vec<Effect>>> + Send;

    /// Records the state of a document, and completes the task, in one transaction.
    fn record(ctx: Context<Seen>) -> impl Future<Output = Result<(), HandlerError>> + Send;

    /// Records an event, and completes the task, in one transaction.
    fn pass(ctx: Context<Event>) -> impl Future<Output = Result<(), HandlerError>> + Send;

    /// Who has a planner's lease that has not ended: leases with their owners.
    fn leaders(&self) -> impl Future<Output = Result<Vec<(String, String)>>> + Send;

    /// Does to the store what has somebody pass a place, if that takes something.
    fn provoke(&self, place: &Place) -> impl Future<Output = Result<()>> + Send;
}

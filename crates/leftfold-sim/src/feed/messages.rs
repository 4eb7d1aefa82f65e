//! The messages of a feed.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leftfold::sequence::HoldingLimits;
use leftfold::{Delivery, Revision, StreamId};
use tokio::time::Instant;

use super::tally::Tally;

/// The time before a delivered message is delivered again.
const REDELIVERY: Duration = Duration::from_secs(5);

/// The published events, the messages in flight, and the results of the ingesters.
#[derive(Debug, Default)]
pub struct SimulatedFeed {
    state: Mutex<State>,
    limits: Mutex<Option<HoldingLimits>>,
    pub(crate) tally: Tally,
}

#[derive(Debug, Default)]
struct State {
    /// Each stream as its origin published it.
    published: BTreeMap<StreamId, Vec<Delivery>>,
    /// The highest revision of each stream that was ever sent.
    sent: BTreeMap<StreamId, Revision>,
    /// Messages by number: the time they are due, and the delivery.
    messages: BTreeMap<u64, (Instant, Delivery)>,
    next: u64,
}

impl SimulatedFeed {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the limits of all ingesters.
    pub(crate) fn set_limits(&self, limits: HoldingLimits) {
        *self.limits.lock().unwrap_or_else(PoisonError::into_inner) = Some(limits);
    }

    pub(super) fn limits(&self) -> HoldingLimits {
        self.limits.lock().unwrap_or_else(PoisonError::into_inner).unwrap_or_default()
    }

    /// Returns each stream as its origin published it.
    pub(super) fn published(&self) -> BTreeMap<StreamId, Vec<Delivery>> {
        self.state().published.clone()
    }

    /// Returns one stream as its origin published it.
    pub(super) fn published_in(&self, stream: &StreamId) -> Vec<Delivery> {
        self.state().published.get(stream).cloned().unwrap_or_default()
    }

    /// Returns the last published revision of a stream.
    pub(super) fn last_published(&self, stream: &StreamId) -> Revision {
        let state = self.state();
        let last = state.published.get(stream).and_then(|events| events.last());
        last.and_then(|last| last.revision).unwrap_or_default()
    }

    /// Adds an event to the published events, without sending it.
    pub(super) fn publish_event(&self, event: Delivery) {
        self.state().published.entry(event.stream.clone()).or_default().push(event);
    }

    /// Returns the highest revision of a stream that was ever sent.
    pub(super) fn highest_sent(&self, stream: &StreamId) -> Revision {
        self.state().sent.get(stream).copied().unwrap_or_default()
    }

    /// Sends a message.
    pub(super) fn send(&self, delivery: Delivery, after: Duration) {
        let mut state = self.state();
        let number = state.next;
        state.next += 1;
        let highest = state.sent.entry(delivery.stream.clone()).or_default();
        *highest = (*highest).max(delivery.revision.unwrap_or_default());
        state.messages.insert(number, (Instant::now() + after, delivery));
    }

    /// Returns some of the messages that are due.
    pub(super) fn receive(&self, most: usize) -> Vec<(u64, Delivery)> {
        let now = Instant::now();
        let mut state = self.state();
        let due = state.messages.iter_mut().filter(|(_, (due, _))| *due <= now).take(most);
        due.map(|(number, (due, delivery))| {
            *due = now + REDELIVERY;
            (*number, delivery.clone())
        })
        .collect()
    }

    pub(super) fn acknowledge(&self, number: u64) {
        self.state().messages.remove(&number);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.state().messages.is_empty()
    }
}

//! The trait of stores that keep the sequencer's state.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;

use super::{
    Conflict, DueGaps, Found, HeldPage, Rejected, Resolution, Settled, Settlement, Skipped, StreamState,
    Survey, WantedEvents,
};
use crate::error::Result;
use crate::event::StreamId;
use crate::log::{Append, Limit};

/// A store that keeps the sequencer's state.
pub trait Sequences: Append {
    /// Returns the states of streams. They may be outdated: settling from an outdated state is
    /// rejected.
    fn survey(&self, streams: Vec<StreamId>) -> impl Future<Output = Result<Survey>> + Send;

    /// Returns the maximum size of an event's data, and of its metadata.
    fn max_event_bytes(&self) -> usize;

    /// Returns the requested events that are logged or held now. Events that are not found do not
    /// exist.
    fn find(&self, wanted: WantedEvents) -> impl Future<Output = Result<Found>> + Send;

    /// Returns the lowest held events of each of these streams as of now: up to the limit in all,
    /// but at least two of each.
    fn held(
        &self,
        streams: Vec<StreamId>,
        limit: Limit,
    ) -> impl Future<Output = Result<BTreeMap<StreamId, HeldPage>>> + Send;

    /// Writes changes of streams atomically, if each stream is in the state that was seen. `Err`
    /// means that nothing was written.
    fn settle(&self, settlement: Arc<Settlement>) -> impl Future<Output = Result<Settled>> + Send;

    /// Returns streams with held events, ordered by id, after an id.
    fn waiting(
        &self,
        after: Option<StreamId>,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<(StreamId, StreamState)>>> + Send;

    /// Returns streams with held events that are [due](DueGaps::is), the longest waiting first.
    fn overdue(
        &self,
        due: DueGaps,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<(StreamId, StreamState)>>> + Send;

    /// Returns undecided conflicts, ordered by stream, revision and id, after one of these.
    fn conflicts(
        &self,
        after: Option<Conflict>,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<Conflict>>> + Send;

    /// Returns the operators' decisions about missing revisions of a stream.
    fn skipped(&self, stream: &StreamId) -> impl Future<Output = Result<Vec<Skipped>>> + Send;

    /// Keeps messages that are not valid events. A message that is already kept changes nothing.
    /// Fails with [`Kind::Full`](crate::Kind::Full), and keeps none, if there would be more than
    /// [`MAX_REJECTED`](crate::sequence::MAX_REJECTED).
    fn reject(&self, rejected: Vec<Rejected>) -> impl Future<Output = Result<()>> + Send;

    /// Returns rejected messages, ordered by id, after an id.
    fn rejected(
        &self,
        after: Option<String>,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<Rejected>>> + Send;

    /// Returns the number of rejected messages.
    fn count_rejected(&self) -> impl Future<Output = Result<u64>> + Send;

    /// Deletes a rejected message. Returns whether it existed.
    fn forget(&self, rejected: &str) -> impl Future<Output = Result<bool>> + Send;

    /// Stores a decision with its conflict, or removes the conflict if there is no decision.
    /// Returns whether there was an undecided conflict.
    fn resolve(
        &self,
        conflict: &Conflict,
        decided: Option<Resolution>,
    ) -> impl Future<Output = Result<bool>> + Send;
}

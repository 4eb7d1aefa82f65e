//! Waiting until a delivered event is in the log.

use std::time::Duration;

use jiff::Timestamp;
use tokio::time::timeout;

use super::sequencer::Sequencer;
use super::store::{Sequences, WantedEvents};
use crate::error::Error;
use crate::event::{Bookmark, Event, Revision, StreamId};
use crate::log::Limit;

/// The reason why an event is not in the log.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NotLogged {
    /// The event arrived, and waits for an earlier one.
    #[error(
        "revision {revision} of {stream} is held: revision {waiting_for} is missing since {since}{}; wait, let a \
         resupplier heal the gap, or skip revisions that do not exist",
        trouble.as_ref().map(|trouble| format!(" ({trouble})")).unwrap_or_default()
    )]
    Held {
        /// Its stream.
        stream: StreamId,
        /// Its revision.
        revision: Revision,
        /// The first missing revision, as far as known.
        waiting_for: Revision,
        /// The time since which it waits.
        since: Timestamp,
        /// The error of the last request to a resupplier.
        trouble: Option<String>,
    },
    /// The event has not arrived, or its revision does not exist.
    #[error("revision {revision} of {stream} is neither in the log nor held, because it has not arrived")]
    Unknown {
        /// Its stream.
        stream: StreamId,
        /// Its revision.
        revision: Revision,
    },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] Error),
}

impl<S: Sequences + Clone> Sequencer<S> {
    /// Waits until an event is in the log, and returns its bookmark, for reads to wait for. A
    /// delivery answered as held has no bookmark yet.
    ///
    /// When `patience` ends, fails with the reason why the event is not in the log.
    ///
    /// ```
    /// # use leftfold::{Memory, Revision, Sequencer, StreamId};
    /// # use leftfold::sequence::NotLogged;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let sequencer = Sequencer::new(Memory::default());
    /// let stream = StreamId::new("cart-42")?;
    /// let answer = sequencer.logged(&stream, Revision(3), Duration::ZERO).await;
    /// assert!(matches!(answer, Err(NotLogged::Unknown { .. })));
    /// # Ok(()) }
    /// ```
    pub async fn logged(
        &self,
        stream: &StreamId,
        revision: Revision,
        patience: Duration,
    ) -> Result<Bookmark, NotLogged> {
        let store = self.store();
        let waiting = async {
            loop {
                let heads = store.heads().await?;
                if let Some(bookmark) = self.bookmark(stream, revision).await? {
                    return Ok(bookmark);
                }
                store.grown(&heads).await?;
            }
        };
        if let Ok(answer) = timeout(patience, waiting).await {
            return answer;
        }
        let mut survey = store.survey(vec![stream.clone()]).await?;
        let found =
            store.find(WantedEvents { places: vec![(stream.clone(), revision)], ids: Vec::new() }).await?;
        if let Some(event) = found.logged.first() {
            return Ok(event.bookmark());
        }
        let state = survey.streams.remove(stream).unwrap_or_default();
        let waiting_for = Revision(state.after().0.saturating_add(1));
        let (stream, waiting) = (stream.clone(), state.waiting);
        match (found.held.first(), waiting) {
            (Some(_), Some(waiting)) => Err(NotLogged::Held {
                stream,
                revision,
                waiting_for,
                since: waiting.since,
                trouble: waiting.trouble,
            }),
            (Some(held), None) => {
                let since = held.since;
                Err(NotLogged::Held { stream, revision, waiting_for, since, trouble: None })
            }
            (None, _) => Err(NotLogged::Unknown { stream, revision }),
        }
    }

    async fn bookmark(&self, stream: &StreamId, revision: Revision) -> Result<Option<Bookmark>, Error> {
        let Some(before) = revision.0.checked_sub(1) else { return Ok(None) };
        let limit = Limit { events: 1, bytes: 0 };
        let found = self.store().read_stream(stream, Revision(before), limit).await?;
        Ok(found.first().filter(|event| event.revision == revision).map(Event::bookmark))
    }
}

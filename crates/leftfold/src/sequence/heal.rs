//! Healing: missing events are requested from a resupplier that still has them.
//!
//! Before a request, the healer moves the time of the next request, under guard. So several
//! processes heal the same streams without duplicate requests. Resupplied events are ingested like
//! every other delivery.

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio::sync::watch;
use tokio::time::timeout;

use super::delivery::{Delivery, IngestAnswer, Refusal};
use super::resupply::{MAX_REVISIONS, Missing, Resupply};
use super::sequencer::Sequencer;
use super::store::{DueGaps, Sequences, Settled, Settlement, StreamChange, StreamState, Totals, Waiting};
use crate::backoff::Backoff;
use crate::error::Result;
use crate::event::{Partition, Revision, StreamId};

/// The settings of a healer.
#[derive(Clone, Copy, Debug)]
pub struct Healing {
    /// The age from which a gap is healed: most close by themselves.
    pub age: Duration,
    /// The interval at which the healer looks for such gaps.
    pub every: Duration,
    /// The timeout of a request.
    pub patience: Duration,
    /// The delay before the same gap is requested again: the first and the longest.
    pub again: (Duration, Duration),
    /// The maximum number of streams per round.
    pub streams: usize,
}

impl Default for Healing {
    /// Heals gaps older than ten seconds, looked for every five seconds. Repeats requests after ten
    /// seconds to ten minutes.
    fn default() -> Self {
        Self {
            age: Duration::from_secs(10),
            every: Duration::from_secs(5),
            patience: Duration::from_secs(30),
            again: (Duration::from_secs(10), Duration::from_mins(10)),
            streams: 100,
        }
    }
}

/// Closes old gaps.
pub struct Healer<S, R> {
    sequencer: Sequencer<S>,
    resupplier: R,
    healing: Healing,
}

impl<S: Sequences + Clone, R: Resupply> Healer<S, R> {
    /// Creates a healer of the gaps of this sequencer.
    pub fn new(sequencer: Sequencer<S>, resupplier: R, healing: Healing) -> Self {
        Self { sequencer, resupplier, healing }
    }

    /// Heals until the receiver yields `true` or its sender is dropped.
    pub async fn run(self, mut stop: watch::Receiver<bool>) {
        while !*stop.borrow_and_update() {
            if let Err(error) = self.heal().await {
                tracing::warn!(%error, "healing gaps failed; trying again");
            }
            if let Ok(Err(_)) = timeout(self.healing.every, stop.wait_for(|stop| *stop)).await {
                return;
            }
        }
    }

    /// Heals the gaps that are overdue now. Returns the number of missing events that were
    /// appended.
    pub async fn heal(&self) -> Result<u64> {
        let now = self.sequencer.now();
        let since = earlier(now, self.healing.age);
        let end = later(now, self.healing.again.1.saturating_mul(2));
        let overdue =
            self.sequencer.store().overdue(DueGaps { since, now, end }, self.healing.streams).await?;
        let mut healed = 0;
        for (stream, state) in overdue {
            healed += self.mend(stream, state, now).await?;
        }
        Ok(healed)
    }

    /// Requests the missing events of a stream until it is complete, or no more arrive.
    async fn mend(&self, stream: StreamId, mut state: StreamState, now: Timestamp) -> Result<u64> {
        let mut healed = 0;
        loop {
            let after = state.after();
            let Some(waiting) = state.waiting.clone().filter(|waiting| waiting.events > 0) else {
                return Ok(healed);
            };
            if waiting.until <= after {
                // Another process appended it, or died before all events were released.
                self.sequencer.release(&stream).await?;
                return Ok(healed);
            }
            let requested = Waiting {
                ask_at: later(now, self.delay(waiting.asked)),
                asked: waiting.asked.saturating_add(1),
                ..waiting.clone()
            };
            let Some(noted) = self.note(&stream, &state, requested).await? else { return Ok(healed) };
            state = noted;
            let through = Revision(waiting.until.0.min(after.0.saturating_add(MAX_REVISIONS as u64)));
            let trouble = match self.request(Missing { stream: stream.clone(), after, through }).await {
                Err(trouble) => trouble,
                Ok(deliveries) => {
                    let answers = self.sequencer.ingest_resupplied(deliveries).await?;
                    let appended = |answer: &&IngestAnswer| matches!(answer, IngestAnswer::Appended(_));
                    healed += answers.iter().filter(appended).count() as u64;
                    let survey = self.sequencer.store().survey(vec![stream.clone()]).await?;
                    state = survey.streams.get(&stream).cloned().unwrap_or_default();
                    if state.after() > after {
                        continue;
                    }
                    let invalid = answers.iter().find_map(|answer| match answer {
                        IngestAnswer::Refused(Refusal::Invalid(invalid)) => Some(invalid),
                        _ => None,
                    });
                    match invalid {
                        Some(invalid) => format!("a resupplied event is invalid: {invalid}"),
                        None => format!("the resupplier has no revisions {} to {through}", after.0 + 1),
                    }
                }
            };
            if let Some(waiting) = state.waiting.clone() {
                let noted = Waiting { trouble: Some(trouble), ..waiting };
                self.note(&stream, &state, noted).await?;
            }
            return Ok(healed);
        }
    }

    /// Requests missing events. The error is the reason why there is no answer.
    async fn request(&self, missing: Missing) -> Result<Vec<Delivery>, String> {
        let stream = missing.stream.clone();
        match timeout(self.healing.patience, self.resupplier.resupply(missing)).await {
            Ok(Ok(deliveries)) => {
                Ok(deliveries.into_iter().filter(|delivery| delivery.stream == stream).collect())
            }
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => {
                let seconds = self.healing.patience.as_secs();
                Err(format!("the resupplier did not answer within {seconds} seconds"))
            }
        }
    }

    /// Updates the gap of a stream, if the stream is in the state that was seen. Returns the new
    /// state.
    async fn note(
        &self,
        stream: &StreamId,
        seen: &StreamState,
        waiting: Waiting,
    ) -> Result<Option<StreamState>> {
        let waiting = Waiting { version: self.sequencer.random(), ..waiting };
        let step = StreamChange {
            stream: stream.clone(),
            seen: seen.seen(),
            append: Vec::new(),
            hold: Vec::new(),
            unhold: Vec::new(),
            waiting: Some(waiting.clone()),
        };
        let store = self.sequencer.store();
        let settlement = Settlement {
            partition: Partition::of(stream, store.partitions()),
            steps: vec![step],
            bounds: Totals { events: u64::MAX, bytes: u64::MAX, conflicts: u64::MAX },
            ..Settlement::default()
        };
        match store.settle(Arc::new(settlement)).await? {
            Settled::Applied { .. } => Ok(Some(StreamState { last: seen.last, waiting: Some(waiting) })),
            // Another process takes care of it. If the outcome is unknown, the next round reads the
            // state again.
            _ => Ok(None),
        }
    }

    /// Returns the delay after this many requests.
    fn delay(&self, asked: u32) -> Duration {
        let (first, most) = self.healing.again;
        let backoff = Backoff::default().first(first).most(most).without_limit();
        let delays = backoff.delays(self.sequencer.random());
        delays.into_iter().nth(usize::try_from(asked.min(32)).unwrap_or(32)).unwrap_or(most)
    }
}

fn earlier(now: Timestamp, by: Duration) -> Timestamp {
    SignedDuration::try_from(by).ok().and_then(|by| now.checked_sub(by).ok()).unwrap_or(Timestamp::MIN)
}

fn later(now: Timestamp, by: Duration) -> Timestamp {
    SignedDuration::try_from(by).ok().and_then(|by| now.checked_add(by).ok()).unwrap_or(Timestamp::MAX)
}

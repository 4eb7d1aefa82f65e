//! Skipping missing revisions: an operator's decision that they do not exist.

use std::sync::Arc;

use tokio::time::sleep;

use super::sequencer::{Inner, Sequencer};
use super::store::{Sequences, Settled, Settlement, Skipped, StreamChange, Totals, Waiting};
use crate::backoff::Backoff;
use crate::error::{Error, Invalid, Kind, Result};
use crate::event::{Partition, Revision, StreamId, to_the_microsecond};

impl<S: Sequences + Clone> Sequencer<S> {
    /// Records that the missing revisions of a stream up to this one do not exist, and releases the
    /// events that waited for them. The reason is stored. Returns the number of released events.
    ///
    /// Only missing revisions can be skipped: all before the first held event, or fewer.
    pub async fn skip(&self, stream: &StreamId, through: Revision, reason: &str) -> Result<u64> {
        let Inner { store, env, .. } = &*self.0;
        let partition = Partition::of(stream, store.partitions());
        let mut delays = Backoff::default().limit(10).delays(env.random());
        let mut is_in_doubt = false;
        loop {
            let mut survey = store.survey(vec![stream.clone()]).await?;
            let state = survey.streams.remove(stream).unwrap_or_default();
            let seen = state.seen();
            let after = state.after();
            if is_in_doubt && through <= after {
                return self.release(stream).await;
            }
            let waiting = state.waiting.filter(|waiting| waiting.events > 0).ok_or_else(|| {
                Invalid::new("stream", stream.as_str(), "a stream with held events; this one has none")
            })?;
            if through <= after || through > waiting.until {
                let expected = format!("a missing revision: {} to {}", after.0 + 1, waiting.until);
                return Err(Invalid::new("revision", &through.to_string(), expected).into());
            }
            let at = to_the_microsecond(env.now());
            let waiting = Waiting {
                version: env.random() >> 1,
                skipped: through,
                since: at,
                ask_at: at,
                asked: 0,
                trouble: None,
                ..waiting
            };
            let step = StreamChange {
                stream: stream.clone(),
                seen,
                append: Vec::new(),
                hold: Vec::new(),
                unhold: Vec::new(),
                waiting: Some(waiting),
            };
            let (stream, reason) = (stream.clone(), reason.to_owned());
            let settlement = Settlement {
                partition,
                steps: vec![step],
                skipped: Some(Skipped { stream: stream.clone(), after, through, reason, at }),
                bounds: Totals { events: u64::MAX, bytes: u64::MAX, conflicts: u64::MAX },
                ..Settlement::default()
            };
            let failure = match store.settle(Arc::new(settlement)).await? {
                Settled::Applied { .. } => return self.release(&stream).await,
                Settled::Unknown(error) => {
                    is_in_doubt = true;
                    error
                }
                _ => Error::new(
                    Kind::Unavailable,
                    format!("skipping revisions of {stream}: other processes keep changing it; try again"),
                ),
            };
            let Some(delay) = delays.next() else { return Err(failure) };
            sleep(delay).await;
        }
    }
}

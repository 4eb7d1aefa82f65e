//! The loop between a source and the log.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use leftfold::sequence::Rejected;
use leftfold::{Backoff, Delivery, Env, Kind, Policy, Result, Sequencer, Sequences, System};
use tokio::sync::watch;
use tokio::time::sleep;

use super::batch::{Batch, Outcome};
use super::handle::Handle;
use super::pauses::Pauses;
use crate::intake;
use crate::mapping::Mapping;
use crate::message::Message;
use crate::source::Source;

/// The delay before redelivery of a message that can't even be recorded as rejected.
const NO_ROOM: Duration = Duration::from_secs(30);

/// A task that brings the messages of a source into the log until it is stopped.
///
/// ```
/// # use leftfold_sources::Source;
/// # async fn start(source: impl Source) -> leftfold::Result<()> {
/// use leftfold::{Memory, Policy, Sequencer};
/// use leftfold_sources::{Feed, Mapping};
/// use tokio::sync::watch;
///
/// let (stop, stopped) = watch::channel(false);
/// let feed = Feed::new(source, Sequencer::new(Memory::default()), Mapping::default(), Policy::Contiguous);
/// let handle = feed.handle();
/// let running = tokio::spawn(feed.run(stopped));
/// // …
/// println!("{} messages so far", handle.counts().received);
/// stop.send_replace(true);
/// # running.await.unwrap()
/// # }
/// ```
pub struct Feed<S, T> {
    source: S,
    sequencer: Sequencer<T>,
    mapping: Mapping,
    policy: Policy,
    batch: usize,
    backoff: Backoff,
    env: Arc<dyn Env>,
    handle: Handle,
}

impl<S: Source, T: Sequences + Clone> Feed<S, T> {
    /// Creates a feed from this source.
    pub fn new(source: S, sequencer: Sequencer<T>, mapping: Mapping, policy: Policy) -> Self {
        Self {
            source,
            sequencer,
            mapping,
            policy,
            batch: 1_000,
            backoff: Backoff::default()
                .first(Duration::from_millis(100))
                .most(Duration::from_secs(10))
                .without_limit(),
            env: Arc::new(System),
            handle: Handle::new(),
        }
    }

    /// Sets the maximum number of messages per batch. The default is 1,000.
    #[must_use]
    pub fn batch(self, messages: usize) -> Self {
        Self { batch: messages.max(1), ..self }
    }

    /// Sets the retry policy for failures of the store or the source. By default the feed retries
    /// forever, after 0.1 to 10 seconds. If the policy has a limit and it is reached, the feed ends
    /// with the last error.
    #[must_use]
    pub fn backoff(self, backoff: Backoff) -> Self {
        Self { backoff, ..self }
    }

    /// Sets the source of time and randomness.
    #[must_use]
    pub fn env(self, env: Arc<dyn Env>) -> Self {
        Self { env, ..self }
    }

    /// Returns a handle that reports the state of the feed while it runs.
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Runs until `stop` becomes `true`, or its sender is dropped. It also ends when the
    /// source has ended, or when the source fails permanently.
    ///
    /// It stops between batches: received messages are processed first.
    pub async fn run(mut self, mut stop: watch::Receiver<bool>) -> Result<()> {
        let handle = self.handle();
        let mut troubles = Pauses::new(self.backoff);
        let mut crowding = Pauses::new(Backoff::default().first(Duration::from_millis(100)).without_limit());
        loop {
            let received = tokio::select! { biased;
                () = stopped(&mut stop) => return Ok(()),
                received = self.source.receive(self.batch) => received,
            };
            let outcome = match received {
                Ok(messages) if messages.is_empty() => return Ok(()),
                Ok(messages) => self.take(messages, &mut troubles).await,
                Err(error) if error.is_transient() => Outcome::Failed(error),
                Err(error) => return Err(error),
            };
            let pause = match outcome {
                Outcome::Taken => {
                    handle.note(None);
                    (troubles, crowding) = (troubles.over(), crowding.over());
                    continue;
                }
                Outcome::Crowded(after) => {
                    handle.note(None);
                    troubles = troubles.over();
                    // The next message may fill the gap and make room, so it must not wait the full
                    // time.
                    crowding.next(&*self.env).unwrap_or(after).min(after)
                }
                Outcome::Failed(error) => {
                    self.handle.counters.failures.fetch_add(1, Ordering::Relaxed);
                    handle.note(Some(&error));
                    let source = self.source.name();
                    tracing::warn!(source, %error, "the feed failed; retrying");
                    match troubles.last.take() {
                        Some(pause) => pause,
                        None => match troubles.next(&*self.env) {
                            Some(pause) => pause,
                            None => return Err(error),
                        },
                    }
                }
            };
            tokio::select! { biased;
                () = stopped(&mut stop) => return Ok(()),
                () = sleep(pause) => {}
            }
        }
    }

    /// Processes a batch of messages.
    async fn take(&mut self, messages: Vec<(Message, S::Receipt)>, troubles: &mut Pauses) -> Outcome {
        self.handle.counters.received.fetch_add(messages.len() as u64, Ordering::Relaxed);
        let now = self.env.now();
        let mut batch = Batch::default();
        let mut good = Vec::new();
        for (message, receipt) in messages {
            match self.mapping.map(&message, now) {
                Ok(delivery) => good.push((delivery, message, receipt)),
                Err(reason) => batch.invalid.push((reason.to_string(), message, receipt)),
            }
        }
        self.ingest(good, &mut batch).await;
        self.reject(&mut batch).await;

        let Batch { safe, crowded, failed, wait, failure, .. } = batch;
        let mut outcome = Outcome::Taken;
        self.handle.counters.acknowledged.fetch_add(safe.len() as u64, Ordering::Relaxed);
        self.handle.counters.refused.fetch_add((crowded.len() + failed.len()) as u64, Ordering::Relaxed);
        let mut settled = Ok(());
        if !safe.is_empty() {
            settled = self.source.acknowledge(safe).await;
        }
        if !crowded.is_empty() {
            let wait = wait.unwrap_or(NO_ROOM);
            settled = settled.and(self.source.refuse(crowded, wait).await);
            outcome = Outcome::Crowded(wait);
        }
        if !failed.is_empty() {
            let pause = troubles.next(&*self.env);
            troubles.last = pause;
            settled = settled.and(self.source.refuse(failed, pause.unwrap_or(NO_ROOM)).await);
        }
        match (failure, settled) {
            (Some(error), _) | (None, Err(error)) => Outcome::Failed(error),
            (None, Ok(())) => outcome,
        }
    }

    /// Ingests events into the log.
    async fn ingest(&mut self, good: Vec<(Delivery, Message, S::Receipt)>, batch: &mut Batch<S::Receipt>) {
        if good.is_empty() {
            return;
        }
        let deliveries = good.iter().map(|(delivery, ..)| delivery.clone()).collect();
        let (answers, failure) = intake::ingest(&self.sequencer, self.policy, deliveries).await;
        for ((_, message, receipt), answer) in good.into_iter().zip(answers) {
            match answer {
                Some(answer) => batch.answered(answer, message, receipt),
                None => batch.failed.push(receipt),
            }
        }
        batch.failure = failure;
    }

    /// Records invalid messages as rejected: all at once or, if that fails, one by one.
    async fn reject(&mut self, batch: &mut Batch<S::Receipt>) {
        let since = self.env.now();
        let source = self.source.name().to_owned();
        let rejected = |reason: &String, message: &Message| Rejected {
            source: source.clone(),
            reason: reason.clone(),
            since,
            attributes: message.attributes.clone(),
            content: message.content.clone(),
        };
        let invalid = std::mem::take(&mut batch.invalid);
        if invalid.is_empty() {
            return;
        }
        let store = self.sequencer.store();
        let every = invalid.iter().map(|(reason, message, _)| rejected(reason, message)).collect();
        let all = match store.reject(every).await {
            Err(error) if matches!(error.kind(), Kind::Unavailable | Kind::Contended | Kind::Unknown) => {
                batch.failed.extend(invalid.into_iter().map(|(.., receipt)| receipt));
                batch.failure = Some(error);
                return;
            }
            all => all,
        };
        for (reason, message, receipt) in invalid {
            let recorded = match &all {
                Ok(()) => Ok(()),
                Err(_) => store.reject(vec![rejected(&reason, &message)]).await,
            };
            match recorded {
                Ok(()) => {
                    tracing::warn!(source, %reason, "message rejected");
                    self.handle.counters.rejected.fetch_add(1, Ordering::Relaxed);
                    batch.safe.push(receipt);
                }
                Err(error) => {
                    tracing::error!(source, %reason, %error, "recording a rejected message failed; the source will redeliver it");
                    batch.crowded.push(receipt);
                }
            }
        }
    }
}

/// Waits until the feed must stop.
async fn stopped(stop: &mut watch::Receiver<bool>) {
    // An error means that the sender was dropped.
    let _ = stop.wait_for(|stop| *stop).await;
}

//! From a source to the log: receive, map, ingest, and only then acknowledge.
//!
//! A feed acknowledges a message when its outcome is durable: appended to the log, held, recorded
//! as a conflict, or recorded as rejected. All other messages are redelivered. One bad message
//! blocks no other.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use leftfold::sequence::{Refusal, Rejected};
use leftfold::{
    Backoff, Delivery, Env, Error, IngestAnswer, Kind, Policy, Result, Sequencer, Sequences, System,
};
use serde::Serialize;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use crate::intake;
use crate::mapping::Mapping;
use crate::message::Message;
use crate::source::Source;

/// The delay before redelivery of a message that can't even be recorded as rejected.
const NO_ROOM: Duration = Duration::from_secs(30);

/// The time after which a failure without another one counts as over. Retries are more frequent.
const OVER: Duration = Duration::from_secs(30);

/// A task that brings the messages of a source into the log until it is told to stop.
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
    counters: Arc<Counters>,
    trouble: Arc<Mutex<Option<(String, Instant)>>>,
}

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counts since the feed was created.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
        pub struct FeedCounts {
            $($(#[$doc])* pub $name: u64,)*
        }

        #[derive(Debug, Default)]
        struct Counters {
            $($name: AtomicU64,)*
        }

        impl Counters {
            fn counts(&self) -> FeedCounts {
                FeedCounts { $($name: self.$name.load(Ordering::Relaxed),)* }
            }
        }
    };
}

counters! {
    /// Messages received, including redeliveries.
    received,
    /// Messages that are not valid events or can't be accepted, and were recorded as rejected.
    rejected,
    /// Messages that the source may delete, including the rejected ones.
    acknowledged,
    /// Messages that the source must redeliver.
    refused,
    /// Failures of the source or the store.
    failures,
}

/// A handle that reports the state of a feed.
#[derive(Clone, Debug)]
pub struct Handle {
    counters: Arc<Counters>,
    trouble: Arc<Mutex<Option<(String, Instant)>>>,
}

impl Handle {
    /// Returns the counts so far.
    pub fn counts(&self) -> FeedCounts {
        self.counters.counts()
    }

    /// Returns the last error while it persists. It is cleared when the feed accepts messages
    /// again, or half a minute after the last failure.
    pub fn trouble(&self) -> Option<String> {
        let trouble = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        trouble.as_ref().filter(|(_, at)| at.elapsed() < OVER).map(|(error, _)| error.clone())
    }

    fn note(&self, error: Option<&Error>) {
        let trouble = error.map(|error| (error.to_string(), Instant::now()));
        *self.trouble.lock().unwrap_or_else(PoisonError::into_inner) = trouble;
    }
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
            counters: Arc::default(),
            trouble: Arc::default(),
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
        Handle { counters: Arc::clone(&self.counters), trouble: Arc::clone(&self.trouble) }
    }

    /// Runs until it is told to stop, by `true` or by dropping the sender. It also ends when the
    /// source has ended, or when the source fails permanently.
    ///
    /// It stops between batches: received messages are processed first.
    pub async fn run(mut self, mut stop: watch::Receiver<bool>) -> Result<()> {
        let handle = self.handle();
        let mut troubles = Pauses::new(self.backoff);
        let mut crowding = Pauses::new(Backoff::default().first(Duration::from_millis(100)).without_limit());
        loop {
            let received = tokio::select! { biased;
                () = told(&mut stop) => return Ok(()),
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
                    self.counters.failures.fetch_add(1, Ordering::Relaxed);
                    handle.note(Some(&error));
                    let source = self.source.name();
                    tracing::warn!(source, %error, "the feed can't go on for now; trying again");
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
                () = told(&mut stop) => return Ok(()),
                () = sleep(pause) => {}
            }
        }
    }

    /// Processes a batch of messages.
    async fn take(&mut self, messages: Vec<(Message, S::Receipt)>, troubles: &mut Pauses) -> Outcome {
        self.counters.received.fetch_add(messages.len() as u64, Ordering::Relaxed);
        let now = self.env.now();
        let mut batch = Batch::default();
        let mut good = Vec::new();
        for (message, receipt) in messages {
            match self.mapping.map(&message, now) {
                Ok(delivery) => good.push((delivery, message, receipt)),
                Err(invalid) => batch.bad.push((invalid.to_string(), message, receipt)),
            }
        }
        self.ingest(good, &mut batch).await;
        self.reject(&mut batch).await;

        let Batch { safe, crowded, failed, wait, failure, .. } = batch;
        let mut outcome = Outcome::Taken;
        self.counters.acknowledged.fetch_add(safe.len() as u64, Ordering::Relaxed);
        self.counters.refused.fetch_add((crowded.len() + failed.len()) as u64, Ordering::Relaxed);
        let mut told = Ok(());
        if !safe.is_empty() {
            told = self.source.acknowledge(safe).await;
        }
        if !crowded.is_empty() {
            let wait = wait.unwrap_or(NO_ROOM);
            told = told.and(self.source.refuse(crowded, wait).await);
            outcome = Outcome::Crowded(wait);
        }
        if !failed.is_empty() {
            let pause = troubles.next(&*self.env);
            troubles.last = pause;
            told = told.and(self.source.refuse(failed, pause.unwrap_or(NO_ROOM)).await);
        }
        match (failure, told) {
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
        let bad = std::mem::take(&mut batch.bad);
        if bad.is_empty() {
            return;
        }
        let store = self.sequencer.store();
        let every = bad.iter().map(|(reason, message, _)| rejected(reason, message)).collect();
        let all = match store.reject(every).await {
            Err(error) if matches!(error.kind(), Kind::Unavailable | Kind::Contended | Kind::Unknown) => {
                batch.failed.extend(bad.into_iter().map(|(.., receipt)| receipt));
                batch.failure = Some(error);
                return;
            }
            all => all,
        };
        for (reason, message, receipt) in bad {
            let kept = match &all {
                Ok(()) => Ok(()),
                Err(_) => store.reject(vec![rejected(&reason, &message)]).await,
            };
            match kept {
                Ok(()) => {
                    tracing::warn!(source, %reason, "a message was rejected");
                    self.counters.rejected.fetch_add(1, Ordering::Relaxed);
                    batch.safe.push(receipt);
                }
                Err(error) => {
                    tracing::error!(source, %reason, %error, "a message that is no event could not be kept; it will come again");
                    batch.crowded.push(receipt);
                }
            }
        }
    }
}

/// The outcomes of a batch of messages.
struct Batch<R> {
    /// Messages that are not valid events, with the reason.
    bad: Vec<(String, Message, R)>,
    safe: Vec<R>,
    /// Messages for which there is no room.
    crowded: Vec<R>,
    /// The time after which there may be room.
    wait: Option<Duration>,
    failed: Vec<R>,
    failure: Option<Error>,
}

impl<R> Default for Batch<R> {
    fn default() -> Self {
        let (bad, safe, crowded, failed) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Self { bad, safe, crowded, wait: None, failed, failure: None }
    }
}

impl<R> Batch<R> {
    fn answered(&mut self, answer: IngestAnswer, message: Message, receipt: R) {
        match answer {
            IngestAnswer::Refused(Refusal::Full { retry_after, .. }) => {
                self.crowded.push(receipt);
                self.wait = Some(self.wait.map_or(retry_after, |wait| wait.max(retry_after)));
            }
            IngestAnswer::Refused(Refusal::Invalid(invalid)) => {
                self.bad.push((invalid.to_string(), message, receipt));
            }
            _ => self.safe.push(receipt),
        }
    }
}

/// The outcome of a batch.
enum Outcome {
    Taken,
    /// There was no room for some messages; there may be some after this time.
    Crowded(Duration),
    Failed(Error),
}

/// Delays that grow until the feed recovers.
struct Pauses {
    backoff: Backoff,
    delays: Option<Box<dyn Iterator<Item = Duration> + Send>>,
    /// The delay that was announced to the source and not waited for yet.
    last: Option<Duration>,
}

impl Pauses {
    fn new(backoff: Backoff) -> Self {
        Self { backoff, delays: None, last: None }
    }

    fn over(self) -> Self {
        Self::new(self.backoff)
    }

    fn next(&mut self, env: &dyn Env) -> Option<Duration> {
        let backoff = self.backoff;
        self.delays.get_or_insert_with(|| Box::new(backoff.delays(env.random()))).next()
    }
}

/// Waits until the feed is told to stop.
async fn told(stop: &mut watch::Receiver<bool>) {
    // An error means that the sender was dropped.
    let _ = stop.wait_for(|stop| *stop).await;
}

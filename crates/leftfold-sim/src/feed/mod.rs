//! A feed that delivers events twice, late, out of order or never, and the actors that ingest it.
//!
//! - I6: An event acknowledged to the feed is in the log, held, or stored as a conflict. It is
//!   never lost.
//! - I7: The held events stay within their limits and agree with the stream's state.
//! - I3: The log of each stream is a prefix of the events that its origin published, in order and
//!   without a gap.
//! - I10: Within a time limit after the last fault every published event is in the log and nothing
//!   is held.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use leftfold::log::{Entry, Limit};
use leftfold::sequence::{Healer, Healing, HoldingLimits, Missing, SequencerCounts, WantedEvents, resupply};
use leftfold::{
    Delivery, Error, EventId, EventKind, Json, Kind, Log as _, Policy, Result, Revision, Sequencer,
    Sequences as _, StreamId, mutant,
};
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use crate::actors::Clock;
use crate::dice::Dice;
use crate::faults::Fault;
use crate::store::SimStore;

/// The time before a delivered message is delivered again.
const REDELIVERY: Duration = Duration::from_secs(5);
const ALL: Limit = Limit { events: usize::MAX, bytes: usize::MAX };

/// The published events, the messages in flight, and the results of the ingesters.
#[derive(Debug, Default)]
pub struct SimulatedFeed {
    state: Mutex<State>,
    pub(crate) limits: Mutex<Option<HoldingLimits>>,
    pub(crate) tally: Tally,
}

/// The counts of all sequencers together.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) held: AtomicU64,
    pub(crate) released: AtomicU64,
    pub(crate) healed: AtomicU64,
    pub(crate) duplicates: AtomicU64,
    pub(crate) conflicts: AtomicU64,
    pub(crate) refused: AtomicU64,
}

impl Tally {
    fn add(&self, counts: SequencerCounts) {
        let pairs = [
            (&self.held, counts.held),
            (&self.released, counts.released),
            (&self.healed, counts.healed),
            (&self.duplicates, counts.duplicates),
            (&self.conflicts, counts.conflicts),
            (&self.refused, counts.refused),
        ];
        for (sum, count) in pairs {
            sum.fetch_add(count, Ordering::Relaxed);
        }
    }
}

#[derive(Debug, Default)]
struct State {
    /// Each stream as its origin published it.
    published: BTreeMap<StreamId, Vec<Delivery>>,
    /// The highest revision of each stream that was ever sent.
    brought: BTreeMap<StreamId, Revision>,
    /// Messages by number: the time they are due, and the delivery.
    messages: BTreeMap<u64, (Instant, Delivery)>,
    next: u64,
}

impl SimulatedFeed {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn limits(&self) -> HoldingLimits {
        self.limits.lock().unwrap_or_else(PoisonError::into_inner).unwrap_or_default()
    }

    /// Sends a message.
    fn send(&self, delivery: Delivery, after: Duration) {
        let mut state = self.state();
        let number = state.next;
        state.next += 1;
        let highest = state.brought.entry(delivery.stream.clone()).or_default();
        *highest = (*highest).max(delivery.revision.unwrap_or_default());
        state.messages.insert(number, (Instant::now() + after, delivery));
    }

    /// Returns some of the messages that are due.
    fn receive(&self, most: usize) -> Vec<(u64, Delivery)> {
        let now = Instant::now();
        let mut state = self.state();
        let due = state.messages.iter_mut().filter(|(_, (due, _))| *due <= now).take(most);
        due.map(|(number, (due, delivery))| {
            *due = now + REDELIVERY;
            (*number, delivery.clone())
        })
        .collect()
    }

    fn acknowledge(&self, number: u64) {
        self.state().messages.remove(&number);
    }

    fn is_empty(&self) -> bool {
        self.state().messages.is_empty()
    }

    /// Publishes events until the faults end, and applies the feed's faults to them.
    pub(crate) async fn publish(store: SimStore, dice: Dice, healed: watch::Receiver<bool>) {
        let (shared, faults) = (store.shared(), &store.shared().faults);
        let linked = dice.happens(300);
        let streams = 1 + dice.below(3);
        for number in 0..40 {
            sleep(dice.time(Duration::from_secs(1))).await;
            if *healed.borrow() {
                break;
            }
            let Ok(stream) = StreamId::new(format!("f{}", dice.below(streams))) else { continue };
            let last = {
                let state = shared.feed.state();
                let events = state.published.get(&stream).and_then(|events| events.last());
                events.and_then(|last| last.revision).unwrap_or_default()
            };
            let step = if linked { 1 + dice.below(3) } else { 1 };
            let Ok(event) = delivery(&stream, last.0 + step, last.0, &format!("f{number}"), &dice) else {
                continue;
            };
            shared.feed.state().published.entry(stream.clone()).or_default().push(event.clone());
            if faults.strikes(Fault::Lost) {
                continue;
            }
            let late = |fault| {
                if faults.strikes(fault) { dice.time(Duration::from_secs(12)) } else { Duration::ZERO }
            };
            shared.feed.send(event.clone(), late(Fault::Reordered));
            if faults.strikes(Fault::Twice) {
                shared.feed.send(event, dice.time(Duration::from_secs(20)));
            }
            if faults.strikes(Fault::Twin) {
                let twin = delivery(&stream, last.0 + step, last.0, &format!("twin{number}"), &dice);
                if let Ok(twin) = twin {
                    shared.feed.send(twin, dice.time(Duration::from_secs(5)));
                }
            }
        }
    }

    /// Checks the result of a settlement.
    pub(crate) async fn look(&self, store: &SimStore) -> Result<()> {
        let (inner, checker) = (store.inner(), &store.shared().checker);
        let limits = self.limits();
        let (mut events, mut bytes) = (0, 0);
        for (stream, standing) in inner.waiting(None, usize::MAX).await? {
            let page = inner.held(vec![stream.clone()], ALL).await?.remove(&stream).unwrap_or_default();
            let Some(waiting) = standing.waiting else { continue };
            let first = page.held.first().map(|held| (held.revision, held.previous));
            if page.held.len() as u64 != waiting.events || first != Some((waiting.first, waiting.until)) {
                checker
                    .violated(format!("I7: of {stream}, {:?} are held, and {waiting:?} is said", page.held));
            }
            if waiting.events > limits.stream_events {
                checker.violated(format!("I7: {} events of {stream} are held", waiting.events));
            }
            events += page.held.len() as u64;
            bytes += page.held.iter().map(leftfold::sequence::Held::bytes).sum::<u64>();
        }
        let survey = inner.survey(Vec::new()).await?;
        let said =
            survey.totals.values().fold((0, 0), |sum, totals| (sum.0 + totals.events, sum.1 + totals.bytes));
        if said != (events, bytes) {
            checker.violated(format!(
                "I7: {events} events, {bytes} bytes are held, and {said:?} are said to be"
            ));
        }
        let most = limits.events.div_ceil(inner.partitions().into()) * u64::from(inner.partitions());
        if events > most {
            checker.violated(format!("I7: {events} events are held"));
        }
        let published = self.state().published.clone();
        for (stream, events) in published {
            self.is_prefix(store, &stream, &events).await?;
        }
        Ok(())
    }

    /// Checks that the log of a stream is a prefix of the published events, except for twins that
    /// came first. Returns its length.
    async fn is_prefix(&self, store: &SimStore, stream: &StreamId, published: &[Delivery]) -> Result<usize> {
        let logged = store.inner().read_stream(stream, Revision(0), ALL).await?;
        let expected: Vec<_> =
            published.iter().filter_map(|event| event.revision).take(logged.len()).collect();
        let actual: Vec<_> = logged.iter().map(|event| event.revision).collect();
        if expected != actual {
            store.shared().checker.violated(format!("I3: {stream} is {actual:?} and should be {expected:?}"));
        }
        for (event, published) in logged.iter().zip(published) {
            let is_twin = event.id.as_str().starts_with("twin");
            if event.data != published.entry.data && !is_twin {
                store.shared().checker.violated(format!("I3: {} has another content", event.bookmark()));
            }
        }
        Ok(logged.len())
    }

    /// Returns whether an acknowledged event is in the log, held, or stored as a conflict.
    async fn is_kept(store: &SimStore, delivery: &Delivery) -> Result<bool> {
        let inner = store.inner();
        let Some(revision) = delivery.revision else { return Ok(true) };
        let places = vec![(delivery.stream.clone(), revision)];
        let found = inner.find(WantedEvents { places, ids: Vec::new() }).await?;
        let data = &delivery.entry.data;
        let conflicts = inner.conflicts(None, usize::MAX).await?;
        Ok(found.logged.iter().any(|event| event.data == *data)
            || found.held.iter().any(|held| held.entry.data == *data)
            || conflicts.iter().any(|conflict| {
                conflict.stream == delivery.stream
                    && conflict.revision == revision
                    && conflict.entry.data == *data
            }))
    }

    /// Checks that all events have arrived in the end.
    pub(crate) async fn finally(&self, store: &SimStore) -> Result<()> {
        let checker = &store.shared().checker;
        for (stream, standing) in store.inner().waiting(None, usize::MAX).await? {
            checker.violated(format!("I10: {stream} still waits: {standing:?}"));
        }
        let (published, brought) = {
            let state = self.state();
            (state.published.clone(), state.brought.clone())
        };
        for (stream, events) in published {
            let logged = self.is_prefix(store, &stream, &events).await?;
            let highest = brought.get(&stream).copied().unwrap_or_default();
            let wanted = events.iter().filter(|event| event.revision <= Some(highest)).count();
            if logged < wanted {
                checker.violated(format!(
                    "I10: of {stream}, {logged} events are in the log, and {wanted} should be"
                ));
            }
        }
        Ok(())
    }
}

/// Returns an event of a feed with unique content.
fn delivery(stream: &StreamId, revision: u64, previous: u64, id: &str, dice: &Dice) -> Result<Delivery> {
    let to = [format!("d{}", dice.below(4))];
    let entry = Entry {
        id: EventId::new(id)?,
        kind: EventKind::new("noted")?,
        time: Timestamp::UNIX_EPOCH,
        data: Json::of(&serde_json::json!({ "to": to, "by": id }))?,
        metadata: None,
    };
    Ok(Delivery {
        stream: stream.clone(),
        revision: Some(Revision(revision)),
        previous: Some(Revision(previous)),
        entry: Arc::new(entry),
    })
}

/// An ingester of the feed, which dies and restarts.
pub(crate) struct Ingester {
    pub(crate) store: SimStore,
    pub(crate) name: String,
    pub(crate) dice: Dice,
}

impl Ingester {
    /// Ingests until the faults have ended and everything has arrived.
    pub(crate) async fn run(self, healed: watch::Receiver<bool>) -> Result<()> {
        loop {
            let store = self.store.worker(&self.name);
            let clock = Arc::new(Clock::new(self.dice.split(), store.clone()));
            let sequencer = Sequencer::with(store.clone(), store.shared().feed.limits(), clock);
            let ended = tokio::select! {
                biased;
                () = store.fuse().blown() => false,
                () = self.heal(&sequencer) => false,
                ended = self.ingest(&store, &sequencer, &healed) => ended?,
            };
            store.shared().feed.tally.add(sequencer.counts());
            if ended {
                return Ok(());
            }
            store.shared().trace.note(|| format!("{} begins anew", self.name));
            sleep(self.dice.time(Duration::from_secs(1))).await;
        }
    }

    async fn ingest(
        &self,
        store: &SimStore,
        sequencer: &Sequencer<SimStore>,
        healed: &watch::Receiver<bool>,
    ) -> Result<bool> {
        let Self { dice, .. } = self;
        let feed = &store.shared().feed;
        loop {
            self.trouble(store);
            let most = usize::try_from(1 + dice.below(6)).unwrap_or(1);
            let batch = feed.receive(most);
            if batch.is_empty() {
                let is_done = *healed.borrow() && feed.is_empty();
                if is_done && store.inner().waiting(None, 1).await?.is_empty() {
                    return Ok(true);
                }
                sleep(dice.time(Duration::from_millis(700))).await;
                continue;
            }
            mutant!(IngestLater => for (number, _) in &batch { feed.acknowledge(*number) });
            let deliveries: Vec<_> = batch.iter().map(|(_, delivery)| delivery.clone()).collect();
            match sequencer.ingest(Policy::Contiguous, deliveries).await {
                Ok(answers) => {
                    for ((number, delivery), answer) in batch.into_iter().zip(answers) {
                        let name = format!("{}@{:?}", delivery.stream, delivery.revision.unwrap_or_default());
                        store.shared().trace.note(|| format!("{}: {name}: {answer:?}", self.name));
                        if !answer.is_final() {
                            continue;
                        }
                        feed.acknowledge(number);
                        if !SimulatedFeed::is_kept(store, &delivery).await? {
                            store
                                .shared()
                                .checker
                                .violated(format!("I6: {name} was {answer:?}, and is gone"));
                        }
                    }
                }
                Err(error) if error.is_transient() => sleep(dice.time(Duration::from_secs(1))).await,
                Err(error) => return Err(error),
            }
        }
    }

    /// Makes the ingester die soon, or pauses it.
    fn trouble(&self, store: &SimStore) {
        let Self { dice, name, .. } = self;
        let faults = &store.shared().faults;
        if faults.strikes(Fault::Crash) {
            store.shared().trace.note(|| format!("{name} dies soon"));
            store.fuse().light(dice.below(25));
        } else if faults.strikes(Fault::Pause) {
            store.shared().trace.note(|| format!("{name} stands still"));
            store.gate().close();
            let (store, time) = (store.clone(), dice.time(Duration::from_secs(8)));
            tokio::spawn(async move {
                sleep(time).await;
                store.gate().open();
            });
        }
    }

    /// Fetches missing events from the origin, for ever.
    async fn heal(&self, sequencer: &Sequencer<SimStore>) {
        let store = self.store.clone();
        let origin = resupply(move |missing: Missing| {
            let store = store.clone();
            async move {
                if store.shared().faults.strikes(Fault::Fails) {
                    return Err(Error::new(Kind::Unavailable, "the origin does not answer"));
                }
                let state = store.shared().feed.state();
                let events = state.published.get(&missing.stream).cloned().unwrap_or_default();
                let wanted = Some(Revision(missing.after.0 + 1))..=Some(missing.through);
                let found: Vec<_> =
                    events.into_iter().filter(|event| wanted.contains(&event.revision)).collect();
                store.shared().trace.note(|| format!("the origin has {} of {missing:?}", found.len()));
                Ok(found)
            }
        });
        let healing = Healing {
            age: Duration::from_secs(2),
            again: (Duration::from_secs(1), Duration::from_secs(8)),
            ..Healing::default()
        };
        let healer = Healer::new(sequencer.clone(), origin, healing);
        loop {
            sleep(self.dice.time(Duration::from_secs(3))).await;
            // The log shows the result.
            let _ = healer.heal().await;
        }
    }
}

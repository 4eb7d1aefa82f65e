//! Unreliable feeds: they deliver the workload twice, out of order, or not at all, and two messages
//! that are not events. Lost events come from the origin, which can generate any cart's events
//! again.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use leftfold::log::Entry;
use leftfold::sequence::{Healer, Healing, Missing, resupply};
use leftfold::{App, Delivery, Error, Kind, Partition, Policy, Sequencer, Sequences, Store, StreamId};
use leftfold_sources::{Feed, Mapping, Message, Source};
use leftfold_terminal::{Exit, Failure};
use serde::Serialize;
use serde_json::json;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};

use crate::demo::PATIENCE;
use crate::event_plan::{AppendProgress, EventPlan, PlannedEvent, WriterEvents};
use crate::random::Random;

/// The number of messages of which one is delivered twice.
const TWICE: usize = 20;
/// The number of messages of which one is lost.
const LOST: usize = 200;
/// The number of messages per batch.
const BATCH: usize = 500;
const CLOUD_EVENT: &str = "application/cloudevents+json";

/// The behaviour of the feeds, and its outcome.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Chaos {
    /// Messages delivered, including duplicates.
    pub(crate) delivered: u64,
    /// Events delivered a second time.
    pub(crate) twice: u64,
    /// Events that arrived before a predecessor, and had to wait.
    pub(crate) early: u64,
    /// Events that were lost.
    pub(crate) lost: u64,
    /// Events that the origin resupplied.
    pub(crate) healed: u64,
    /// Messages that are not events.
    pub(crate) poison: u64,
    /// Messages that were rejected.
    pub(crate) rejected: u64,
}

#[derive(Debug, Default)]
struct Counters {
    delivered: AtomicU64,
    twice: AtomicU64,
    lost: AtomicU64,
    poison: AtomicU64,
}

/// Delivers all events to the log. The log has them when it returns.
pub(crate) async fn deliver<S: Store + Sequences>(
    app: &App<S>,
    plan: &EventPlan,
    appending: &Arc<AppendProgress>,
) -> Result<Chaos, Failure> {
    let sequencer = Sequencer::new(app.store().clone());
    let counters = Arc::new(Counters::default());
    let (stop, stopped) = watch::channel(false);
    let (mut running, mut handles) = (JoinSet::new(), Vec::new());
    for number in 0..plan.writers {
        let source = Unreliable::new(plan, number, Arc::clone(appending), Arc::clone(&counters));
        let feed = Feed::new(source, sequencer.clone(), Mapping::default(), Policy::Contiguous).batch(BATCH);
        handles.push(feed.handle());
        running.spawn(feed.run(stopped.clone()));
    }
    let origin = plan.clone();
    let resupplier = resupply(move |missing| std::future::ready(resupplied(&origin, &missing)));
    let healing = Healing {
        age: Duration::from_millis(500),
        every: Duration::from_millis(100),
        again: (Duration::from_millis(500), Duration::from_secs(5)),
        ..Healing::default()
    };
    let healer = Healer::new(sequencer.clone(), resupplier, healing);
    running.spawn(async move {
        healer.run(stopped).await;
        Ok(())
    });
    let ended = |ended: Result<leftfold::Result<()>, tokio::task::JoinError>| -> Result<(), Failure> {
        Ok(ended.map_err(|error| Failure::new(Exit::Store, format!("feeding: {error}")))??)
    };
    {
        let mut all_appended = std::pin::pin!(all_appended(app, plan, appending));
        loop {
            tokio::select! { biased;
                appended = &mut all_appended => break appended?,
                // A feed has delivered everything; the others and the healer continue.
                Some(one) = running.join_next() => ended(one)?,
            }
        }
    }
    stop.send_replace(true);
    while let Some(one) = running.join_next().await {
        ended(one)?;
    }
    let (counts, of) = (sequencer.counts(), |counter: &AtomicU64| counter.load(Ordering::Relaxed));
    Ok(Chaos {
        delivered: of(&counters.delivered),
        twice: of(&counters.twice),
        early: counts.held,
        lost: of(&counters.lost),
        healed: counts.healed,
        poison: of(&counters.poison),
        rejected: handles.iter().map(|handle| handle.counts().rejected).sum(),
    })
}

/// Waits until all events are in the log. Fails if the log stops growing.
async fn all_appended<S: Store>(
    app: &App<S>,
    plan: &EventPlan,
    progress: &AppendProgress,
) -> Result<(), Failure> {
    let store = app.store();
    let partition = Partition(0).into();
    let begin = store.heads().await?.get(&partition);
    loop {
        let heads = store.heads().await?;
        progress.add((heads.get(&partition) - begin).saturating_sub(progress.appended()));
        if progress.appended() >= plan.events {
            return Ok(());
        }
        if timeout(PATIENCE, store.grown(&heads)).await.is_err() {
            let message = format!(
                "delivering events: no progress for {} seconds; the log has {} of {}",
                PATIENCE.as_secs(),
                progress.appended(),
                plan.events
            );
            return Err(Failure::new(Exit::Store, message));
        }
    }
}

/// Returns missing events, as the origin does.
fn resupplied(plan: &EventPlan, missing: &Missing) -> leftfold::Result<Vec<Delivery>> {
    let Missing { stream, after, through } = missing;
    let cart = plan.cart(stream).map_err(|failure| Error::new(Kind::Invalid, failure.to_string()))?;
    let wanted = cart.into_iter().filter(|event| (after.0 + 1..=through.0).contains(&event.revision.0));
    Ok(wanted.map(delivery).collect())
}

fn delivery(planned: PlannedEvent) -> Delivery {
    let PlannedEvent { stream, revision, id, event } = planned;
    let time = event.time.unwrap_or_default();
    let entry = Entry { id, kind: event.kind, time, data: event.data, metadata: event.metadata };
    Delivery { stream, revision: Some(revision), previous: None, entry: Arc::new(entry) }
}

/// An unreliable broker: it delivers each message somewhere within a window of its position.
struct Unreliable {
    name: String,
    events: WriterEvents,
    appending: Arc<AppendProgress>,
    counters: Arc<Counters>,
    random: Random,
    window: usize,
    /// The number of events taken from the workload.
    given: usize,
    /// Messages by the time of delivery, counted in events.
    places: BTreeMap<(usize, usize), Message>,
    /// Messages to lose, once a later event of their stream can reveal the gap.
    doomed: HashMap<StreamId, (usize, usize)>,
    /// The number of messages, which makes places distinct and numbers receipts.
    messages: usize,
    /// Messages that are delivered, and neither acknowledged nor refused.
    open: HashMap<usize, Message>,
    /// Messages to deliver again.
    again: BTreeMap<Instant, Vec<Message>>,
}

impl Unreliable {
    fn new(plan: &EventPlan, number: u64, appending: Arc<AppendProgress>, counters: Arc<Counters>) -> Self {
        let mut source = Self {
            name: format!("demo feed {}", number + 1),
            events: plan.share(number),
            appending,
            counters,
            random: Random::new(plan.seed ^ (number + 1)),
            window: 4 * plan.open(),
            given: 0,
            places: BTreeMap::new(),
            doomed: HashMap::new(),
            messages: 0,
            open: HashMap::new(),
            again: BTreeMap::new(),
        };
        if number == 0 {
            let prefix = &plan.prefix;
            source.put(1, Message::new(format!("{prefix}a text that is no event")));
            let without_a_stream = format!(r#"{{"specversion":"1.0","id":"{prefix}nowhere"}}"#);
            source.put(2, Message::new(without_a_stream).with("content-type", CLOUD_EVENT));
            source.counters.poison.fetch_add(2, Ordering::Relaxed);
        }
        source
    }

    /// Takes one more event. Returns `false` if there is none.
    fn give(&mut self) -> Result<bool, Failure> {
        let Some(planned) = self.events.next().transpose()? else { return Ok(false) };
        self.given += 1;
        if let Some(place) = self.doomed.remove(&planned.stream)
            && self.places.remove(&place).is_some()
        {
            self.counters.lost.fetch_add(1, Ordering::Relaxed);
        }
        let message = message(&planned);
        // Even the smallest demo loses an event.
        if self.given == 1 || self.random.below(LOST) == 0 {
            let place = self.put(self.window, message);
            self.doomed.insert(planned.stream, place);
            return Ok(true);
        }
        if self.random.below(TWICE) == 0 {
            self.counters.twice.fetch_add(1, Ordering::Relaxed);
            let later = self.random.below(self.window);
            self.put(later, message.clone());
        }
        let later = self.random.below(self.window);
        self.put(later, message);
        Ok(true)
    }

    /// Schedules a message after `later` more events. Returns its place.
    fn put(&mut self, later: usize, message: Message) -> (usize, usize) {
        self.messages += 1;
        let place = (self.given + later, self.messages);
        self.places.insert(place, message);
        place
    }

    /// Returns the next due message, or any message once there are no more events.
    fn next(&mut self) -> Result<Option<Message>, Failure> {
        loop {
            let is_due = self.places.keys().next().is_some_and(|(place, _)| *place <= self.given);
            if is_due || !self.give()? {
                return Ok(self.places.pop_first().map(|(_, message)| message));
            }
        }
    }

    fn brought(&mut self, message: Message) -> (Message, usize) {
        self.counters.delivered.fetch_add(1, Ordering::Relaxed);
        self.messages += 1;
        self.open.insert(self.messages, message.clone());
        (message, self.messages)
    }
}

impl Source for Unreliable {
    type Receipt = usize;

    fn name(&self) -> &str {
        &self.name
    }

    async fn receive(&mut self, most: usize) -> leftfold::Result<Vec<(Message, usize)>> {
        loop {
            self.appending.gate().await;
            let due = self.again.keys().next().copied();
            if due.is_some_and(|due| due <= Instant::now()) {
                let again = self.again.pop_first().map(|(_, again)| again).unwrap_or_default();
                return Ok(again.into_iter().map(|message| self.brought(message)).collect());
            }
            let mut received = Vec::new();
            while received.len() < most
                && let Some(message) =
                    self.next().map_err(|failure| Error::new(Kind::Invalid, failure.to_string()))?
            {
                received.push(self.brought(message));
            }
            match due {
                Some(due) if received.is_empty() => sleep_until(due).await,
                _ => return Ok(received),
            }
        }
    }

    async fn acknowledge(&mut self, receipts: Vec<usize>) -> leftfold::Result<()> {
        for receipt in receipts {
            self.open.remove(&receipt);
        }
        Ok(())
    }

    async fn refuse(&mut self, receipts: Vec<usize>, after: Duration) -> leftfold::Result<()> {
        let again = receipts.into_iter().filter_map(|receipt| self.open.remove(&receipt));
        self.again.entry(Instant::now() + after).or_default().extend(again);
        Ok(())
    }
}

/// Encodes an event as a message.
fn message(planned: &PlannedEvent) -> Message {
    let PlannedEvent { stream, revision, id, event } = planned;
    let content = json!({
        "specversion": "1.0", "id": id, "source": "/demo", "type": event.kind, "subject": stream,
        "sequence": revision, "time": event.time, "datacontenttype": "application/json", "data": event.data,
    });
    Message::new(content.to_string()).with("content-type", CLOUD_EVENT)
}

//! The actors of the world: producers, a reader and an operator. Each has its own clock.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use leftfold::{App, AppendError, Bookmark, Env, Expected, Invalid, Json, NewEvent, ReadError, Revision};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

use crate::dice::Dice;
use crate::faults::Fault;
use crate::notes::{BY_CONTENT, BY_STREAM, FoldedEvents, Happened, Mixture};
use crate::store::{MIDNIGHT, SimStore};

/// The responses that clients got, and their counts.
#[derive(Debug, Default)]
pub(crate) struct Told {
    acknowledged: Mutex<Vec<Bookmark>>,
    pub(crate) refused: AtomicU64,
    pub(crate) waited_reads: AtomicU64,
    pub(crate) parked_reads: AtomicU64,
    pub(crate) switched: AtomicU64,
    pub(crate) undone: AtomicU64,
}

impl Told {
    pub(crate) fn acknowledged(&self) -> MutexGuard<'_, Vec<Bookmark>> {
        self.acknowledged.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A client that appends events.
pub(crate) struct Producer {
    pub(crate) app: App<SimStore>,
    pub(crate) dice: Dice,
    pub(crate) number: u64,
    pub(crate) mixture: Mixture,
    /// `true` if documents can be cleared. This needs a single partition, which gives all events an
    /// order.
    pub(crate) clears: bool,
    pub(crate) told: Arc<Told>,
}

impl Producer {
    /// Appends events until the faults end.
    pub(crate) async fn produce(self, healed: watch::Receiver<bool>) {
        for number in 0..40 {
            sleep(self.dice.time(Duration::from_millis(1_300))).await;
            if *healed.borrow() {
                break;
            }
            let stream = format!("s{}", self.dice.below(5));
            let Ok(events) = self.events(number) else { continue };
            let wishes = self.dice.happens(200).then(|| Revision(self.dice.below(20)));
            let expected = wishes.map_or(Expected::Any, Expected::Revision);
            self.append(&stream, expected, events).await;
        }
    }

    fn events(&self, number: u64) -> Result<Vec<NewEvent>, Invalid> {
        let count = 1 + self.dice.below(3);
        let events = (0..count).map(|at| {
            let producer = self.number;
            let id = format!("p{producer}-{number}-{at}");
            let event = self.mixture.event(&self.dice, &id)?;
            if event.kind.as_str() == "cleared" && !self.clears {
                return NewEvent::encode(&Happened::Noted { to: vec!["d0".into()] })?.with_id(&id);
            }
            Ok(event)
        });
        let mut events: Vec<_> = events.collect::<Result<_, _>>()?;
        if self.dice.happens(1) {
            let vast = Json::of(&serde_json::json!({ "to": ["d0"], "vast": "x".repeat(1 << 20) }))?;
            events.push(NewEvent::new("noted", vast)?.with_id(format!("p{}-{number}-vast", self.number))?);
        }
        if self.dice.happens(20) {
            // Reuse the id of another event with a content that no other producer writes.
            let taken = format!("p{}-{}-0", self.dice.below(3), self.dice.below(number + 1));
            let to = vec![format!("taken{}", self.number)];
            events = vec![NewEvent::encode(&Happened::Noted { to })?.with_id(&taken)?];
        }
        Ok(events)
    }

    /// Appends, retries unknown outcomes, and checks that the response is true.
    async fn append(&self, stream: &str, expected: Expected, events: Vec<NewEvent>) {
        let (store, mut doubt) = (self.app.store(), false);
        let checker = &store.shared().checker;
        for _ in 0..200 {
            let calm = store.shared().faults.is_calm();
            let answer = self.app.append_events(stream, expected, events.clone()).await;
            let mut logged = Vec::new();
            for event in &events {
                let Some(id) = &event.id else { continue };
                logged.push(checker.is_logged(store.inner(), id, &event.data).await.unwrap_or(false));
            }
            match answer {
                Ok(appended) => {
                    self.told.acknowledged().push(appended.into_bookmark());
                    if logged.contains(&false) {
                        checker
                            .violated(format!("I11: an append to {stream} was done, and is not in the log"));
                    }
                    return;
                }
                Err(AppendError::Store(error)) if error.is_transient() => {
                    if calm {
                        checker.violated(format!("I11: an append failed though nothing goes wrong: {error}"));
                    }
                    doubt = true;
                    sleep(self.dice.time(Duration::from_secs(1))).await;
                }
                Err(AppendError::IdTaken { .. } | AppendError::PartlyThere { .. }) => return,
                Err(_) => {
                    self.told.refused.fetch_add(1, Ordering::Relaxed);
                    if !doubt && logged.contains(&true) {
                        checker
                            .violated(format!("I11: an append to {stream} was refused, and is in the log"));
                    }
                    return;
                }
            }
        }
    }
}

/// Reads documents that must include the reader's own write.
pub(crate) async fn read(app: App<SimStore>, dice: Dice, told: Arc<Told>, healed: watch::Receiver<bool>) {
    while !*healed.borrow() {
        sleep(dice.time(Duration::from_secs(3))).await;
        let bookmark = dice.pick(&told.acknowledged()).cloned();
        let Some(bookmark) = bookmark else { continue };
        let document =
            if dice.happens(500) { bookmark.stream.to_string() } else { format!("d{}", dice.below(4)) };
        read_own(&app, &document, bookmark, &told).await;
    }
}

/// Checks that a read at least at a bookmark lists its event, if the event belongs to the document.
pub(crate) async fn read_own(app: &App<SimStore>, document: &str, bookmark: Bookmark, told: &Told) {
    let projection = if document == bookmark.stream.as_str() { BY_STREAM } else { BY_CONTENT };
    let store = app.store();
    let checker = &store.shared().checker;
    let own = format!("{}@{}", bookmark.stream, bookmark.revision);
    match app.get_as::<FoldedEvents>(projection, document).at_least(bookmark.clone()).await {
        Ok(seen) => {
            told.waited_reads.fetch_add(1, Ordering::Relaxed);
            let listed = seen.is_some_and(|seen| seen.events.contains(&own));
            let must = checker.must_list(store.inner(), projection, document, &bookmark).await;
            if !listed && must.unwrap_or(false) {
                let what = format!("I11: a read of {document} at least at {bookmark} did not find it");
                store.shared().trace.note(|| what.clone());
                checker.violated(what);
            }
        }
        Err(ReadError::Parked { .. }) => {
            told.parked_reads.fetch_add(1, Ordering::Relaxed);
        }
        Err(ReadError::Unknown { .. }) => {
            checker.violated(format!("I11: {bookmark} was acknowledged and is said to be unknown"));
        }
        Err(_) => {}
    }
}

/// Retries and refolds beside the workers.
pub(crate) async fn meddle(app: App<SimStore>, dice: Dice, healed: watch::Receiver<bool>) {
    while !*healed.borrow() {
        sleep(dice.time(Duration::from_secs(3))).await;
        if !app.store().shared().faults.strikes(Fault::Meddling) {
            continue;
        }
        let name = if dice.happens(500) { BY_STREAM } else { BY_CONTENT };
        // The documents show the result.
        if dice.happens(500) {
            let _ = app.retry_all(name, dice.happens(100), |_, _| ()).await;
        } else {
            let id = format!("{}{}", if name == BY_STREAM { "s" } else { "d" }, dice.below(5));
            let _ = app.refold(name, &id).await;
        }
    }
}

/// Rebuilds beside the workers. Then switches to the new generation, leaves it half built, discards
/// it, or undoes the last switch.
pub(crate) async fn rebuild(app: App<SimStore>, dice: Dice, told: Arc<Told>, healed: watch::Receiver<bool>) {
    /// The timeout. Other actors continue an operation that is left unfinished.
    const PATIENCE: Duration = Duration::from_secs(6);
    while !*healed.borrow() {
        sleep(dice.time(Duration::from_secs(3))).await;
        if !app.store().shared().faults.strikes(Fault::Rebuilding) {
            continue;
        }
        let name = if dice.happens(500) { BY_STREAM } else { BY_CONTENT };
        if dice.happens(250) {
            if let Ok(Ok(())) = timeout(PATIENCE, app.undo(name)).await {
                told.undone.fetch_add(1, Ordering::Relaxed);
            }
            continue;
        }
        let Ok(rebuild) = app.rebuild(name).await else { continue };
        let built = timeout(dice.time(PATIENCE), rebuild.built()).await;
        if dice.happens(100) {
            let _ = timeout(PATIENCE, rebuild.cancel()).await;
        } else if (matches!(built, Ok(Ok(()))) || dice.happens(300))
            && let Ok(Ok(())) = timeout(PATIENCE, rebuild.switch()).await
        {
            told.switched.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// A clock that jumps and stops, and a random source that repeats for the same seed.
pub(crate) struct Clock {
    dice: Dice,
    began: Instant,
    skew: AtomicI64,
    frozen: AtomicBool,
    store: SimStore,
}

impl Clock {
    pub(crate) fn new(dice: Dice, store: SimStore) -> Self {
        Self { dice, began: Instant::now(), skew: AtomicI64::new(0), frozen: AtomicBool::new(false), store }
    }
}

impl Env for Clock {
    fn now(&self) -> Timestamp {
        if self.store.shared().faults.strikes(Fault::Clock) {
            let hours = i64::try_from(self.dice.below(20)).unwrap_or(0) - 10;
            self.skew.store(hours * 3_600, Ordering::Relaxed);
            self.frozen.store(self.dice.happens(300), Ordering::Relaxed);
        }
        let frozen = self.frozen.load(Ordering::Relaxed) && !self.store.shared().faults.is_calm();
        let passed = if frozen { Duration::ZERO } else { self.began.elapsed() };
        let midnight = MIDNIGHT + SignedDuration::from_secs(self.skew.load(Ordering::Relaxed));
        midnight + SignedDuration::try_from(passed).unwrap_or_default()
    }

    fn random(&self) -> u64 {
        self.dice.next()
    }
}

//! One run: producers, workers that die and stand still, operators, readers, on a store that breaks; then all heals,
//! and everything must come right.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use leftfold::fold::Options;
use leftfold::{
    App, AppendError, Backoff, Env, Expected, Leftfold, Log, NewEvent, ReadError, Revision, Token,
};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::dice::Dice;
use crate::faults::{Fault, Faults};
use crate::notes::{Happened, Notes, Seen};
use crate::store::{Gate, SimStore};

/// What became of a seed.
#[derive(Debug)]
pub struct Run {
    pub violations: Vec<String>,
    pub trace: Vec<String>,
    pub met: [u64; Fault::ALL.len()],
    pub reached: Reached,
}

/// What a run got to: properties that sometimes hold, so that a set of seeds which never gets there is seen to test
/// too little.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reached {
    pub events: u64,
    pub conflicts: u64,
    pub parked: u64,
    pub set_aside: u64,
    pub skipped: u64,
    pub retried: u64,
    pub waited_reads: u64,
}

/// Runs a seed, in a world and a time of its own.
pub fn run(seed: u64) -> Result<Run, std::io::Error> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()?;
    Ok(runtime.block_on(async {
        // A timer ends on a whole millisecond of the runtime's life. From here on the clock stands on one, so that no
        // rounding depends on when the runtime was made.
        sleep(Duration::from_millis(1)).await;
        World::new(seed).live().await
    }))
}

struct World {
    dice: Dice,
    store: SimStore,
    notes: [Notes; 2],
    options: Options,
    plain: bool,
    acknowledged: Arc<Mutex<Vec<Token>>>,
    waited_reads: Arc<std::sync::atomic::AtomicU64>,
}

const HURT: Duration = Duration::from_mins(1);
const BOUND: Duration = Duration::from_mins(30);

impl World {
    fn new(seed: u64) -> Self {
        let dice = Dice::new(seed);
        let partitions = if dice.happens(700) { 1 } else { 3 };
        let store = SimStore::new(partitions, dice.happens(500), Faults::drawn(&dice));
        let bytes = |most| usize::try_from(dice.below(most)).unwrap_or(1).max(1);
        let options = Options {
            cache_bytes: bytes(20_000),
            batch_bytes: bytes(20_000),
            batch_time: dice.time(Duration::from_secs(2)),
            page_bytes: bytes(2_000),
            retry: Backoff::default().first(Duration::from_millis(10)).limit(bytes(5)),
            lease: dice.time(Duration::from_secs(10)),
            ..Options::default()
        };
        Self {
            dice,
            store,
            notes: [Notes::new(true), Notes::new(false)],
            options,
            plain: partitions > 1,
            acknowledged: Arc::default(),
            waited_reads: Arc::default(),
        }
    }

    async fn live(self) -> Run {
        if let Err(error) = self.hurt_and_heal().await {
            self.store.shared().checker.violated(format!("I10: {error}"));
        }
        let shared = self.store.shared();
        let mut reached = Reached {
            events: self.store.inner().heads().await.unwrap_or_default().lanes().map(|(_, head)| head).sum(),
            waited_reads: self.waited_reads.load(Ordering::Relaxed),
            ..Reached::default()
        };
        if let Ok(app) = self.app(&self.store, "counting", &self.dice).open().await {
            for status in app.status().await.unwrap_or_default() {
                reached.conflicts += status.tally.conflicts;
                reached.parked += status.tally.parked;
                reached.set_aside += status.tally.set_aside;
                reached.skipped += status.tally.skipped;
                reached.retried += status.tally.retried;
            }
        }
        Run {
            violations: shared.checker.violations(),
            trace: shared.trace.take(),
            met: shared.faults.met(),
            reached,
        }
    }

    fn app(&self, store: &SimStore, name: &str, dice: &Dice) -> Leftfold<SimStore> {
        let env = Clock { dice: dice.split(), skew: AtomicI64::new(0), store: store.clone() };
        let [streams, contents] = self.notes.clone();
        let app = Leftfold::on(store.clone()).env(env).options(self.options.clone());
        app.worker(name).projection(streams).projection(contents)
    }

    async fn hurt_and_heal(&self) -> Result<(), String> {
        let mut tasks = JoinSet::new();
        let (healthy, healed) = watch::channel(false);
        for number in 0..=self.dice.below(3) {
            let app = self
                .app(&self.store, "producer", &self.dice)
                .open()
                .await
                .map_err(|error| error.to_string())?;
            tasks.spawn(produce(
                app,
                self.dice.split(),
                number,
                self.plain,
                Arc::clone(&self.acknowledged),
                healed.clone(),
            ));
        }
        let reader =
            self.app(&self.store, "reader", &self.dice).open().await.map_err(|error| error.to_string())?;
        let waited = Arc::clone(&self.waited_reads);
        tasks.spawn(read(reader, self.dice.split(), Arc::clone(&self.acknowledged), waited, healed.clone()));
        let operator =
            self.app(&self.store, "operator", &self.dice).open().await.map_err(|error| error.to_string())?;
        tasks.spawn(meddle(operator, self.dice.split(), healed.clone()));

        let workers = 1 + self.dice.below(3);
        let working = async {
            let mut alive: Vec<(App<SimStore>, Arc<Gate>)> = Vec::new();
            loop {
                while (alive.len() as u64) < workers {
                    let name = format!("worker-{}", self.dice.below(workers));
                    let store = self.store.worker(&name);
                    if let Ok(app) = self.app(&store, &name, &self.dice).start().await {
                        alive.push((app, Arc::clone(store.gate())));
                    }
                }
                sleep(self.dice.time(Duration::from_secs(4))).await;
                let at = usize::try_from(self.dice.below(alive.len() as u64)).unwrap_or(0);
                let faults = &self.store.shared().faults;
                if faults.strikes(Fault::Crash) {
                    self.store.shared().trace.note(|| "a worker dies".to_owned());
                    alive.swap_remove(at);
                } else if faults.strikes(Fault::Pause) {
                    self.store.shared().trace.note(|| "a worker stands still".to_owned());
                    alive[at].1.close();
                } else {
                    alive[at].1.open();
                }
                if self.dice.happens(20) {
                    self.notes.iter().for_each(Notes::mend);
                }
                if *healed.borrow() {
                    for (_, gate) in &alive {
                        gate.open();
                    }
                    return alive;
                }
            }
        };
        let healing = async {
            sleep(HURT).await;
            self.store.shared().faults.heal();
            self.notes.iter().for_each(Notes::mend);
            self.store.shared().trace.note(|| "all heals".to_owned());
            healthy.send_replace(true);
        };
        let (alive, ()) = tokio::join!(working, healing);
        while tasks.join_next().await.is_some() {}
        // What was under way for long arrives at last.
        sleep(Duration::from_mins(1)).await;

        self.come_right().await?;
        for (app, _) in alive {
            timeout(BOUND, app.stop()).await.map_err(|_| "a worker did not stop".to_owned())?;
        }
        let acknowledged = self.acknowledged.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let checker = &self.store.shared().checker;
        checker.finally(self.store.inner(), &acknowledged).await.map_err(|error| error.to_string())
    }

    /// When nothing goes wrong any more, everything is folded and mended within a bound.
    async fn come_right(&self) -> Result<(), String> {
        let operator =
            self.app(&self.store, "healer", &self.dice).open().await.map_err(|error| error.to_string())?;
        let come_right = async {
            for notes in &self.notes {
                let name = leftfold::Projection::name(notes);
                operator.caught_up().await?;
                for _ in 0..50 {
                    if operator.parked(name, None, 1).await?.is_empty() {
                        break;
                    }
                    operator.retry_all(name, false, |_, _| ()).await?;
                }
                if let Some((unit, parked)) = operator.parked(name, None, 1).await?.pop() {
                    return Ok(Err(format!("{unit:?} of {name} is still parked: {parked}")));
                }
            }
            operator.caught_up().await?;
            Ok::<_, leftfold::Error>(Ok(()))
        };
        match timeout(BOUND, come_right).await {
            Err(_) => Err("not everything was folded in time".to_owned()),
            Ok(Err(error)) => Err(error.to_string()),
            Ok(Ok(answer)) => answer,
        }
    }
}

/// Appends events until all heals, repeating what can't be told.
async fn produce(
    app: App<SimStore>,
    dice: Dice,
    producer: u64,
    plain: bool,
    acknowledged: Arc<Mutex<Vec<Token>>>,
    healed: watch::Receiver<bool>,
) {
    for number in 0..60 {
        sleep(dice.time(Duration::from_secs(2))).await;
        if *healed.borrow() {
            break;
        }
        let stream = format!("s{}", dice.below(5));
        let count = 1 + dice.below(3);
        let events: Result<Vec<NewEvent>, _> = (0..count)
            .map(|at| {
                let id = format!("p{producer}-{number}-{at}");
                let mut event = Happened::any(&dice, &id)?;
                if plain && event.kind.as_str() == "cleared" {
                    event = NewEvent::encode(&Happened::Noted { to: vec!["d0".into()] })?.with_id(&id)?;
                }
                Ok::<_, leftfold::Invalid>(event)
            })
            .collect();
        let Ok(events) = events else { continue };
        let expected =
            if dice.happens(200) { Expected::Revision(Revision(dice.below(20))) } else { Expected::Any };
        for _ in 0..200 {
            match app.append_events(&stream, expected, events.clone()).await {
                Ok(appended) => {
                    let token = appended.into_token();
                    acknowledged.lock().unwrap_or_else(PoisonError::into_inner).push(token);
                    break;
                }
                Err(AppendError::Store(error)) if error.is_transient() => {
                    sleep(dice.time(Duration::from_secs(1))).await;
                }
                Err(_) => break,
            }
        }
    }
}

/// Reads documents that must have one's own write in them.
async fn read(
    app: App<SimStore>,
    dice: Dice,
    acknowledged: Arc<Mutex<Vec<Token>>>,
    waited: Arc<std::sync::atomic::AtomicU64>,
    healed: watch::Receiver<bool>,
) {
    while !*healed.borrow() {
        sleep(dice.time(Duration::from_secs(3))).await;
        let token = {
            let tokens = acknowledged.lock().unwrap_or_else(PoisonError::into_inner);
            dice.pick(&tokens).cloned()
        };
        let Some(token) = token else { continue };
        let store = app.store();
        let checker = &store.shared().checker;
        let own = format!("{}@{}", token.stream, token.revision);
        let answer = app.get_as::<Seen>("by_stream", token.stream.as_str()).at_least(token.clone()).await;
        match answer {
            Ok(seen) => {
                waited.fetch_add(1, Ordering::Relaxed);
                let listed = seen.is_some_and(|seen| seen.events.contains(&own));
                if !listed && checker.must_list(store.inner(), &token).await.unwrap_or(false) {
                    checker.violated(format!("I11: a read at least at {token} did not find it"));
                }
            }
            Err(ReadError::Unknown { .. }) => {
                checker.violated(format!("I11: {token} was acknowledged and is said to be unknown"));
            }
            Err(_) => {}
        }
    }
}

/// Retries and refolds beside the workers.
async fn meddle(app: App<SimStore>, dice: Dice, healed: watch::Receiver<bool>) {
    while !*healed.borrow() {
        sleep(dice.time(Duration::from_secs(3))).await;
        if !app.store().shared().faults.strikes(Fault::Meddling) {
            continue;
        }
        let name = if dice.happens(500) { "by_stream" } else { "by_content" };
        // What it comes to shows in the documents.
        if dice.happens(500) {
            let _ = app.retry_all(name, dice.happens(100), |_, _| ()).await;
        } else {
            let id = format!("{}{}", if name == "by_stream" { "s" } else { "d" }, dice.below(5));
            let _ = app.refold(name, &id).await;
        }
    }
}

/// A clock that jumps, and chance that is the same for the same seed.
struct Clock {
    dice: Dice,
    skew: AtomicI64,
    store: SimStore,
}

impl Env for Clock {
    fn now(&self) -> Timestamp {
        if self.store.shared().faults.strikes(Fault::Clock) {
            let hours = i64::try_from(self.dice.below(20)).unwrap_or(0) - 10;
            self.skew.store(hours * 3_600, Ordering::Relaxed);
        }
        Timestamp::from_second(1_767_225_600 + self.skew.load(Ordering::Relaxed)).unwrap_or_default()
    }

    fn random(&self) -> u64 {
        self.dice.next()
    }
}

//! One run, on a store with faults: producers, workers that die and pause, operators and readers.
//! Then the faults end, and the state must become correct.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use leftfold::fold::FoldOptions;
use leftfold::sequence::HoldingLimits;
use leftfold::{
    App, Backoff, Collection, Documents as _, Error, Expected, Kind, Leftfold, Log, NewEvent, Result,
};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use crate::actors::{Clock, Producer, Told, meddle, read, read_own, rebuild};
use crate::contents;
use crate::contents::ledger::SOMETIMES as OF_CONTENTS;
use crate::dice::Dice;
use crate::faults::{Fault, Faults};
use crate::feed::{Ingester, SimulatedFeed};
use crate::notes::{BY_CONTENT, BY_STREAM, Happened, Mixture, Notes};
use crate::reactions;
use crate::reactions::ledger::SOMETIMES as OF_REACTIONS;
use crate::store::{LATE, SimStore};

/// The result of a run.
#[derive(Debug)]
pub struct WorldRun {
    /// The violations.
    pub violations: Vec<String>,
    /// The trace, if it was requested.
    pub trace: Vec<String>,
    /// The number of times each fault occurred.
    pub met: [u64; Fault::ALL.len()],
    /// The number of appended events.
    pub events: u64,
    /// The number of times each of [`SOMETIMES`] happened.
    pub sometimes: [u64; SOMETIMES.len()],
}

/// Things that happen in some runs. A set of seeds in which one of these never happens tests too
/// little.
pub const SOMETIMES: [&str; BEFORE_CONTENTS + OF_CONTENTS.len()] = {
    let (mut all, mut at) = ([""; BEFORE_CONTENTS + OF_CONTENTS.len()], 0);
    while at < all.len() {
        all[at] = if at < OF_EVENTS.len() {
            OF_EVENTS[at]
        } else if at < BEFORE_CONTENTS {
            OF_REACTIONS[at - OF_EVENTS.len()]
        } else {
            OF_CONTENTS[at - BEFORE_CONTENTS]
        };
        at += 1;
    }
    all
};

/// The index of the first entry about documents without events.
const BEFORE_CONTENTS: usize = OF_EVENTS.len() + OF_REACTIONS.len();

const OF_EVENTS: [&str; 16] = [
    "conflicts",
    "documents or streams parked",
    "events set aside",
    "events skipped as folded before",
    "folds tried again",
    "appends refused",
    "reads that waited",
    "reads that met something parked",
    "deliveries held",
    "held events released",
    "missing events healed",
    "deliveries that were there already",
    "deliveries that contradict",
    "deliveries without room",
    "rebuilds switched to",
    "rebuilds undone",
];

/// Runs a seed in two worlds, each with its own time. The first has events and documents. The
/// second has reactions for even seeds, and documents without events for odd ones.
pub fn run(seed: u64, trace: bool) -> Result<WorldRun, std::io::Error> {
    let mut run = in_own_time(async move { World::drawn(seed, trace).live().await })?;
    let store = in_own_time(async move {
        if seed.is_multiple_of(2) {
            let world = reactions::World::drawn(seed, trace);
            world.live().await;
            world.store
        } else {
            let world = contents::World::drawn(seed, trace);
            world.live().await;
            world.store
        }
    })?;
    let shared = store.shared();
    run.violations.extend(shared.checker.violations());
    run.trace.extend(shared.trace.take());
    run.met.iter_mut().zip(shared.faults.met()).for_each(|(sum, met)| *sum += met);
    run.sometimes[OF_EVENTS.len()..BEFORE_CONTENTS].copy_from_slice(&shared.ledger.sometimes());
    run.sometimes[BEFORE_CONTENTS..].copy_from_slice(&shared.contents.sometimes());
    Ok(run)
}

/// Runs work in its own time, which advances only when all tasks wait.
pub(crate) fn in_own_time<T>(work: impl Future<Output = T>) -> Result<T, std::io::Error> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()?;
    Ok(runtime.block_on(async {
        // Timers end on a whole millisecond of the runtime's life. Align the clock with one, so
        // that rounding does not depend on when the runtime was created.
        sleep(Duration::from_millis(1)).await;
        work.await
    }))
}

/// A store, the code that runs on it, and its configuration.
pub(crate) struct World {
    pub(crate) dice: Dice,
    pub(crate) store: SimStore,
    pub(crate) notes: [Notes; 2],
    /// The code before any fix.
    old: [Notes; 2],
    pub(crate) options: FoldOptions,
    mixture: Mixture,
    /// `true` if all workers run at once, with new and old code.
    crowded: bool,
    pub(crate) told: Arc<Told>,
}

const HURT: Duration = Duration::from_secs(25);
const BOUND: Duration = Duration::from_mins(5);

impl World {
    fn drawn(seed: u64, trace: bool) -> Self {
        let dice = Dice::new(seed);
        let partitions = if dice.happens(700) { 1 } else { 3 };
        let (mut faults, mut mixture) = (Faults::drawn(&dice), Mixture::drawn(&dice));
        // Some worlds are crowded: no lease holds, no commit is atomic, and old code runs beside
        // new code.
        let crowded = dice.happens(200);
        if crowded {
            faults = faults.with(&[(Fault::Lease, 1_000), (Fault::Halfway, 50), (Fault::Meddling, 500)]);
            mixture = mixture.garbled();
        }
        let store = SimStore::new(partitions, !crowded && dice.happens(500), faults, trace);
        let bytes = |most| usize::try_from(dice.below(most)).unwrap_or(1).max(1);
        let options = FoldOptions {
            cache_bytes: bytes(20_000),
            batch_bytes: bytes(20_000),
            batch_time: dice.time(Duration::from_secs(2)),
            page_bytes: bytes(2_000),
            retry: Backoff::default().first(Duration::from_millis(10)).limit(bytes(5)),
            lease: Duration::from_millis(800) + dice.time(Duration::from_secs(7)),
            ..FoldOptions::default()
        };
        Self { mixture, crowded, ..Self::new(dice, store, options) }
    }

    pub(crate) fn new(dice: Dice, store: SimStore, options: FoldOptions) -> Self {
        let (notes, mixture) = ([Notes::new(true), Notes::new(false)], Mixture::default());
        let old = notes.each_ref().map(Notes::as_it_is);
        Self { dice, store, notes, old, options, mixture, crowded: false, told: Arc::default() }
    }

    /// Returns an application of this world, for a store handle and a worker name.
    pub(crate) fn app(&self, store: &SimStore, name: &str) -> Leftfold<SimStore> {
        self.app_with(self.notes.clone(), store, name)
    }

    fn app_with(&self, notes: [Notes; 2], store: &SimStore, name: &str) -> Leftfold<SimStore> {
        let [streams, contents] = notes;
        let app = Leftfold::on(store.clone()).env(Clock::new(self.dice.split(), store.clone()));
        app.options(self.options.clone()).worker(name).projection(streams).projection(contents)
    }

    /// Opens an application for reads and operations only, and retries until that works.
    async fn open(&self, name: &str) -> App<SimStore> {
        loop {
            match self.app(&self.store, name).open().await {
                Ok(app) => return app,
                Err(_) => sleep(Duration::from_millis(100)).await,
            }
        }
    }

    async fn live(self) -> WorldRun {
        if let Err(error) = self.hurt_and_heal().await {
            self.store.shared().checker.violated(format!("I10: {error}"));
        }
        self.end().await
    }

    async fn hurt_and_heal(&self) -> Result<()> {
        let (healthy, healed) = watch::channel(false);
        let clears = self.store.partitions() == 1;
        let mut clients = JoinSet::new();
        for number in 0..=self.dice.below(3) {
            let (app, dice) = (self.open("producer").await, self.dice.split());
            let mixture = self.mixture;
            let producer = Producer { app, dice, number, mixture, clears, told: Arc::clone(&self.told) };
            clients.spawn(producer.produce(healed.clone()));
        }
        let reader = self.open("reader").await;
        clients.spawn(read(reader, self.dice.split(), Arc::clone(&self.told), healed.clone()));
        let operator = self.open("operator").await;
        clients.spawn(meddle(operator, self.dice.split(), healed.clone()));
        let rebuilder = self.open("rebuilder").await;
        clients.spawn(rebuild(rebuilder, self.dice.split(), Arc::clone(&self.told), healed.clone()));

        let mut ingesters = JoinSet::new();
        if self.dice.happens(500) {
            self.feed(&healed, &mut clients, &mut ingesters);
        }
        let healing = async {
            sleep(HURT).await;
            self.store.shared().faults.heal();
            self.mend();
            self.store.shared().trace.note(|| "all heals".to_owned());
            healthy.send_replace(true);
        };
        let (workers, ()) = tokio::join!(self.keep_workers(healed.clone()), healing);
        while clients.join_next().await.is_some() {}
        // Wait for delayed writes.
        sleep(LATE).await;
        let ingested = async {
            while let Some(ended) = ingesters.join_next().await {
                ended.map_err(|_| late("who ingests panicked"))??;
            }
            Ok::<_, Error>(())
        };
        timeout(BOUND, ingested).await.map_err(|_| late("not all that was brought is in the log"))??;
        self.come_right().await?;
        for worker in workers {
            timeout(BOUND, worker.stop()).await.map_err(|_| late("a worker did not stop"))?;
        }
        self.check().await
    }

    /// Starts a feed and some ingesters.
    fn feed(
        &self,
        healed: &watch::Receiver<bool>,
        clients: &mut JoinSet<()>,
        ingesters: &mut JoinSet<Result<()>>,
    ) {
        let (dice, store) = (&self.dice, &self.store);
        let limits = HoldingLimits {
            stream_events: 2 + dice.below(6),
            events: (2 + dice.below(10)) * u64::from(store.partitions()),
            ..HoldingLimits::default()
        };
        *store.shared().feed.limits.lock().unwrap_or_else(PoisonError::into_inner) = Some(limits);
        clients.spawn(SimulatedFeed::publish(store.clone(), dice.split(), healed.clone()));
        for number in 0..=dice.below(3) {
            let ingester =
                Ingester { store: store.clone(), name: format!("ingester-{number}"), dice: dice.split() };
            ingesters.spawn(ingester.run(healed.clone()));
        }
    }

    /// Starts, stops, pauses and replaces workers until the faults end. Each worker runs the code
    /// of its start: a deployment affects only workers that start later.
    async fn keep_workers(&self, healed: watch::Receiver<bool>) -> Vec<App<SimStore>> {
        let deployment = self.dice.happens(800).then(|| Instant::now() + self.dice.time(HURT));
        let deployment = if self.crowded { Some(Instant::now()) } else { deployment };
        let mut codes = Vec::new();
        let (shared, count) = (self.store.shared(), 1 + self.dice.below(3));
        let mut alive: Vec<App<SimStore>> = Vec::new();
        loop {
            if deployment.is_some_and(|at| at <= Instant::now()) {
                self.mend();
            }
            alive.retain(|worker| !worker.store().fuse().is_blown());
            while (alive.len() as u64) < count {
                let name = format!("worker-{}", self.dice.below(count));
                let old = self.crowded && self.dice.happens(500);
                let code = if old { &self.old } else { &self.notes };
                let code = code.each_ref().map(Notes::as_it_is);
                let worker = self.app_with(code.clone(), &self.store.worker(&name), &name);
                if let Ok(worker) = worker.start().await {
                    alive.push(worker);
                    codes.extend(code);
                }
            }
            sleep(self.dice.time(Duration::from_secs(3))).await;
            if *healed.borrow() {
                codes.iter().for_each(Notes::mend);
                for worker in &alive {
                    worker.store().gate().open();
                    worker.store().fuse().put_out();
                }
                alive.retain(|worker| !worker.store().fuse().is_blown());
                if !alive.is_empty() {
                    return alive;
                }
                continue;
            }
            let Some(worker) = self.dice.pick(&alive) else { continue };
            if shared.faults.strikes(Fault::Crash) {
                let polls = self.dice.below(40);
                shared.trace.note(|| format!("{} dies after {polls} steps", worker.store().name));
                worker.store().fuse().light(polls);
            } else if shared.faults.strikes(Fault::Pause) {
                shared.trace.note(|| format!("{} stands still", worker.store().name));
                worker.store().gate().close();
            } else {
                worker.store().gate().open();
            }
        }
    }

    /// Fixes the code: workers that start from now on can decode and fold everything.
    pub(crate) fn mend(&self) {
        self.notes.iter().for_each(Notes::mend);
    }

    /// Checks that without faults everything is folded and repaired within a time limit, and works.
    pub(crate) async fn come_right(&self) -> Result<()> {
        let operator = self.open("healer").await;
        let come_right = async {
            // The workers complete a switch that has begun.
            for name in [BY_STREAM, BY_CONTENT] {
                let collection = Collection::new(name)?;
                while operator.store().generations(&collection).await?.switching.is_some() {
                    sleep(Duration::from_millis(50)).await;
                }
            }
            operator.caught_up().await?;
            for name in [BY_STREAM, BY_CONTENT] {
                for _ in 0..50 {
                    if operator.parked(name, None, 1).await?.is_empty() {
                        break;
                    }
                    operator.retry_all(name, false, |_, _| ()).await?;
                }
            }
            let last = NewEvent::encode(&Happened::Noted { to: vec!["d0".into()] })?.with_id("last")?;
            let bookmark = operator
                .append_events("s0", Expected::Any, vec![last])
                .await
                .map_err(|error| Error::new(Kind::Store, format!("the last append: {error}")))?
                .into_bookmark();
            for document in ["s0", "d0"] {
                read_own(&operator, document, bookmark.clone(), &self.told).await;
            }
            self.told.acknowledged().push(bookmark);
            operator.caught_up().await
        };
        timeout(BOUND, come_right).await.unwrap_or_else(|_| Err(late("not everything was folded in time")))
    }

    /// Checks the final state.
    pub(crate) async fn check(&self) -> Result<()> {
        let acknowledged = self.told.acknowledged().clone();
        self.store.shared().feed.finally(&self.store).await?;
        self.store.shared().checker.finally(self.store.inner(), &acknowledged).await
    }

    /// Returns the result of the run.
    pub(crate) async fn end(&self) -> WorldRun {
        let shared = self.store.shared();
        let (mut conflicts, mut parked, mut set_aside, mut skipped, mut retried) = (0, 0, 0, 0, 0);
        if let Ok(app) = self.app(&self.store, "counting").open().await {
            for status in app.status().await.unwrap_or_default() {
                conflicts += status.tally.conflicts;
                parked += status.tally.parked;
                set_aside += status.tally.set_aside;
                skipped += status.tally.skipped;
                retried += status.tally.retried;
            }
        }
        let told = &self.told;
        let [refused, waited, met_parked, switched, undone] =
            [&told.refused, &told.waited_reads, &told.parked_reads, &told.switched, &told.undone]
                .map(|count| count.load(Ordering::Relaxed));
        let tally = &shared.feed.tally;
        let [held, released, healed, duplicates, disputed, full] = [
            &tally.held,
            &tally.released,
            &tally.healed,
            &tally.duplicates,
            &tally.conflicts,
            &tally.refused,
        ]
        .map(|count| count.load(Ordering::Relaxed));
        let mut sometimes = [0; SOMETIMES.len()];
        sometimes[..OF_EVENTS.len()].copy_from_slice(&[
            conflicts, parked, set_aside, skipped, retried, refused, waited, met_parked, held, released,
            healed, duplicates, disputed, full, switched, undone,
        ]);
        WorldRun {
            violations: shared.checker.violations(),
            trace: shared.trace.take(),
            met: shared.faults.met(),
            events: self.store.inner().heads().await.unwrap_or_default().lanes().map(|(_, head)| head).sum(),
            sometimes,
        }
    }
}

fn late(what: &str) -> Error {
    Error::new(Kind::Store, what)
}

//! One round: processes work on a new store while some are killed and stopped. Then the faults end,
//! the fixed code starts, and the state must become correct.

use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use indicatif::ProgressBar;
use leftfold::react::{Query, State};
use leftfold::{App, Sequencer};
use leftfold_sim::dice::Dice;
use leftfold_sim::notes::{BY_CONTENT, BY_STREAM};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::args::{Process, Rig};
use crate::attack::Attacker;
use crate::crew::{Code, Crew, pause};
use crate::failure::Failure;
use crate::feeder;
use crate::plan::Attack;
use crate::process;
use crate::react;
use crate::react::{ItemWriter, MAX_RETRY_DELAY, Reports};
use crate::role::Role;
use crate::store::{Environment as _, TestedStore, patiently};
use crate::tally::Tally;
use crate::watch::Watcher;

const PRODUCERS: u64 = 2;
const FEEDERS: u64 = 2;
const REACTORS: [(Role, u64); 3] = [(Role::Planner, 1), (Role::Runner, 1), (Role::Reactor, 2)];
/// The time limit for folding and repairing everything after the faults have ended.
const TIME_LIMIT: Duration = Duration::from_mins(2);

/// Runs a round in its own directory.
pub(crate) async fn run<S: TestedStore>(
    rig: &Rig,
    environment: &S::Environment,
    directory: &Path,
    attacks: &[Attack],
    dice: &Dice,
    tally: &mut Tally,
    bar: &ProgressBar,
) -> Result<(), Failure> {
    let place = environment.place(directory);
    let args = Process {
        store: rig.store,
        place: place.clone(),
        directory: directory.to_owned(),
        name: "checker".to_owned(),
        seed: dice.next(),
        from: 0,
        fixed: true,
    };
    let app = patiently::<S, _, _>(|| async { process::app::<S>(&args).await?.open().await }).await?;
    let watcher = Arc::new(Watcher::default());
    let item_writer = Arc::new(ItemWriter::default());
    patiently::<S, _, _>(|| app.store().create_tables()).await?;
    // The watcher lists tasks from the start.
    patiently::<S, _, _>(|| app.store().prepare_reactions(&[])).await?;
    let mut crew =
        Crew::new(rig.store, place, directory.to_owned(), dice.next(), Arc::clone(&watcher.ledger))?;
    let falls = tally.falls.len();
    let mut watchers = JoinSet::new();
    let (one, store, copies) = (Arc::clone(&watcher), app.store().clone(), directory.to_owned());
    watchers.spawn(async move { one.check_snapshots(store, copies).await });
    let (one, store) = (Arc::clone(&watcher), app.store().clone());
    watchers.spawn(async move { one.follow_checkpoints(store).await });
    let (one, reader, own_dice) = (Arc::clone(&watcher), app.clone(), dice.split());
    watchers.spawn(async move { one.read(reader, own_dice).await });
    let (one, store) = (Arc::clone(&watcher), app.store().clone());
    watchers.spawn(async move { one.follow_failures(store).await });
    let (items, store, own_dice) = (Arc::clone(&item_writer), app.store().clone(), dice.split());
    let mut writing = JoinSet::new();
    writing.spawn(async move { items.write(store, own_dice).await });

    tokio::select! { biased;
        seen = ended(&mut watchers) => seen?,
        done = async {
            crew.start(Role::Worker, rig.workers, Code::Any).await?;
            crew.start(Role::Producer, PRODUCERS, Code::Any).await?;
            crew.start(Role::Feeder, FEEDERS, Code::Any).await?;
            crew.start(Role::Operator, 1, Code::Fixed).await?;
            for (role, count) in REACTORS {
                crew.start(role, count, Code::Any).await?;
            }
            let control = (dice, &mut *tally, bar);
            Attacker::new(environment, app.store(), &mut crew, &item_writer, control).run(attacks).await?;
            environment.settle().await?;
            item_writer.end();
            ended(&mut writing).await?;
            fold_all(&app, &watcher, &mut crew, rig.workers, tally).await?;
            react_to_all(&app, directory, &mut crew).await
        } => done?,
    }
    watcher.end();
    while !watchers.is_empty() {
        ended(&mut watchers).await?;
    }
    check(&app, &watcher, tally).await?;
    let reports = Reports { falls: &tally.falls[falls..], given_up: crew.ended_counts().failed };
    let done = react::check(app.store(), directory, &item_writer.all(), &reports).await?;
    tally.reacted(&done, crew.ended_counts(), item_writer.all().count);
    if !done.wrong.is_empty() {
        return Err(Failure::Violated(done.wrong));
    }
    let store = app.store().clone();
    drop(app);
    store.shut().await;
    Ok(())
}

/// Waits until one of the watchers ends.
async fn ended(watchers: &mut JoinSet<Result<(), Failure>>) -> Result<(), Failure> {
    match watchers.join_next().await {
        Some(Ok(seen)) => seen,
        Some(Err(error)) => Err(Failure::rig("watching the store", error)),
        None => Ok(()),
    }
}

/// Ends all faults and starts the fixed code. Everything must then be folded, and everything parked
/// must be repaired, within the time limit.
async fn fold_all<S: TestedStore>(
    app: &App<S>,
    watcher: &Watcher,
    crew: &mut Crew,
    workers: u64,
    tally: &mut Tally,
) -> Result<(), Failure> {
    for role in [Role::Operator, Role::Producer, Role::Feeder, Role::Worker] {
        crew.end(role).await?;
    }
    let fed = watcher.ledger.lock().unwrap_or_else(PoisonError::into_inner).fed;
    let (delivered, wrong) = feeder::finish(app.store(), crew.seed(), fed).await?;
    tally.delivered += delivered;
    if !wrong.is_empty() {
        return Err(Failure::Violated(wrong));
    }
    crew.start(Role::Worker, workers, Code::Fixed).await?;
    let repairing = async {
        tokio::select! { biased;
            repaired = repair_all(app) => repaired,
            failure = trouble(crew) => Err(failure),
        }
    };
    match timeout(TIME_LIMIT, repairing).await {
        Ok(repaired) => repaired?,
        Err(_) => return Err(Failure::Violated(unfinished(app).await?)),
    }
    crew.end(Role::Worker).await
}

/// Replaces all planners and runners. All reactions must then be done within the time limit.
async fn react_to_all<S: TestedStore>(
    app: &App<S>,
    directory: &Path,
    crew: &mut Crew,
) -> Result<(), Failure> {
    for (role, _) in REACTORS {
        crew.end(role).await?;
    }
    for (role, count) in REACTORS {
        crew.start(role, count, Code::Any).await?;
    }
    let onlooker = patiently::<S, _, _>(|| react::onlooker(app.store(), directory)).await?;
    let settling = async {
        tokio::select! { biased;
            idle = onlooker.idle_within(MAX_RETRY_DELAY) => Ok(idle?),
            failure = trouble(crew) => Err(failure),
        }
    };
    let Ok(settled) = timeout(TIME_LIMIT, settling).await else {
        let states = vec![State::Pending, State::Running, State::Changed];
        let open = onlooker.tasks(Query { states, ..Query::default() }, None, 10).await?;
        let wrong = format!("I10: tasks are open after {TIME_LIMIT:?}: {open:?}");
        return Err(Failure::Violated(vec![wrong]));
    };
    settled?;
    onlooker.stop(Duration::ZERO).await;
    for (role, _) in REACTORS {
        crew.end(role).await?;
    }
    Ok(())
}

/// Retries until nothing is parked. A fold that fails at first does so again in each process. So a
/// document that is folded from its first event takes at least as many retries as it has such
/// events.
async fn repair_all<S: TestedStore>(app: &App<S>) -> Result<(), Failure> {
    for name in [BY_STREAM, BY_CONTENT] {
        app.caught_up().await?;
        while !app.parked(name, None, 1).await?.is_empty() {
            app.retry_all(name, false, |_, _| ()).await?;
        }
    }
    Ok(app.caught_up().await?)
}

/// Returns everything that is not folded or repaired within the time limit.
async fn unfinished<S: TestedStore>(app: &App<S>) -> Result<Vec<String>, Failure> {
    let mut wrong = vec![format!("I10: not everything was folded and repaired in {TIME_LIMIT:?}")];
    for status in app.status().await? {
        wrong.push(format!("I10: {} is {} events behind", status.projection, status.lag));
        for (unit, parked) in app.parked(&status.projection, None, 10).await? {
            wrong.push(format!("I10: {unit:?} of {} is parked: {parked}", status.projection));
        }
    }
    Ok(wrong)
}

/// Returns the failure when a process ends by itself.
async fn trouble(crew: &mut Crew) -> Failure {
    loop {
        if let Err(failure) = crew.tend().await {
            return failure;
        }
        pause().await;
    }
}

/// Checks everything after all activity has ended, and counts the results.
async fn check<S: TestedStore>(app: &App<S>, watcher: &Watcher, tally: &mut Tally) -> Result<(), Failure> {
    let store = app.store();
    let ledger = std::mem::take(&mut *watcher.ledger.lock().unwrap_or_else(PoisonError::into_inner));
    watcher.checker.check_end(store, &ledger.bookmarks()).await?;
    for wrong in ledger.check(store).await? {
        watcher.checker.violated(wrong);
    }
    if let Some(damage) = store.damage().await? {
        watcher.checker.violated(format!("the store is damaged: {damage}"));
    }
    let counts = Sequencer::new(store.clone()).status().await?.counts;
    tally.held += counts.held;
    tally.delivered_again += counts.duplicates;
    tally.events += store.heads().await?.lanes().map(|(_, head)| head).sum::<u64>();
    tally.appends += ledger.bookmarks().len() as u64;
    tally.appends_repeated += ledger.repeated;
    tally.snapshots += watcher.snapshots.load(Ordering::Relaxed);
    let stall = Duration::from_millis(watcher.longest_stall_millis.load(Ordering::Relaxed));
    tally.longest_stall = tally.longest_stall.max(stall.as_secs_f64());
    tally.reads += watcher.reads.load(Ordering::Relaxed);
    for status in app.status().await? {
        tally.conflicts += status.tally.conflicts;
        tally.parked += status.tally.parked;
        tally.set_aside += status.tally.set_aside;
        tally.retried += status.tally.retried;
        tally.skipped += status.tally.skipped;
    }
    watcher.violation()
}

//! Running: the runner claims due tasks, handles them and finishes them, many at a time.
//!
//! A claim is a change of the task that only one worker can make. That worker runs the handler and
//! finishes the task if the claim still stands. If others have taken the claim over, the handler is
//! cancelled, and its outcome is ignored.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use tracing::Instrument as _;

use crate::error::Result;
use crate::react::define::Definition;
use crate::react::handler::Inner;
use crate::react::plan::events;
use crate::react::reactor::shared::{Hand, Shared};
use crate::react::run::claim::{claim, give_back, parole, renew_all};
use crate::react::run::finish::{FINISH, Finished, finish_all};
use crate::react::run::heartbeat;
use crate::react::run::loader::Loader;
use crate::react::run::quarantine::{Quarantine, Step};
use crate::react::store::ReactionStore;
use crate::react::task::{RunOutcome, Suspicion, Task};

/// The longest wait before looking again for due tasks.
const LOOK_EVERY: Duration = Duration::from_secs(15);
/// The time to wait for more free slots when few are left.
const GATHER: Duration = Duration::from_millis(2);

/// Claims and runs tasks until the stop signal; then waits for handlers until the deadline, and
/// gives back the remaining claims.
pub(crate) async fn run<S: ReactionStore>(
    shared: Arc<Shared<S>>,
    mut stop: watch::Receiver<Option<Instant>>,
) {
    let loader = Loader::on(shared.store.clone());
    let (finish, finished) = mpsc::channel(FINISH);
    // These tasks end with this function, however it ends: claims of a dead runner must not be
    // renewed.
    let mut helpers = JoinSet::new();
    helpers.spawn(finish_all(Arc::clone(&shared), finished));
    let renewer = helpers.spawn(renew_all(Arc::clone(&shared)));
    let beater = helpers.spawn(heartbeat::keep(Arc::clone(&shared)));
    let all = shared.runs.iter().map(|definition| definition.concurrency).fold(0, usize::saturating_add);
    let room = shared.concurrency.min(all);
    let mut handlers = JoinSet::new();
    let mut quarantine = Quarantine::default();
    let mut pauses = shared.pauses();
    let mut stirs = u64::MAX;
    loop {
        while handlers.try_join_next().is_some() {}
        if stop.borrow().is_some() {
            break;
        }
        // Waiting for runs that are about to end pays off: many claims cost as much as one.
        if shared.running.active() * 4 > room * 3 {
            sleep(GATHER).await;
        }
        let handle = |definition, task| {
            handlers.spawn(handle(Arc::clone(&shared), definition, task, loader.clone(), finish.clone()));
        };
        let wait = match step(&shared, &mut quarantine, handle).await {
            Ok(wait) => {
                pauses = shared.pauses();
                wait.min(LOOK_EVERY)
            }
            Err(error) => {
                shared.failed(&error, "claiming tasks");
                let pause = pauses.next().unwrap_or(LOOK_EVERY);
                let _ = timeout(pause, told(&mut stop)).await;
                continue;
            }
        };
        if wait.is_zero() {
            tokio::task::yield_now().await;
            continue;
        }
        let freed = shared.running.freed.notified();
        tokio::select! { biased;
            () = told(&mut stop) => {}
            () = freed => {}
            stirred = shared.store.woken(stirs, wait) => match stirred {
                Ok(number) => stirs = number,
                Err(error) => {
                    shared.failed(&error, "waiting for tasks");
                    sleep(Duration::from_millis(500)).await;
                }
            },
        }
    }
    let deadline = stop.borrow().unwrap_or_else(Instant::now);
    let all = async { while handlers.join_next().await.is_some() {} };
    let _ = tokio::time::timeout_at(deadline, all).await;
    handlers.shutdown().await;
    drop(finish);
    renewer.abort();
    beater.abort();
    while helpers.join_next().await.is_some() {}
    give_back(&shared).await;
    heartbeat::end(&shared).await;
}

/// Takes the next step: claims tasks and has them handled, or begins or ends a turn of suspects.
/// Returns the time to wait before the next step.
async fn step<S: ReactionStore>(
    shared: &Shared<S>,
    quarantine: &mut Quarantine,
    mut handle: impl FnMut(Arc<Definition>, Task),
) -> Result<Duration> {
    let now = Instant::now();
    let (level, most) = match quarantine.step(shared.running.count(), now) {
        Step::Claim(level, most) => (level, most),
        Step::WaitUntil(time) => return Ok(time.saturating_duration_since(now)),
        Step::Parole => {
            heartbeat::leave_seat(shared).await;
            parole(shared).await?;
            return Ok(Duration::ZERO);
        }
        Step::Leave => {
            heartbeat::leave_seat(shared).await;
            return Ok(Duration::ZERO);
        }
    };
    let claimed = claim(shared, level, most).await?;
    let is_any = !claimed.tasks.is_empty();
    for (definition, task) in claimed.tasks {
        handle(definition, task);
    }
    if level != Suspicion::None {
        if !is_any {
            quarantine.end_turn();
            // Other workers may have claimed them, or have used up all the room for suspects.
            quarantine.finds_no_room(now);
        }
        return Ok(Duration::ZERO);
    }
    let next = if is_any { Duration::ZERO } else { claimed.next.unwrap_or(LOOK_EVERY) };
    let Some((level, due_in)) = claimed.suspects else { return Ok(next) };
    let is_idle = shared.running.count() == 0;
    let wait = due_in.max(quarantine.wait(now, is_idle));
    if !wait.is_zero() {
        return Ok(next.min(wait));
    }
    if heartbeat::take_seat(shared).await? {
        quarantine.begin(level, now);
        return Ok(Duration::ZERO);
    }
    quarantine.finds_no_room(now);
    Ok(next.min(quarantine.wait(now, is_idle)))
}

/// Waits for the stop signal.
async fn told(stop: &mut watch::Receiver<Option<Instant>>) {
    // An error means that the sender is gone, which also means to stop.
    let _ = stop.wait_for(Option::is_some).await;
}

async fn handle<S: ReactionStore>(
    shared: Arc<Shared<S>>,
    definition: Arc<Definition>,
    task: Task,
    loader: Loader,
    finish: mpsc::Sender<Finished>,
) {
    let (key, epoch) = (task.key.clone(), task.epoch);
    let event = match events::next(&shared.store, &definition, &task).await {
        Ok(event) => event,
        Err(error) => {
            let outcome = RunOutcome::Failed(error.to_string());
            let (completes, unseen, took) = (false, false, Duration::ZERO);
            let finished = Finished { key, epoch, outcome, completes, unseen, took };
            let _ = finish.send(finished).await;
            return;
        }
    };
    let revision = event.as_ref().map(|event| event.revision.0);
    let cancelled = {
        let runs = shared.running.runs();
        // If another run has replaced this one, the claim was lost before the run began.
        runs.get(&key).filter(|held| held.task.epoch == epoch).map(|held| held.cancel.subscribe())
    };
    let Some(cancelled) = cancelled else { return };
    let inner = Arc::new(Inner {
        definition: Arc::clone(&definition),
        task,
        loader,
        hands: Arc::new(Hand(Arc::clone(&shared))),
        cancelled: cancelled.clone(),
        owner: shared.owner.clone(),
        stale: AtomicBool::new(false),
        current: AtomicBool::new(false),
        completes: AtomicBool::new(false),
        deferred: Mutex::default(),
        throttles: AtomicBool::new(false),
        event,
    });
    let begun = Instant::now();
    // A handler that panics or is aborted has failed.
    let mut running = JoinSet::new();
    let span = tracing::info_span!(
        "task",
        reaction = key.reaction,
        document = %key.document,
        epoch,
        attempt = inner.task.attempts,
    );
    tracing::debug!(parent: &span, "begun");
    running.spawn(definition.handle(Arc::clone(&inner)).instrument(span.clone()));
    let mut lost = cancelled;
    let said = tokio::select! { biased;
        said = running.join_next() => said,
        () = async { let _ = lost.wait_for(|lost| *lost).await; } => None,
    };
    let Some(said) = said else {
        // Others have the claim. The handler was notified, and is aborted here. Until it has ended,
        // it may still have effects.
        tracing::warn!(parent: &span, "others have taken it over; its handler is ended");
        running.shutdown().await;
        shared.running.lose(&key, epoch);
        shared.count(|counts| counts.lost += 1);
        return;
    };
    let outcome = match said {
        Ok(_) if inner.stale.load(Ordering::Relaxed) => RunOutcome::Stale,
        Ok(Ok(())) => inner.takes_deferred().map_or_else(|| done(revision), RunOutcome::Deferred),
        Ok(Err(error)) => RunOutcome::Failed(error.to_string()),
        Err(error) if error.is_panic() => RunOutcome::Failed(panicked(error)),
        Err(error) => RunOutcome::Failed(format!("the handler was ended: {error}")),
    };
    if inner.throttles.load(Ordering::Relaxed) {
        shared.count(|counts| counts.throttled += 1);
    }
    let took = begun.elapsed();
    match &outcome {
        RunOutcome::Failed(error) => tracing::warn!(parent: &span, ?took, error, "failed"),
        outcome => tracing::debug!(parent: &span, ?took, ?outcome, "ended"),
    }
    let completes = inner.completes.load(Ordering::Relaxed);
    let unseen = definition.on.is_some() && !inner.current.load(Ordering::Relaxed);
    shared.running.ends(&key, epoch);
    let finished = Finished { key, epoch, outcome, completes, unseen, took };
    // The receiver lives for as long as handlers run.
    let _ = finish.send(finished).await;
}

/// Returns the outcome of a success: an event was handled, or a document.
fn done(revision: Option<u64>) -> RunOutcome {
    revision.map_or(RunOutcome::Done, RunOutcome::Handled)
}

fn panicked(error: tokio::task::JoinError) -> String {
    let panic = error.into_panic();
    let said = panic.downcast_ref::<&str>().map(ToString::to_string);
    let said = said.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
    format!("the handler panicked: {said}")
}

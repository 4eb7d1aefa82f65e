//! Running: the runner claims due tasks, handles them and finishes them, many at a time.
//!
//! A claim is a change of the task that only one worker can make. That worker runs the handler and
//! finishes the task if the claim still stands. If another worker has taken the claim over, the
//! handler is cancelled, and its outcome is ignored.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use super::acquit::parole;
use super::claim::claim;
use super::finish::{FINISH, finish_all};
use super::handle::handle;
use super::heartbeat;
use super::loader::Loader;
use super::quarantine::{Quarantine, Step};
use super::renew::{give_back, renew_all};
use crate::error::Result;
use crate::react::define::Definition;
use crate::react::reactor::Shared;
use crate::react::store::ReactionStore;
use crate::react::task::{Suspicion, Task};

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
    let mut wakes = u64::MAX;
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
                let _ = timeout(pause, stopped(&mut stop)).await;
                continue;
            }
        };
        if wait.is_zero() {
            tokio::task::yield_now().await;
            continue;
        }
        let freed = shared.running.freed.notified();
        tokio::select! { biased;
            () = stopped(&mut stop) => {}
            () = freed => {}
            woken = shared.store.woken(wakes, wait) => match woken {
                Ok(number) => wakes = number,
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
async fn stopped(stop: &mut watch::Receiver<Option<Instant>>) {
    // An error means that the sender is gone, which also means to stop.
    let _ = stop.wait_for(Option::is_some).await;
}

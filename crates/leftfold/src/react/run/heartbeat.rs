//! The heartbeat of a worker: while it has claims, it periodically reports that it is alive.
//! Another worker that finds one of its claims lost can then tell whether its process has died.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use crate::error::Result;
use crate::react::reactor::Shared;
use crate::react::store::ReactionStore;

/// The maximum time for which a heartbeat is valid.
const MAX_LENGTH: Duration = Duration::from_secs(3);

/// The heartbeat of a worker, as the worker knows it.
#[derive(Default)]
pub(crate) struct Heartbeat {
    state: Mutex<State>,
    /// Notifies when the heartbeat is needed.
    needed: Notify,
}

#[derive(Default)]
struct State {
    last: Option<Instant>,
    /// The time until which this worker may have claims that it does not know of.
    unsure_until: Option<Instant>,
    /// The lease under which suspects run in this process.
    seat: Option<String>,
}

impl Heartbeat {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins to beat, because claims are about to be written.
    pub(super) fn begin(&self) {
        self.needed.notify_one();
    }

    /// Keeps the heartbeat for at least this long: claims may have been written that this worker
    /// does not run.
    pub(super) fn unsure_for(&self, time: Duration) {
        self.state().unsure_until = Some(Instant::now() + time);
        self.needed.notify_one();
    }

    fn take_seat(&self) -> Option<String> {
        self.state().seat.take()
    }
}

/// Returns how long a heartbeat is valid. It must end before the claims of a dead worker do, or the
/// worker would be taken for alive when they end.
fn length<S: ReactionStore>(shared: &Shared<S>) -> Duration {
    let shortest = shared.runs.iter().map(|definition| definition.rules.visibility).min();
    shortest.map_or(MAX_LENGTH, |shortest| (shortest / 2).min(MAX_LENGTH))
}

/// Sends heartbeats while they are needed.
pub(super) async fn keep<S: ReactionStore>(shared: Arc<Shared<S>>) {
    let (heartbeat, length) = (&shared.heartbeat, length(&shared));
    loop {
        let is_needed = {
            let state = heartbeat.state();
            let is_unsure = state.unsure_until.is_some_and(|until| until > Instant::now());
            is_unsure || state.seat.is_some() || shared.running.count() > 0
        };
        if !is_needed {
            heartbeat.needed.notified().await;
        }
        let last = heartbeat.state().last;
        if let Some(last) = last {
            sleep_until(last + length / 3).await;
        }
        let seat = {
            let mut state = heartbeat.state();
            state.last = Some(Instant::now());
            state.seat.clone()
        };
        if let Err(error) = shared.store.beat(&shared.worker, length).await {
            shared.failed(&error, "sending the heartbeat");
        }
        if let Some(seat) = seat
            && let Err(error) = shared.store.take_lease(&seat, &shared.worker, MAX_LENGTH).await
        {
            shared.failed(&error, "renewing the lease to run suspects");
        }
    }
}

/// Ends the heartbeat of a worker that leaves no claims behind.
pub(super) async fn end<S: ReactionStore>(shared: &Shared<S>) {
    leave_seat(shared).await;
    let has_beaten = shared.heartbeat.state().last.is_some();
    if has_beaten && let Err(error) = shared.store.beat(&shared.worker, Duration::ZERO).await {
        tracing::warn!(%error, "could not end the heartbeat; it expires");
    }
}

/// Takes one of the seats for workers that run suspects: at most half of the workers have one.
pub(super) async fn take_seat<S: ReactionStore>(shared: &Shared<S>) -> Result<bool> {
    let mut living = shared.store.living().await?;
    living.insert(shared.worker.clone());
    for number in 0..(living.len() / 2).max(1) {
        let seat = format!("suspects {number}");
        if shared.store.take_lease(&seat, &shared.worker, MAX_LENGTH).await?.is_some() {
            shared.heartbeat.state().seat = Some(seat);
            shared.heartbeat.begin();
            return Ok(true);
        }
    }
    Ok(false)
}

/// Gives the seat back, if this worker has one.
pub(super) async fn leave_seat<S: ReactionStore>(shared: &Shared<S>) {
    if let Some(seat) = shared.heartbeat.take_seat()
        && let Err(error) = shared.store.give_lease(&seat, &shared.worker).await
    {
        tracing::warn!(%error, seat, "could not release the lease to run suspects; it expires");
    }
}

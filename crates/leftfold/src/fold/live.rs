//! The main loop of a worker: it folds the live generation.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::sleep;

use super::erased::{ErasedProjection, Work, WorkerContext};
use super::projector::{Ended, stopped};
use super::pulse::Activity;
use crate::backoff::Backoff;
use crate::error::Result;
use crate::store::Store;

/// The interval at which replaced code checks whether it is wanted again.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// Completes a switch between generations. [`run_live`] calls it when the live generation is
/// frozen.
pub(crate) type CompleteSwitch<S> = for<'a> fn(
    &'a Arc<dyn ErasedProjection<S>>,
    &'a WorkerContext<S>,
    &'a mut watch::Receiver<bool>,
) -> Work<'a, Result<()>>;

/// Folds the live generation until told to stop, and moves to another one when that becomes live.
pub(crate) async fn run_live<S: Store>(
    projection: Arc<dyn ErasedProjection<S>>,
    context: WorkerContext<S>,
    complete_switch: CompleteSwitch<S>,
    mut stop: watch::Receiver<bool>,
) {
    let patience =
        Backoff::default().first(Duration::from_millis(50)).most(Duration::from_secs(5)).without_limit();
    let mut delays = patience.delays(context.env.random());
    while !*stop.borrow() {
        let wait = match step(&projection, &context, complete_switch, &mut stop).await {
            Ok(None) => {
                delays = patience.delays(context.env.random());
                continue;
            }
            Ok(Some(wait)) => wait,
            Err(error) => {
                tracing::warn!(projection = %projection.collection(), %error, "projection failed, retrying");
                projection.show(|pulse| {
                    pulse.activity = Activity::Failing;
                    pulse.last_error = Some(error.to_string());
                });
                delays.next().unwrap_or(LOOK_EVERY)
            }
        };
        tokio::select! { biased;
            () = stopped(&mut stop) => {}
            () = sleep(wait) => {}
        }
    }
    projection.show(|pulse| pulse.activity = Activity::Stopped);
}

/// Folds the live generation while it is live. Returns the time to wait before the next check, if
/// any.
async fn step<S: Store>(
    projection: &Arc<dyn ErasedProjection<S>>,
    context: &WorkerContext<S>,
    complete_switch: CompleteSwitch<S>,
    stop: &mut watch::Receiver<bool>,
) -> Result<Option<Duration>> {
    let known = context.store.generations(projection.collection()).await?;
    if known.is_outdated(projection.fingerprint()) {
        let live = known.live.version.unwrap_or_default();
        let said = format!(
            "a rebuild by code of version {live} replaced the documents of this code (version {}), so this \
             worker stands by; run the newer code, undo the rebuild, or rebuild with this code",
            projection.fingerprint()
        );
        projection.show(|pulse| {
            pulse.activity = Activity::Standby;
            pulse.last_error = Some(said);
        });
        return Ok(Some(LOOK_EVERY));
    }
    let number = known.live.number;
    let folding = projection.fold(context.clone(), number, true, projection.pulse().clone(), stop.clone());
    if folding.await? == Ended::Frozen {
        complete_switch(projection, context, stop).await?;
        // If the process that switched died right afterwards, a store may have work left to do.
        context.store.prepare(projection.collection()).await?;
    }
    Ok(None)
}

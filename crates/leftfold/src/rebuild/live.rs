//! The main loop of a worker: it folds the live generation.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::sleep;

use super::change;
use super::handle::Rebuild;
use super::switch::complete;
use crate::documents::{Collection, Documents, Store};
use crate::env::Env;
use crate::error::Result;
use crate::fold::{Activity, Ended, stopped};
use crate::part::{ErasedProjection, WorkerContext};
use crate::retry::Backoff;

/// The interval at which replaced code checks whether it is wanted again.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// Folds the live generation until told to stop, and moves to another one when that becomes live.
pub(crate) async fn run_live<S: Store>(
    part: Arc<dyn ErasedProjection<S>>,
    setting: WorkerContext<S>,
    mut stop: watch::Receiver<bool>,
) {
    let patience =
        Backoff::default().first(Duration::from_millis(50)).most(Duration::from_secs(5)).without_limit();
    let mut delays = patience.delays(setting.env.random());
    while !*stop.borrow() {
        let wait = match step(&part, &setting, &mut stop).await {
            Ok(None) => {
                delays = patience.delays(setting.env.random());
                continue;
            }
            Ok(Some(wait)) => wait,
            Err(error) => {
                tracing::warn!(projection = %part.collection(), %error, "projection failed, will go on");
                part.show(|pulse| {
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
    part.show(|pulse| pulse.activity = Activity::Stopped);
}

/// Folds the live generation while it is live. Returns the time to wait before the next check, if
/// any.
async fn step<S: Store>(
    part: &Arc<dyn ErasedProjection<S>>,
    setting: &WorkerContext<S>,
    stop: &mut watch::Receiver<bool>,
) -> Result<Option<Duration>> {
    let known = setting.store.generations(part.collection()).await?;
    if known.is_outdated(part.fingerprint()) {
        let live = known.live.version.unwrap_or_default();
        let said = format!(
            "a rebuild by code of version {live} has replaced what this code, of version {}, made, so it stands by; run the \
             newer code, undo the rebuild, or rebuild with this code",
            part.fingerprint()
        );
        part.show(|pulse| {
            pulse.activity = Activity::Standby;
            pulse.last_error = Some(said);
        });
        return Ok(Some(LOOK_EVERY));
    }
    let number = known.live.number;
    let folding = part.fold(setting.clone(), number, true, part.pulse().clone(), stop.clone());
    if folding.await? == Ended::Frozen {
        complete(part, setting, false, stop).await?;
        // If the process that switched died right afterwards, a store may have work left to do.
        setting.store.prepare(part.collection()).await?;
    }
    Ok(None)
}

/// Rebuilds a projection whose documents were built by code of another version, and switches to the
/// result.
pub(crate) async fn rebuild_if_changed<S: Store>(
    part: Arc<dyn ErasedProjection<S>>,
    setting: WorkerContext<S>,
) {
    let patience =
        Backoff::default().first(Duration::from_secs(1)).most(Duration::from_mins(1)).without_limit();
    for delay in patience.delays(setting.env.random()) {
        let rebuilt = async {
            let known = setting.store.generations(part.collection()).await?;
            if !known.differs(part.fingerprint()) || known.is_outdated(part.fingerprint()) {
                return Ok(());
            }
            tracing::info!(projection = %part.collection(), fingerprint = part.fingerprint(), "its code changed, rebuilding");
            let rebuild = Rebuild::begin(part.clone(), setting.clone()).await?;
            rebuild.built().await?;
            rebuild.switch().await
        };
        match rebuilt.await {
            Ok(()) => return,
            Err(error) => {
                tracing::warn!(projection = %part.collection(), %error, "rebuilding failed, will go on");
            }
        }
        sleep(delay).await;
    }
}

/// Deletes the generations that are marked for deletion.
pub(crate) async fn tidy<S: Documents>(store: &S, env: &dyn Env, collection: &Collection) -> Result<()> {
    for number in store.generations(collection).await?.dropping {
        store.drop_generation(&collection.generation(number)).await?;
        change(store, env, collection, |known| known.dropped(number)).await?;
    }
    Ok(())
}

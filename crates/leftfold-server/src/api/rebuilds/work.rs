//! The work on a rebuild, in a task of its own.

use std::sync::Arc;
use std::time::Duration;

use leftfold::rebuild::Rebuild;
use tokio::time::interval;

use super::super::verification::MAX_SHOWN;
use super::registry::{RebuildState, Stage};
use crate::{Backend, Shared};

/// The interval at which the progress of a rebuild is recorded.
const TICK: Duration = Duration::from_millis(250);

/// Resumes the rebuilds of a replaced service, once that service has left them.
pub(crate) fn take_up<S: Backend>(shared: &Shared<S>) {
    for (collection, RebuildState { switch, turn, .. }) in shared.rebuilds.in_progress() {
        let shared = Arc::clone(shared);
        tokio::spawn(async move {
            drop(turn.lock().await);
            // It may have ended in the meantime.
            if shared.rebuilds.get(&collection).is_none_or(|state| state.stage != Stage::Building) {
                return;
            }
            match shared.app.rebuild(&collection).await {
                Ok(rebuild) => work(shared, collection, rebuild, switch).await,
                Err(error) => shared.rebuilds.end(&collection, Err(error)),
            }
        });
    }
}

/// Builds it, compares it and switches to it.
pub(super) async fn work<S: Backend>(
    shared: Shared<S>,
    collection: String,
    rebuild: Rebuild<S>,
    switch: bool,
) {
    let RebuildState { turn, order, .. } = shared.rebuilds.get(&collection).unwrap_or_default();
    let _turn = turn.lock().await;
    let built = tokio::select! {
        () = shared.stopping() => return rebuild.leave().await,
        built = build(&shared, &collection, &rebuild) => built,
    };
    let generation = rebuild.generation();
    let ended = match built {
        Ok(()) if switch => rebuild.switch().await.map(|()| Stage::Switched),
        built => {
            rebuild.leave().await;
            built.map(|()| Stage::Built)
        }
    };
    if let (Ok(Stage::Switched), Some((actor, reason))) = (&ended, order) {
        let outcome = format!("switched to generation {generation}");
        actor.did(&shared, "switch", &collection, reason.as_deref(), &outcome).await;
    }
    shared.rebuilds.end(&collection, ended);
}

async fn build<S: Backend>(
    shared: &Shared<S>,
    collection: &str,
    rebuild: &Rebuild<S>,
) -> leftfold::Result<()> {
    let (mut built, mut tick) = (std::pin::pin!(rebuild.built()), interval(TICK));
    loop {
        tokio::select! {
            built = &mut built => break built?,
            _ = tick.tick() => {
                let progress = rebuild.progress().await?;
                shared.rebuilds.change(collection, |state| state.progress = Some(progress));
            }
        }
    }
    let (progress, difference) = (rebuild.progress().await?, rebuild.difference(MAX_SHOWN).await?);
    shared.rebuilds.change(collection, |state| {
        (state.progress, state.difference) = (Some(progress), Some(difference));
    });
    Ok(())
}

//! Switching from one generation to another, by any worker.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::change;
use crate::documents::{
    Advance, Checkpoint, Collection, Commit, CommitOutcome, Documents, folded, freeze, frozen,
};
use crate::error::{Error, Kind, Result};
use crate::fold::{Ended, ErasedProjection, SharedPulse, Work, WorkerContext, stopped};
use crate::mark::Mark;
use crate::mutant;
use crate::store::Store;

/// The time to wait for a switch to a generation of another code version, before withdrawing it.
const GRACE: Duration = Duration::from_secs(10);

/// Completes the switch under way, if there is one; else thaws the checkpoint of the live
/// generation, if it is frozen. Ends early if told to stop.
///
/// Code that was not `asked` to switch does not fold a generation of another version. It waits for
/// other workers, and withdraws the switch if there are none.
pub(super) async fn complete<S: Store>(
    projection: &Arc<dyn ErasedProjection<S>>,
    context: &WorkerContext<S>,
    asked: bool,
    stop: &mut watch::Receiver<bool>,
) -> Result<()> {
    let (store, name) = (&context.store, projection.collection());
    let mut pause = Duration::from_millis(2);
    let begun = Instant::now();
    while !*stop.borrow() {
        let live = name.generation(store.generations(name).await?.live.number);
        // Read in this order: if the checkpoint is frozen for a switch that is over by the second
        // read, that switch does not come back.
        let checkpoint = store.checkpoint(&live).await?;
        let known = store.generations(name).await?;
        if live != name.generation(known.live.number) {
            return Ok(());
        }
        let mut frozen_for = frozen(&checkpoint.mark);
        mutant!(SwitchUnfrozen => frozen_for = known.switching.as_ref().map(|switching| switching.ticket));
        match &known.switching {
            None if frozen_for.is_none() => return Ok(()),
            None => drop(store_frozen(store, &live, &checkpoint, None).await?),
            Some(switching) if frozen_for == Some(switching.ticket) => {
                let to = folded(&checkpoint.mark);
                let is_ours =
                    known.version_of(switching.to).is_none_or(|made_by| made_by == projection.fingerprint());
                let caught_up =
                    reached(projection, context, switching.to, &to, asked || is_ours, stop).await?;
                if !caught_up && !asked && !is_ours && !*stop.borrow() {
                    if begun.elapsed() > GRACE {
                        let ticket = switching.ticket;
                        change(store, &*context.env, name, |known| known.withdrawn(ticket)).await?;
                    }
                    sleep(Duration::from_millis(100)).await;
                    continue;
                }
                let Some(next) = known.switched().filter(|_| caught_up) else { return Ok(()) };
                if store.put_generations(name, known.revision, next.clone()).await? {
                    tracing::info!(projection = %name, generation = next.live.number, "switched");
                    return Ok(());
                }
            }
            Some(switching) => {
                // If it is frozen for a later switch, this process has not heard of that switch
                // yet.
                if frozen_for.is_none_or(|other| other < switching.ticket) {
                    store_frozen(store, &live, &checkpoint, Some(switching.ticket)).await?;
                }
            }
        }
        // By then a faster worker, or one that continues with the live generation, has made
        // progress.
        tokio::select! { biased;
            () = stopped(stop) => {}
            () = sleep(pause) => pause = (pause * 2).min(Duration::from_millis(200)),
        }
    }
    Ok(())
}

/// Completes the switch under way for a worker whose live generation is frozen.
pub(crate) fn complete_switch<'a, S: Store>(
    projection: &'a Arc<dyn ErasedProjection<S>>,
    context: &'a WorkerContext<S>,
    stop: &'a mut watch::Receiver<bool>,
) -> Work<'a, Result<()>> {
    Box::pin(complete(projection, context, false, stop))
}

/// Freezes or thaws a checkpoint if it is unchanged since it was read. Returns whether it was.
async fn store_frozen<S: Documents>(
    store: &S,
    generation: &Collection,
    checkpoint: &Checkpoint,
    ticket: Option<u64>,
) -> Result<bool> {
    let to = freeze(checkpoint, ticket);
    let advance = Advance { projection: generation.clone(), from: checkpoint.mark.clone(), to };
    match store.commit(Arc::new(Commit { advance: Some(advance), changes: Vec::new() })).await? {
        CommitOutcome::Applied => Ok(true),
        CommitOutcome::Conflict(_) | CommitOutcome::Unknown(_) => Ok(false),
    }
}

/// Returns whether a generation has reached a mark, after folding it that far if this worker may.
async fn reached<S: Store>(
    projection: &Arc<dyn ErasedProjection<S>>,
    context: &WorkerContext<S>,
    number: u32,
    to: &Mark,
    may_fold: bool,
    stop: &mut watch::Receiver<bool>,
) -> Result<bool> {
    mutant!(SwitchBehind => return Ok(true));
    if may_fold {
        return catch_up(projection, context, number, to, stop).await;
    }
    let generation = projection.collection().generation(number);
    Ok(context.store.checkpoint(&generation).await?.mark.covers(to))
}

/// Folds a generation that is not live until it has reached a mark. Returns `false` if told to stop
/// before.
pub(super) async fn catch_up<S: Store>(
    projection: &Arc<dyn ErasedProjection<S>>,
    context: &WorkerContext<S>,
    number: u32,
    to: &Mark,
    stop: &mut watch::Receiver<bool>,
) -> Result<bool> {
    let (end, told) = watch::channel(false);
    let mut working = JoinSet::new();
    let beside = WorkerContext { owner: format!("{} switching", context.owner), ..context.clone() };
    working.spawn(fold_beside(projection.clone(), beside, number, SharedPulse::default(), told));
    let reached = async {
        let generation = projection.collection().generation(number);
        let mut at = context.store.checkpoint(&generation).await?.mark;
        while !at.covers(to) {
            at = context.store.advanced(&generation, &at).await?;
        }
        Ok(())
    };
    let reached: Result<bool> = tokio::select! { biased;
        () = stopped(stop) => Ok(false),
        reached = reached => reached.map(|()| true),
        gone = working.join_next() => gone.map_or(Ok(false), |gone| {
            gone.map_err(|error| Error::new(Kind::Stopped, "catching up: the task ended").with_source(error))?
                .map(|()| false)
        }),
    };
    end.send_replace(true);
    while working.join_next().await.is_some() {}
    reached
}

/// Folds a generation that is not live, until it is deleted or a stop is requested. A generation
/// that was live before may be frozen.
pub(super) async fn fold_beside<S: Store>(
    projection: Arc<dyn ErasedProjection<S>>,
    context: WorkerContext<S>,
    number: u32,
    pulse: SharedPulse,
    stop: watch::Receiver<bool>,
) -> Result<()> {
    let (store, name) = (context.store.clone(), projection.collection().clone());
    let generation = name.generation(number);
    loop {
        let ended = projection.fold(context.clone(), number, false, pulse.clone(), stop.clone()).await?;
        let checkpoint = store.checkpoint(&generation).await?;
        let known = store.generations(&name).await?;
        if ended == Ended::Stopped || !known.has(number) || known.live.number == number {
            return Ok(());
        }
        if frozen(&checkpoint.mark).is_some() {
            store_frozen(&store, &generation, &checkpoint, None).await?;
        }
    }
}

/// Switches to a generation, and waits until that is done.
pub(super) async fn switch<S: Store>(
    projection: &Arc<dyn ErasedProjection<S>>,
    context: &WorkerContext<S>,
    number: u32,
) -> Result<()> {
    let (store, name) = (&context.store, projection.collection());
    change(store, &*context.env, name, |known| known.switching_to(number)).await?;
    let (_running, mut stop) = watch::channel(false);
    let mut pause = Duration::from_millis(10);
    loop {
        let known = store.generations(name).await?;
        if known.live.number == number {
            return Ok(());
        }
        if known.switching.as_ref().is_none_or(|switching| switching.to != number) {
            let message = format!(
                "switching {name} to generation {number}: another switch or a cancellation happened \
                 meanwhile; check the status, and start again"
            );
            return Err(Error::new(Kind::Conflict, message));
        }
        match complete(projection, context, true, &mut stop).await {
            Err(error) if !(error.is_transient() || error.is_unknown() || error.is_conflict()) => {
                return Err(error);
            }
            _ => {}
        }
        if store.generations(name).await?.live.number != number {
            sleep(pause).await;
            pause = (pause * 2).min(Duration::from_secs(1));
        }
    }
}

/// Switches back to the generation that was kept.
pub(crate) async fn undo<S: Store>(
    projection: &Arc<dyn ErasedProjection<S>>,
    context: &WorkerContext<S>,
) -> Result<()> {
    let (store, name) = (&context.store, projection.collection());
    let (_running, mut stop) = watch::channel(false);
    let mut known = store.generations(name).await?;
    let kept = known.kept.as_ref().map(|kept| kept.number);
    if known.switching.as_ref().is_some_and(|switching| Some(switching.to) != kept) {
        // Another process has begun to switch to a rebuild, and may be dead. Complete that switch,
        // then undo it.
        complete(projection, context, true, &mut stop).await?;
        known = store.generations(name).await?;
    }
    let Some(kept) = &known.kept else {
        let message = format!(
            "undoing the rebuild of {name}: no earlier generation is kept; rebuild it with the code you want"
        );
        return Err(Error::new(Kind::Invalid, message));
    };
    // Catch up first without blocking the live generation, so that little is left to do while it is
    // frozen.
    let to = folded(&store.checkpoint(&name.generation(known.live.number)).await?.mark);
    if known.switching.is_none() {
        catch_up(projection, context, kept.number, &to, &mut stop).await?;
    }
    switch(projection, context, kept.number).await
}

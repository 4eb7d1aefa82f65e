//! The suspicion of tasks is lifted: their worker is alive, or they have run for long.

use std::collections::BTreeMap;

use crate::error::Result;
use crate::react::reactor::Shared;
use crate::react::store::{ReactionStore, TaskChange};
use crate::react::task::Task;

/// Lifts the suspicion of tasks whose claims this worker has lost, because it is alive.
pub(super) async fn acquit_lost<S: ReactionStore>(shared: &Shared<S>) -> Result<()> {
    let lost = shared.running.take_lost();
    if lost.is_empty() {
        return Ok(());
    }
    let acquit = async {
        let stored = shared.store.load_tasks(lost.keys().cloned().collect()).await?;
        let change = |task: Task| {
            let (seen, epoch) = (task.version, *lost.get(&task.key)?);
            Some(TaskChange::Update(seen, task.acquit(epoch, shared.moment())?))
        };
        let changes: Vec<_> = stored.into_iter().filter_map(change).collect();
        if changes.is_empty() { Ok(Vec::new()) } else { shared.store.save_tasks(changes).await }
    };
    match acquit.await {
        Ok(refused) => {
            let again = lost.into_iter().filter(|(key, _)| refused.contains(key));
            shared.running.keep_lost(again.collect());
            Ok(())
        }
        Err(error) => {
            // A task that is acquitted already is not acquitted again.
            shared.running.keep_lost(lost);
            Err(error)
        }
    }
}

/// Lets other tasks run beside suspects that have run for long. If the process ends from here on,
/// no suspect ran alone.
pub(super) async fn parole<S: ReactionStore>(shared: &Shared<S>) -> Result<()> {
    let runs: Vec<_> = shared.running.runs().values().map(|held| held.task.clone()).collect();
    let mut paroled = BTreeMap::new();
    let mut changes = Vec::new();
    for task in runs {
        let (seen, epoch) = (task.version, task.epoch);
        if let Some(task) = task.parole(epoch, shared.moment()) {
            changes.push(TaskChange::Update(seen, task.clone()));
            paroled.insert(task.key.clone(), task);
        }
    }
    if changes.is_empty() {
        return Ok(());
    }
    let refused = shared.store.save_tasks(changes).await?;
    paroled.retain(|key, _| !refused.contains(key));
    for task in paroled.values() {
        shared.running.update(task);
    }
    Ok(())
}

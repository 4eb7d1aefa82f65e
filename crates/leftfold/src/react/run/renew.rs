//! Claims are renewed while handlers run, and given back when the runner stops.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use super::acquit::acquit_lost;
use crate::error::Result;
use crate::react::reactor::Shared;
use crate::react::store::{ReactionStore, TaskChange};
use crate::react::task::{Task, TaskKey};

/// The length of a claim where no reaction runs in this process.
const RENEW_FOR: Duration = Duration::from_secs(15);

/// Renews claims while their handlers run, and cancels the runs whose claims are lost.
pub(super) async fn renew_all<S: ReactionStore>(shared: Arc<Shared<S>>) {
    let shortest = shared.runs.iter().map(|definition| definition.rules.visibility).min();
    let every = shortest.unwrap_or(RENEW_FOR) / 3;
    loop {
        sleep(every).await;
        if let Err(error) = acquit_lost(&shared).await {
            shared.failed(&error, "lifting the suspicion of tasks with lost claims");
        }
        let claims: Vec<_> =
            shared.running.runs().iter().map(|(key, held)| (key.clone(), held.task.epoch)).collect();
        if claims.is_empty() {
            continue;
        }
        if let Err(error) = renew(&shared, claims).await {
            shared.failed(&error, "renewing claims");
        }
    }
}

/// Renews claims as they were before the tasks were read: a run that began since then has another
/// epoch.
async fn renew<S: ReactionStore>(shared: &Shared<S>, claims: Vec<(TaskKey, u64)>) -> Result<()> {
    let stored = shared.store.load_tasks(claims.iter().map(|(key, _)| key.clone()).collect()).await?;
    let mut stored: BTreeMap<_, _> = stored.into_iter().map(|task| (task.key.clone(), task)).collect();
    let mut changes = Vec::new();
    for (key, epoch) in claims {
        let Some(definition) = shared.runs.iter().find(|one| one.name == key.reaction) else { continue };
        if shared.running.held(&key, epoch).is_none() {
            continue;
        }
        let task = stored.remove(&key);
        // The handler has completed the task in a transaction; let it end.
        if task.as_ref().is_some_and(|task| task.epoch == epoch && !task.is_claimed(epoch)) {
            continue;
        }
        let renewed = task.and_then(|task| {
            let seen = task.version;
            Some((seen, task.renew_claim(epoch, &definition.rules, shared.moment())?))
        });
        match renewed {
            Some((seen, task)) => changes.push(TaskChange::Update(seen, task)),
            // The handler may just have finished the task; then this has no effect.
            None => shared.running.cancel(&key, epoch),
        }
    }
    let renewed: BTreeMap<_, _> = changes
        .iter()
        .filter_map(|change| match change {
            TaskChange::Update(_, task) => Some((task.key.clone(), task.clone())),
            _ => None,
        })
        .collect();
    let refused = shared.store.save_tasks(changes).await?;
    for (key, task) in renewed {
        // A task that was changed meanwhile is renewed the next time; the claim lasts long enough.
        if !refused.contains(&key) {
            shared.running.update(&task);
        }
    }
    Ok(())
}

/// Gives back the claims of runs that did not end in time, so that other workers may run them at
/// once.
pub(super) async fn give_back<S: ReactionStore>(shared: &Shared<S>) {
    let keys: Vec<_> = std::mem::take(&mut *shared.running.runs())
        .into_iter()
        .map(|(key, held)| (key, held.task.epoch))
        .collect();
    if keys.is_empty() {
        return;
    }
    let give = async {
        let stored = shared.store.load_tasks(keys.iter().map(|(key, _)| key.clone()).collect()).await?;
        let epochs: BTreeMap<_, _> = keys.into_iter().collect();
        let back = |task: Task| {
            let (seen, epoch) = (task.version, *epochs.get(&task.key)?);
            Some(TaskChange::Update(seen, task.give_back(epoch, shared.moment())?))
        };
        shared.store.save_tasks(stored.into_iter().filter_map(back).collect()).await?;
        shared.wake().await
    };
    if let Err(error) = give.await {
        tracing::warn!(%error, "could not release claims; they expire");
    }
}

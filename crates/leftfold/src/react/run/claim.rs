//! Claims: due tasks are claimed, claims are renewed while handlers run, and lost claims are
//! reaped.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use crate::error::Result;
use crate::mutant;
use crate::react::define::Definition;
use crate::react::plan::planner::until;
use crate::react::reactor::shared::Shared;
use crate::react::store::{DueTasks, ReactionStore, TaskChange, WantedTasks};
use crate::react::task::{Loser, State, Suspicion, Task, TaskKey, TaskMoment};

/// The length of a claim where no reaction runs in this process.
const RENEW_FOR: Duration = Duration::from_secs(15);

/// The result of a look for tasks that can be claimed.
pub(crate) struct Claimed {
    /// The claimed tasks.
    pub(crate) tasks: Vec<(Arc<Definition>, Task)>,
    /// The time until another task is due; zero if lost claims were reaped, whose tasks are due
    /// now.
    pub(crate) next: Option<Duration>,
    /// The level of the suspects that are due first, and the time until then.
    pub(crate) suspects: Option<(Suspicion, Duration)>,
}

/// Claims at most `most` due tasks of this suspicion, and reaps lost claims.
pub(crate) async fn claim<S: ReactionStore>(
    shared: &Shared<S>,
    level: Suspicion,
    most: usize,
) -> Result<Claimed> {
    let (wanted, most) = wanted(shared, level, most);
    if wanted.is_empty() {
        return Ok(Claimed { tasks: Vec::new(), next: None, suspects: None });
    }
    let mut due = shared.store.due_tasks(wanted).await?;
    let first = due.suspects.iter().min_by_key(|(_, at)| **at);
    let suspects = first.map(|(level, at)| (*level, until(*at, due.now)));
    if level != Suspicion::None {
        due.tasks.sort_by_key(|task| task.due);
        due.tasks.truncate(most);
    }
    let (changes, mut taken) = take(shared, &due).await?;
    let mut next = due.next.map(|next| until(next, due.now));
    if changes.is_empty() {
        return Ok(Claimed { tasks: Vec::new(), next, suspects });
    }
    shared.heartbeat.begin();
    match shared.store.save_tasks(changes).await {
        Ok(refused) => refused.iter().for_each(|key| drop(taken.remove(key))),
        Err(error) if error.is_transient() => {
            // Until that is known, this worker may own some of these claims without running them.
            let longest = shared.runs.iter().map(|definition| definition.rules.visibility).max();
            shared.heartbeat.unsure_for(longest.unwrap_or_default());
            let keys = taken.keys().cloned().collect();
            let there = shared.store.load_tasks(keys).await?;
            let there: BTreeMap<_, _> = there.into_iter().map(|task| (task.key.clone(), task)).collect();
            taken.retain(|key, task| there.get(key).is_some_and(|found| is_written(found, task)));
        }
        Err(error) => return Err(error),
    }
    let given_up = taken.values().filter(|task| task.state == State::Failed).count() as u64;
    let before = taken.len();
    taken.retain(|_, task| task.state == State::Running);
    let reaped = (before - taken.len()) as u64;
    if reaped > 0 {
        next = Some(Duration::ZERO);
    }
    shared.count(|counts| {
        counts.claimed += taken.len() as u64;
        counts.takeovers += reaped;
        counts.failed += given_up;
    });
    let of = |task: Task| Some((Arc::clone(definition_of(shared, &task.key)?), task));
    let tasks: Vec<_> = taken.into_values().filter_map(of).collect();
    for (_, task) in &tasks {
        shared.running.begin(task);
    }
    Ok(Claimed { tasks, next, suspects })
}

/// Returns how many tasks of each reaction this process has room for, and how many in all.
fn wanted<S: ReactionStore>(shared: &Shared<S>, level: Suspicion, most: usize) -> (Vec<WantedTasks>, usize) {
    let mut wanted = Vec::new();
    let runs = shared.running.runs();
    let mut by_reaction: BTreeMap<&str, usize> = BTreeMap::new();
    let mut active = 0;
    for (key, _) in runs.iter().filter(|(_, held)| !held.ended) {
        active += 1;
        *by_reaction.entry(key.reaction.as_str()).or_default() += 1;
    }
    // Ended runs are written while others run. Their number is bounded, too.
    let in_all = shared.concurrency.saturating_mul(2).saturating_sub(runs.len());
    let most = shared.concurrency.saturating_sub(active).min(in_all).min(most);
    let mut free = most;
    // Each reaction gets its share; a random one comes first. Suspects are so few that every
    // reaction may request the full number; the caller truncates the result.
    let count = shared.runs.len();
    let first = usize::try_from(shared.env.random() % (count.max(1) as u64)).unwrap_or(0);
    for (left, at) in (0..count).map(|at| (count - at, (first + at) % count.max(1))) {
        let definition = &shared.runs[at];
        let running = by_reaction.get(definition.name.as_str()).copied().unwrap_or(0);
        let share = if level == Suspicion::None { free.div_ceil(left) } else { most };
        let most = definition.concurrency.saturating_sub(running).min(share);
        free = free.saturating_sub(most);
        if most > 0 {
            let version = definition.rules.version;
            wanted.push(WantedTasks { reaction: definition.name.clone(), version, most, suspicion: level });
        }
    }
    mutant!(OldCodeRuns => for wanted in &mut wanted { wanted.version = u32::MAX });
    (wanted, most)
}

/// Computes the changes that claim due tasks and reap lost ones, and the tasks after them.
async fn take<S: ReactionStore>(
    shared: &Shared<S>,
    due: &DueTasks,
) -> Result<(Vec<TaskChange>, BTreeMap<TaskKey, Task>)> {
    let is_any_lost = due.tasks.iter().any(|task| task.is_lost(due.now));
    let mut living = if is_any_lost { shared.store.living().await? } else { BTreeSet::new() };
    living.insert(shared.worker.clone());
    let mut changes = Vec::new();
    let mut taken = BTreeMap::new();
    for task in &due.tasks {
        let Some(definition) = definition_of(shared, &task.key) else { continue };
        let moment = TaskMoment { now: due.now, ..shared.moment() };
        let (key, rules) = (&task.key, &definition.rules);
        let is_outdated = definition.on.is_some() && due.codes.get(&key.reaction) > Some(&task.needs);
        let after = if task.is_lost(due.now) {
            task.clone().reap(loser(task, &living), rules, moment)
        } else {
            task.clone().claim(&shared.worker, rules, moment)
        };
        let Some(after) = after else { continue };
        // Old code may have planned the task after newer code compared all documents, so the newer
        // code must check it. And nobody has read the document of a task that is given up.
        let is_given_up = after.state == State::Failed && definition.on.is_some();
        let after =
            if is_outdated || is_given_up { Task::look_again(Some(after), key, moment) } else { after };
        changes.push(TaskChange::Update(task.version, after.clone()));
        taken.insert(key.clone(), after);
    }
    Ok((changes, taken))
}

fn loser(task: &Task, living: &BTreeSet<String>) -> Loser {
    mutant!(LivingAreDead => return Loser::Dead);
    let is_alive = task.owner.as_ref().is_some_and(|owner| living.contains(owner));
    if is_alive { Loser::Alive } else { Loser::Dead }
}

fn definition_of<'a, S>(shared: &'a Shared<S>, key: &TaskKey) -> Option<&'a Arc<Definition>> {
    shared.runs.iter().find(|one| one.name == key.reaction)
}

/// Returns whether this change of a task was written, even if others have changed the task since.
fn is_written(found: &Task, task: &Task) -> bool {
    let is_claim = task.state == State::Running;
    found.version == task.version || is_claim && found.is_claimed(task.epoch) && found.owner == task.owner
}

/// Renews claims while their handlers run, and cancels the runs whose claims are lost.
pub(crate) async fn renew_all<S: ReactionStore>(shared: Arc<Shared<S>>) {
    let shortest = shared.runs.iter().map(|definition| definition.rules.visibility).min();
    let every = shortest.unwrap_or(RENEW_FOR) / 3;
    loop {
        sleep(every).await;
        if let Err(error) = acquit_lost(&shared).await {
            shared.failed(&error, "lifting the suspicion of tasks whose claims were lost here");
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
    let there = shared.store.load_tasks(claims.iter().map(|(key, _)| key.clone()).collect()).await?;
    let mut there: BTreeMap<_, _> = there.into_iter().map(|task| (task.key.clone(), task)).collect();
    let mut changes = Vec::new();
    for (key, epoch) in claims {
        let Some(definition) = shared.runs.iter().find(|one| one.name == key.reaction) else { continue };
        if shared.running.held(&key, epoch).is_none() {
            continue;
        }
        let task = there.remove(&key);
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

/// Lifts the suspicion of tasks whose claims this worker has lost, because it is alive.
async fn acquit_lost<S: ReactionStore>(shared: &Shared<S>) -> Result<()> {
    let lost = shared.running.take_lost();
    if lost.is_empty() {
        return Ok(());
    }
    let acquit = async {
        let there = shared.store.load_tasks(lost.keys().cloned().collect()).await?;
        let change = |task: Task| {
            let (seen, epoch) = (task.version, *lost.get(&task.key)?);
            Some(TaskChange::Update(seen, task.acquit(epoch, shared.moment())?))
        };
        let changes: Vec<_> = there.into_iter().filter_map(change).collect();
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
pub(crate) async fn parole<S: ReactionStore>(shared: &Shared<S>) -> Result<()> {
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

/// Gives back the claims of runs that did not end in time, so that others may run them at once.
pub(crate) async fn give_back<S: ReactionStore>(shared: &Shared<S>) {
    let keys: Vec<_> = std::mem::take(&mut *shared.running.runs())
        .into_iter()
        .map(|(key, held)| (key, held.task.epoch))
        .collect();
    if keys.is_empty() {
        return;
    }
    let give = async {
        let there = shared.store.load_tasks(keys.iter().map(|(key, _)| key.clone()).collect()).await?;
        let epochs: BTreeMap<_, _> = keys.into_iter().collect();
        let back = |task: Task| {
            let (seen, epoch) = (task.version, *epochs.get(&task.key)?);
            Some(TaskChange::Update(seen, task.give_back(epoch, shared.moment())?))
        };
        shared.store.save_tasks(there.into_iter().filter_map(back).collect()).await?;
        shared.wake().await
    };
    if let Err(error) = give.await {
        tracing::warn!(%error, "could not give claims back; they end by themselves");
    }
}

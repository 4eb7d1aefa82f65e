//! Claims: due tasks are claimed, and lost claims are reaped.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use crate::error::Result;
use crate::mutant;
use crate::react::define::Definition;
use crate::react::reactor::Shared;
use crate::react::store::{DueTasks, ReactionStore, TaskChange, WantedTasks};
use crate::react::task::{Loser, State, Suspicion, Task, TaskKey, TaskMoment};
use crate::react::time::until;

/// The result of a look for tasks that can be claimed.
pub(super) struct Claimed {
    /// The claimed tasks.
    pub(super) tasks: Vec<(Arc<Definition>, Task)>,
    /// The time until another task is due; zero if lost claims were reaped, whose tasks are due
    /// now.
    pub(super) next: Option<Duration>,
    /// The level of the suspects that are due first, and the time until then.
    pub(super) suspects: Option<(Suspicion, Duration)>,
}

/// Claims at most `most` due tasks of this suspicion, and reaps lost claims.
pub(super) async fn claim<S: ReactionStore>(
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
    let (changes, taken) = changes(shared, &due).await?;
    let mut next = due.next.map(|next| until(next, due.now));
    if changes.is_empty() {
        return Ok(Claimed { tasks: Vec::new(), next, suspects });
    }
    shared.heartbeat.begin();
    let mut taken = save(shared, changes, taken).await?;
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
    let with_definition = |task: Task| Some((Arc::clone(definition_of(shared, &task.key)?), task));
    let tasks: Vec<_> = taken.into_values().filter_map(with_definition).collect();
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
    // Ended runs are written while handlers run. Their number is bounded, too.
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
async fn changes<S: ReactionStore>(
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
        // code must check it. The document of a task that is given up was not read
        // either.
        let is_given_up = after.state == State::Failed && definition.on.is_some();
        let after =
            if is_outdated || is_given_up { Task::look_again(Some(after), key, moment) } else { after };
        changes.push(TaskChange::Update(task.version, after.clone()));
        taken.insert(key.clone(), after);
    }
    Ok((changes, taken))
}

/// Writes the changes. Returns those of the resulting tasks that were written.
async fn save<S: ReactionStore>(
    shared: &Shared<S>,
    changes: Vec<TaskChange>,
    mut taken: BTreeMap<TaskKey, Task>,
) -> Result<BTreeMap<TaskKey, Task>> {
    match shared.store.save_tasks(changes).await {
        Ok(refused) => taken.retain(|key, _| !refused.contains(key)),
        Err(error) if error.is_transient() => {
            // Until the outcome is known, this worker may own some of these claims without running
            // them.
            let longest = shared.runs.iter().map(|definition| definition.rules.visibility).max();
            shared.heartbeat.unsure_for(longest.unwrap_or_default());
            let stored = shared.store.load_tasks(taken.keys().cloned().collect()).await?;
            let stored: BTreeMap<_, _> = stored.into_iter().map(|task| (task.key.clone(), task)).collect();
            taken.retain(|key, task| stored.get(key).is_some_and(|stored| is_written(stored, task)));
        }
        Err(error) => return Err(error),
    }
    Ok(taken)
}

fn loser(task: &Task, living: &BTreeSet<String>) -> Loser {
    mutant!(LivingAreDead => return Loser::Dead);
    let is_alive = task.owner.as_ref().is_some_and(|owner| living.contains(owner));
    if is_alive { Loser::Alive } else { Loser::Dead }
}

fn definition_of<'a, S>(shared: &'a Shared<S>, key: &TaskKey) -> Option<&'a Arc<Definition>> {
    shared.runs.iter().find(|one| one.name == key.reaction)
}

/// Returns whether this change of a task was written, even if the task has changed since.
fn is_written(stored: &Task, task: &Task) -> bool {
    let is_claim = task.state == State::Running;
    stored.version == task.version || is_claim && stored.is_claimed(task.epoch) && stored.owner == task.owner
}

//! Tasks: one row each. The row stores the whole task as JSON, and columns for lookups.
//!
//! `due` is set only in tasks that can be claimed, and `check_at` only in tasks to check. The index
//! by state leaves out done tasks. So these indexes stay as small as the remaining work, and cost
//! little, however many tasks are done.

use std::collections::BTreeMap;

use leftfold::react::{Depth, DueTasks, Query, State, Suspicion, Task, TaskChange, TaskKey, WantedTasks};
use leftfold::{Error, Result};
use rusqlite::{CachedStatement, Connection, Row, params};

use super::{count, micros, registry, timestamp};
use crate::clock::now;
use crate::connection::{Ran, Tx, Work};
use crate::encoding::{json, text};
use crate::error::Failure;

const LOAD: &str = "SELECT task FROM leftfold_tasks WHERE reaction = ?1 AND document = ?2";
const INSERT: &str = "INSERT INTO leftfold_tasks VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11) \
    ON CONFLICT (reaction, document) DO NOTHING";
const UPDATE: &str = "UPDATE leftfold_tasks SET version = ?3, state = ?4, due = ?5, check_at = ?6, needs = ?7, \
    changed_at = ?8, error = ?9, task = ?10, suspicion = ?11 \
    WHERE reaction = ?1 AND document = ?2 AND version = ?12";
const DELETE: &str = "DELETE FROM leftfold_tasks WHERE reaction = ?1 AND document = ?2 AND version = ?3";
pub(super) const FIRST_DUE: &str = "SELECT due FROM leftfold_tasks \
    WHERE reaction = ?1 AND suspicion = ?2 AND due IS NOT NULL AND needs <= ?3 ORDER BY due LIMIT 1";
pub(super) const DUE: &str = "SELECT task FROM leftfold_tasks \
    WHERE reaction = ?1 AND suspicion = ?2 AND due <= ?3 AND needs <= ?4 ORDER BY due LIMIT ?5";
pub(super) const FIRST_CHECK: &str = "SELECT check_at FROM leftfold_tasks \
    WHERE reaction = ?1 AND check_at IS NOT NULL ORDER BY check_at LIMIT 1";
pub(super) const CHECK: &str = "SELECT check_at, task FROM leftfold_tasks \
    WHERE reaction = ?1 AND check_at <= ?2 ORDER BY check_at LIMIT ?3";
pub(super) const NEXT_REACTION: &str =
    "SELECT reaction FROM leftfold_tasks WHERE reaction > ?1 ORDER BY reaction LIMIT 1";
pub(super) const LIST: &str = "SELECT error, task FROM leftfold_tasks \
    WHERE reaction = ?1 AND document > ?2 AND changed_at <= ?3 ORDER BY document";
pub(super) const LIST_STATE: &str = "SELECT error, task FROM leftfold_tasks \
    WHERE reaction = ?1 AND document > ?2 AND changed_at <= ?3 AND state = ?4 AND state <> 'done' ORDER BY document";
pub(super) const LIST_DONE: &str = "SELECT error, task FROM leftfold_tasks \
    WHERE reaction = ?1 AND document > ?2 AND changed_at <= ?3 AND state = ?4 ORDER BY document";
pub(super) const COUNT_ALL: &str =
    "SELECT reaction, 'done', count(*) FROM leftfold_tasks GROUP BY reaction ORDER BY reaction";
pub(super) const COUNT_OTHERS: &str = "SELECT reaction, state, count(*) FROM leftfold_tasks WHERE state <> 'done' \
    GROUP BY reaction, state ORDER BY reaction, state";
/// The statement uses the index of due tasks, where the oldest pending task comes early.
pub(super) const OLDEST_DUE: &str = "SELECT due FROM leftfold_tasks \
    WHERE reaction = ?1 AND suspicion = ?2 AND due <= ?3 AND +state = 'pending' ORDER BY due LIMIT 1";

const STATES: [State; 6] =
    [State::Pending, State::Running, State::Changed, State::Done, State::Stale, State::Failed];

fn name(state: State) -> &'static str {
    match state {
        State::Pending => "pending",
        State::Running => "running",
        State::Changed => "changed",
        State::Done => "done",
        State::Stale => "stale",
        State::Failed => "failed",
    }
}

/// A change, ready to be written.
pub(super) struct Write {
    change: TaskChange,
    /// The task as JSON; empty for a delete.
    json: String,
}

impl Write {
    pub(super) fn new(change: TaskChange) -> Result<Self, Failure> {
        let json = match &change {
            TaskChange::Insert(task) | TaskChange::Update(_, task) => text(task)?,
            TaskChange::Delete(..) => String::new(),
        };
        Ok(Self { change, json })
    }
}

/// The statements that write tasks.
pub(super) struct Statements<'c> {
    insert: CachedStatement<'c>,
    update: CachedStatement<'c>,
    delete: CachedStatement<'c>,
}

impl<'c> Statements<'c> {
    pub(super) fn new(connection: &'c Connection) -> Result<Self, Failure> {
        Ok(Self {
            insert: connection.prepare_cached(INSERT)?,
            update: connection.prepare_cached(UPDATE)?,
            delete: connection.prepare_cached(DELETE)?,
        })
    }

    /// Makes a change if the task has the version it was computed from. Returns whether it did.
    /// Versions are arbitrary 64-bit numbers: they are only compared.
    pub(super) fn write(&mut self, write: &Write) -> Result<bool, Failure> {
        let written = match &write.change {
            TaskChange::Insert(task) => put(&mut self.insert, task, &write.json, None),
            TaskChange::Update(seen, task) => put(&mut self.update, task, &write.json, Some(*seen)),
            TaskChange::Delete(seen, key) => {
                Ok(self.delete.execute(params![key.reaction, key.document.as_str(), seen.cast_signed()])?)
            }
        };
        Ok(written? == 1)
    }
}

fn put(
    statement: &mut CachedStatement<'_>,
    task: &Task,
    json: &str,
    seen: Option<u64>,
) -> Result<usize, Failure> {
    let due = task.due.filter(|_| task.can_be_due()).map(micros);
    statement.raw_bind_parameter(1, &task.key.reaction)?;
    statement.raw_bind_parameter(2, task.key.document.as_str())?;
    statement.raw_bind_parameter(3, task.version.cast_signed())?;
    statement.raw_bind_parameter(4, name(task.state))?;
    statement.raw_bind_parameter(5, due)?;
    statement.raw_bind_parameter(6, task.check_at.map(micros))?;
    statement.raw_bind_parameter(7, task.needs)?;
    statement.raw_bind_parameter(8, micros(task.changed_at))?;
    statement.raw_bind_parameter(9, task.error.as_deref())?;
    statement.raw_bind_parameter(10, json)?;
    statement.raw_bind_parameter(11, task.waits_under().level())?;
    if let Some(seen) = seen {
        statement.raw_bind_parameter(12, seen.cast_signed())?;
    }
    Ok(statement.raw_execute()?)
}

pub(super) struct SaveWork(pub(super) Vec<Write>);

impl Work for SaveWork {
    type Answer = Result<Vec<TaskKey>>;

    const DOING: &'static str = "save tasks in";

    fn bytes(&self) -> usize {
        self.0.iter().map(|write| write.json.len() + 256).sum()
    }

    fn has_steps(&self) -> bool {
        self.0.len() > 1
    }

    fn run(&self, tx: &mut Tx<'_>) -> Result<Ran<Self::Answer>, Failure> {
        let mut statements = Statements::new(tx.connection)?;
        let mut refused = Vec::new();
        for write in &self.0 {
            if !statements.write(write)? {
                refused.push(write.change.key().clone());
            }
            point!("task-saved");
        }
        point!("tasks-saved");
        Ok(Ran::Keep(Ok(refused)))
    }

    fn failed(error: Error) -> Self::Answer {
        Err(error)
    }
}

/// Loads one task.
pub(super) fn load(file: &Connection, key: &TaskKey) -> Result<Option<Task>, Failure> {
    let mut statement = file.prepare_cached(LOAD)?;
    let mut rows = statement.query([&key.reaction, key.document.as_str()])?;
    rows.next()?.map(|row| json(row, 0)).transpose()
}

/// Returns the claimable tasks of each wanted reaction that is not paused.
pub(super) fn due(file: &Connection, wanted: &[WantedTasks]) -> Result<DueTasks, Failure> {
    let now = now(file)?;
    let mut due = DueTasks { now: timestamp(now), ..DueTasks::default() };
    for WantedTasks { reaction, version, most, suspicion } in wanted {
        let registered = registry::find(file, reaction)?;
        due.codes.extend(registered.as_ref().map(|registered| (reaction.clone(), registered.code)));
        if registered.as_ref().is_some_and(|registered| registered.paused) {
            continue;
        }
        let throttled =
            registered.and_then(|registered| registered.throttled).map(micros).filter(|until| *until > now);
        if *suspicion == Suspicion::None {
            for level in Suspicion::SUSPECTS {
                let Some(first) = first(file, FIRST_DUE, params![reaction, level.level(), version])? else {
                    continue;
                };
                let at = timestamp(throttled.map_or(first, |until| until.max(first)));
                let first = due.suspects.entry(level).or_insert(at);
                *first = at.min(*first);
            }
        }
        let level = suspicion.level();
        let Some(first) = first(file, FIRST_DUE, params![reaction, level, version])? else { continue };
        if throttled.is_some() || first > now {
            let next = timestamp(throttled.map_or(first, |until| until.max(first)));
            due.next = Some(due.next.map_or(next, |other| other.min(next)));
            continue;
        }
        let mut statement = file.prepare_cached(DUE)?;
        let mut rows = statement.query(params![reaction, level, now, version, count(*most)])?;
        while let Some(row) = rows.next()? {
            due.tasks.push(json(row, 0)?);
        }
    }
    if !due.tasks.is_empty() {
        point!("tasks-due");
    }
    Ok(due)
}

/// Returns the tasks whose documents need a check now, of all these reactions together.
pub(super) fn to_check(file: &Connection, reactions: &[String], most: usize) -> Result<DueTasks, Failure> {
    let now = now(file)?;
    let (mut found, mut next) = (Vec::new(), None);
    for reaction in reactions {
        let Some(first) = first(file, FIRST_CHECK, params![reaction])? else { continue };
        next = Some(next.map_or(first, |other: i64| other.min(first)));
        if first > now {
            continue;
        }
        let mut statement = file.prepare_cached(CHECK)?;
        let mut rows = statement.query(params![reaction, now, count(most)])?;
        while let Some(row) = rows.next()? {
            found.push((row.get::<_, i64>(0)?, json::<Task>(row, 1)?));
        }
    }
    found.sort_by_key(|(check_at, _)| *check_at);
    let tasks = found.into_iter().map(|(_, task)| task).take(most).collect();
    let next = next.filter(|next| *next > now).map(timestamp);
    Ok(DueTasks { tasks, next, now: timestamp(now), ..DueTasks::default() })
}

fn first(file: &Connection, sql: &str, values: &[&dyn rusqlite::ToSql]) -> Result<Option<i64>, Failure> {
    let mut statement = file.prepare_cached(sql)?;
    let mut rows = statement.query(values)?;
    Ok(rows.next()?.map(|row| row.get(0)).transpose()?)
}

/// Lists the tasks that match a query, by reaction and document.
pub(super) fn list(
    file: &Connection,
    query: &Query,
    after: Option<&TaskKey>,
    most: usize,
) -> Result<Vec<Task>, Failure> {
    let reactions = match &query.reaction {
        Some(reaction) => vec![reaction.clone()],
        None => reactions(file)?,
    };
    let mut tasks = Vec::new();
    for reaction in reactions {
        let after = match after {
            Some(after) if after.reaction > reaction => continue,
            Some(after) if after.reaction == reaction => after.document.as_str(),
            // No id is empty, so all ids sort after the empty text.
            _ => "",
        };
        let room = most - tasks.len();
        tasks.extend(list_one(file, query, &reaction, after, room)?);
        if tasks.len() == most {
            break;
        }
    }
    Ok(tasks)
}

/// Lists the tasks of one reaction. Each state is a walk along the index, which reads only the
/// results and the rows that the filter drops.
fn list_one(
    file: &Connection,
    query: &Query,
    reaction: &str,
    after: &str,
    most: usize,
) -> Result<Vec<Task>, Failure> {
    if let Some(document) = &query.document {
        let key = TaskKey { reaction: reaction.to_owned(), document: document.clone() };
        let task = load(file, &key)?.filter(|task| query.is(task) && document.as_str() > after);
        return Ok(task.into_iter().take(most).collect());
    }
    let before = query.changed_before.map_or(i64::MAX, micros);
    let mut tasks = Vec::new();
    let mut take = |rows: &mut rusqlite::Rows<'_>| -> Result<(), Failure> {
        let enough = tasks.len() + most;
        while tasks.len() < enough
            && let Some(row) = rows.next()?
        {
            if query.error.is_none() || row.get_ref(0)?.as_str_or_null()?.is_some() {
                tasks.extend(Some(json::<Task>(row, 1)?).filter(|task| query.is(task)));
            }
        }
        Ok(())
    };
    if query.states.is_empty() {
        take(&mut file.prepare_cached(LIST)?.query(params![reaction, after, before])?)?;
        return Ok(tasks);
    }
    for state in STATES.into_iter().filter(|state| query.states.contains(state)) {
        let values = params![reaction, after, before, name(state)];
        let sql = if state == State::Done { LIST_DONE } else { LIST_STATE };
        take(&mut file.prepare_cached(sql)?.query(values)?)?;
    }
    tasks.sort_by(|one, other| one.key.cmp(&other.key));
    tasks.truncate(most);
    Ok(tasks)
}

/// Returns all reactions that have tasks, with one index step for each.
fn reactions(file: &Connection) -> Result<Vec<String>, Failure> {
    let mut statement = file.prepare_cached(NEXT_REACTION)?;
    let mut reactions = Vec::<String>::new();
    loop {
        let mut rows = statement.query([reactions.last().map_or("", String::as_str)])?;
        match rows.next()? {
            Some(row) => reactions.push(row.get(0)?),
            None => return Ok(reactions),
        }
    }
}

/// Counts the tasks of each reaction, by state.
pub(super) fn depths(file: &Connection) -> Result<BTreeMap<String, Depth>, Failure> {
    let now = now(file)?;
    let mut depths = BTreeMap::<String, Depth>::new();
    // The number of done tasks is the total minus the other states.
    for sql in [COUNT_ALL, COUNT_OTHERS] {
        let mut statement = file.prepare_cached(sql)?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let (state, count) = (state(row, 1)?, row.get::<_, i64>(2)?.unsigned_abs());
            let states = &mut depths.entry(row.get(0)?).or_default().states;
            if state != State::Done
                && let Some(done) = states.get_mut(&State::Done)
            {
                *done = done.saturating_sub(count);
            }
            states.insert(state, count);
        }
    }
    for depth in depths.values_mut() {
        depth.states.retain(|_, count| *count > 0);
    }
    for (reaction, depth) in &mut depths {
        for level in [Suspicion::None].into_iter().chain(Suspicion::SUSPECTS) {
            let oldest = first(file, OLDEST_DUE, params![reaction, level.level(), now])?.map(timestamp);
            depth.oldest_due = depth.oldest_due.into_iter().chain(oldest).min();
        }
    }
    Ok(depths)
}

fn state(row: &Row<'_>, column: usize) -> Result<State, Failure> {
    let text = row.get_ref(column)?.as_str()?;
    let state = STATES.into_iter().find(|state| name(*state) == text);
    state.ok_or_else(|| Failure::damaged(format!("a task has the state {text:?}")))
}

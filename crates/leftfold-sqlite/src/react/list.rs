//! Lists and counts of tasks for operators. Each query is a walk along an index.

use std::collections::BTreeMap;

use leftfold::react::{Depth, Query, State, Suspicion, Task, TaskKey};
use rusqlite::{Connection, params};

use super::due::first;
use super::record::{STATES, micros, name, state, timestamp};
use super::tasks::load;
use crate::clock::now;
use crate::encoding::json;
use crate::error::Failure;

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

//! Tasks that are due, and tasks to check, by the store's time.

use leftfold::react::{DueTasks, Suspicion, Task, WantedTasks};
use rusqlite::{Connection, params};

use super::record::{micros, timestamp};
use super::registry;
use crate::clock::now;
use crate::encoding::{json, limit};
use crate::error::Failure;

pub(super) const FIRST_DUE: &str = "SELECT due FROM leftfold_tasks \
    WHERE reaction = ?1 AND suspicion = ?2 AND due IS NOT NULL AND needs <= ?3 ORDER BY due LIMIT 1";
pub(super) const DUE: &str = "SELECT task FROM leftfold_tasks \
    WHERE reaction = ?1 AND suspicion = ?2 AND due <= ?3 AND needs <= ?4 ORDER BY due LIMIT ?5";
pub(super) const FIRST_CHECK: &str = "SELECT check_at FROM leftfold_tasks \
    WHERE reaction = ?1 AND check_at IS NOT NULL ORDER BY check_at LIMIT 1";
pub(super) const CHECK: &str = "SELECT check_at, task FROM leftfold_tasks \
    WHERE reaction = ?1 AND check_at <= ?2 ORDER BY check_at LIMIT ?3";

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
        let mut rows = statement.query(params![reaction, level, now, version, limit(*most)])?;
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
        let mut rows = statement.query(params![reaction, now, limit(most)])?;
        while let Some(row) = rows.next()? {
            found.push((row.get::<_, i64>(0)?, json::<Task>(row, 1)?));
        }
    }
    found.sort_by_key(|(check_at, _)| *check_at);
    let tasks = found.into_iter().map(|(_, task)| task).take(most).collect();
    let next = next.filter(|next| *next > now).map(timestamp);
    Ok(DueTasks { tasks, next, now: timestamp(now), ..DueTasks::default() })
}

/// Returns the number in the first row.
pub(super) fn first(
    file: &Connection,
    sql: &str,
    values: &[&dyn rusqlite::ToSql],
) -> Result<Option<i64>, Failure> {
    let mut statement = file.prepare_cached(sql)?;
    let mut rows = statement.query(values)?;
    Ok(rows.next()?.map(|row| row.get(0)).transpose()?)
}

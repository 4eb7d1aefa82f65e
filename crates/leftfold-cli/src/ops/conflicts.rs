//! `leftfold conflicts`: events that contradict the log, and their resolution.

use leftfold::sequence::{Conflict, Resolution, WantedEvents};
use leftfold::{Env as _, Sequences, System};
use leftfold_terminal::{Exit, Failure, Location, Out, shorten, table, time};
use serde_json::{Value, json};

use super::audit;
use crate::args::{DeleteArgs, IdArgs, KeepArgs};

const PAGE: usize = 1_000;

pub(crate) async fn list_conflicts<L: Location>(location: &L, out: &mut Out) -> Result<Exit, Failure> {
    let store = location.open_existing().await?;
    let mut rows = table(["id", "event", "type", "since", "reason"], &[]);
    for conflict in all(&store).await? {
        out.element(&in_json(&conflict))?;
        rows.add_row([
            short(&conflict),
            format!("{}@{}", conflict.stream, conflict.revision),
            conflict.entry.kind.to_string(),
            time(conflict.since),
            conflict.why.to_string(),
        ]);
    }
    out.end_of_list()?;
    if rows.is_empty() {
        out.line("no event contradicts the log")?;
    } else {
        out.line(rows)?;
    }
    Ok(Exit::Done)
}

pub(crate) async fn show_conflict<L: Location>(
    location: &L,
    args: &IdArgs,
    out: &mut Out,
) -> Result<Exit, Failure> {
    let store = location.open_existing().await?;
    let conflict = one(&store, &args.id).await?;
    let places = vec![(conflict.stream.clone(), conflict.revision)];
    let found = store.find(WantedEvents { places, ids: vec![conflict.entry.id.clone()] }).await?;
    let there = found.logged.iter().map(|event| {
        json!({
            "stream": event.stream, "revision": event.revision, "id": event.id, "type": event.kind,
            "time": event.time, "data": event.data, "in": "log",
        })
    });
    let held = found.held.iter().map(|held| {
        json!({
            "stream": held.stream, "revision": held.revision, "id": held.entry.id, "type": held.entry.kind,
            "time": held.entry.time, "data": held.entry.data, "in": "held",
        })
    });
    let there: Vec<Value> = there.chain(held).collect();
    out.value(&json!({ "conflict": in_json(&conflict), "there": there }))?;
    out.line(format_args!("{}@{}: {}", conflict.stream, conflict.revision, conflict.why))?;
    let entry = &conflict.entry;
    out.line(format_args!("  new    {} {} {}", entry.id, entry.kind, shorten(entry.data.as_str(), 400)))?;
    for event in &found.logged {
        let (id, kind, data) = (&event.id, &event.kind, shorten(event.data.as_str(), 400));
        out.line(format_args!(
            "  logged {id} {kind} {data}, at revision {} of {}",
            event.revision, event.stream
        ))?;
    }
    for held in &found.held {
        let (id, kind, data) = (&held.entry.id, &held.entry.kind, shorten(held.entry.data.as_str(), 400));
        out.line(format_args!("  held   {id} {kind} {data}"))?;
    }
    Ok(Exit::Done)
}

/// Resolves a conflict in favor of the stored event.
pub(crate) async fn keep_stored<L: Location>(
    location: &L,
    args: &KeepArgs,
    out: &mut Out,
) -> Result<Exit, Failure> {
    let decided = Resolution { reason: args.reason.clone(), at: System.now() };
    resolve(location, &args.id.id, Some(decided), Some(&args.reason), out).await
}

/// Deletes the conflicting event.
pub(crate) async fn discard_conflict<L: Location>(
    location: &L,
    args: &DeleteArgs,
    out: &mut Out,
) -> Result<Exit, Failure> {
    resolve(location, &args.id.id, None, args.reason.reason.as_deref(), out).await
}

async fn resolve<L: Location>(
    location: &L,
    id: &str,
    decided: Option<Resolution>,
    reason: Option<&str>,
    out: &mut Out,
) -> Result<Exit, Failure> {
    let store = location.open_existing().await?;
    let conflict = one(&store, id).await?;
    let (action, outcome) = match &decided {
        Some(_) => ("keep-stored", "the stored event is kept"),
        None => ("discard-conflict", "deleted"),
    };
    let is_done = store.resolve(&conflict, decided).await?;
    let target = format!("{}@{}", conflict.stream, conflict.revision);
    if is_done {
        audit::record(&store, action, &target, reason, outcome).await?;
    }
    out.value(&json!({ "id": conflict.id(), "resolved": is_done }))?;
    out.line(format_args!("{target}: {outcome}"))?;
    Ok(if is_done { Exit::Done } else { Exit::No })
}

async fn all(store: &impl Sequences) -> Result<Vec<Conflict>, Failure> {
    let mut all: Vec<Conflict> = Vec::new();
    loop {
        let page = store.conflicts(all.last().cloned(), PAGE).await?;
        let is_last = page.len() < PAGE;
        all.extend(page);
        if is_last {
            return Ok(all);
        }
    }
}

/// Returns the conflict whose id begins with `id`.
async fn one(store: &impl Sequences, id: &str) -> Result<Conflict, Failure> {
    let mut found: Vec<_> =
        all(store).await?.into_iter().filter(|conflict| conflict.id().starts_with(id)).collect();
    match (found.pop(), found.len()) {
        (Some(conflict), 0) => Ok(conflict),
        (None, _) => {
            Err(Failure::new(Exit::No, format!("no conflict has the id {id}; see `leftfold conflicts list`")))
        }
        (_, more) => Err(Failure::new(
            Exit::Usage,
            format!("the ids of {} conflicts begin with {id}; give more of the id", more + 1),
        )),
    }
}

/// Returns a prefix of the id that is most likely unique.
fn short(conflict: &Conflict) -> String {
    conflict.id().chars().take(12).collect()
}

fn in_json(conflict: &Conflict) -> Value {
    let entry = &conflict.entry;
    json!({
        "id": conflict.id(), "stream": conflict.stream, "revision": conflict.revision, "why": conflict.why,
        "since": conflict.since,
        "event": {
            "id": entry.id, "type": entry.kind, "time": entry.time, "data": entry.data, "metadata": entry.metadata,
        },
    })
}

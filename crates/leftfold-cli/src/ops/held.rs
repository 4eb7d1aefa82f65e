//! `leftfold held`: events that arrived early, and skipping of revisions that do not exist.

use leftfold::sequence::{Held, StreamState};
use leftfold::{Revision, Sequencer, Sequences as _, StreamId};
use leftfold_terminal::{Exit, Failure, Location, Out, count, shorten, table, thousands, time};
use serde_json::json;

use super::audit;
use crate::args::{SkipArgs, StreamArgs};

const PAGE: usize = 1_000;

pub(crate) async fn list_held<L: Location>(location: &L, out: &mut Out) -> Result<Exit, Failure> {
    let store = location.open_existing().await?;
    let mut rows = table(["stream", "missing", "since", "held", "requests", "last error"], &[3, 4]);
    let mut after = None;
    loop {
        let page = store.waiting(after, PAGE).await?;
        after = page.last().map(|(stream, _)| stream.clone());
        for (stream, state) in &page {
            let Some(waiting) = &state.waiting else { continue };
            let missing = missing(state);
            out.element(&json!({
                "stream": stream, "last": state.last, "waits_for": missing, "since": waiting.since,
                "held": waiting.events, "bytes": waiting.bytes, "highest": waiting.highest,
                "asked": waiting.asked, "ask_at": waiting.ask_at, "trouble": waiting.trouble,
            }))?;
            rows.add_row([
                stream.to_string(),
                missing.map_or_else(|| "none".to_owned(), range),
                time(waiting.since),
                thousands(waiting.events),
                thousands(waiting.asked.into()),
                shorten(waiting.trouble.as_deref().unwrap_or_default(), 60),
            ]);
        }
        if page.len() < PAGE {
            break;
        }
    }
    out.end_of_list()?;
    if rows.is_empty() {
        out.line("nothing is held")?;
    } else {
        out.line(rows)?;
    }
    Ok(Exit::Done)
}

/// Returns the first and the last revision that a stream lacks.
fn missing(state: &StreamState) -> Option<(u64, u64)> {
    let until = state.waiting.as_ref()?.until.0;
    let first = state.after().0 + 1;
    (first <= until).then_some((first, until))
}

fn range((first, last): (u64, u64)) -> String {
    if first == last { first.to_string() } else { format!("{first} to {last}") }
}

pub(crate) async fn show_held<L: Location>(
    location: &L,
    args: &StreamArgs,
    out: &mut Out,
) -> Result<Exit, Failure> {
    let stream = StreamId::new(&args.stream)?;
    let store = location.open_existing().await?;
    let limit = leftfold::log::Limit { events: PAGE, ..leftfold::log::Limit::default() };
    let page = store.held(vec![stream.clone()], limit).await?.remove(&stream).unwrap_or_default();
    let skipped = store.skipped(&stream).await?;
    let mut rows = table(["revision", "id", "type", "since", "data"], &[0]);
    for Held { revision, since, entry, .. } in &page.held {
        rows.add_row([
            revision.to_string(),
            entry.id.to_string(),
            entry.kind.to_string(),
            time(*since),
            shorten(entry.data.as_str(), 60),
        ]);
    }
    let held = page.held.iter().map(|held| {
        let Held { revision, previous, since, entry, .. } = held;
        json!({
            "revision": revision, "previous": previous, "since": since, "id": entry.id, "type": entry.kind,
            "time": entry.time, "data": entry.data, "metadata": entry.metadata,
        })
    });
    out.value(&json!({ "held": held.collect::<Vec<_>>(), "more": page.more, "skipped": skipped }))?;
    if page.held.is_empty() {
        out.line(format_args!("no event of {stream} is held"))?;
    } else {
        out.line(rows)?;
    }
    if page.more {
        out.line("and more after these")?;
    }
    for skipped in &skipped {
        let range = range((skipped.after.0 + 1, skipped.through.0));
        out.line(format_args!("skipped {range} at {}: {}", time(skipped.at), skipped.reason))?;
    }
    Ok(if page.held.is_empty() { Exit::No } else { Exit::Done })
}

pub(crate) async fn skip<L: Location>(location: &L, args: &SkipArgs, out: &mut Out) -> Result<Exit, Failure> {
    let stream = StreamId::new(&args.stream)?;
    let store = location.open_existing().await?;
    let sequencer = Sequencer::new(store.clone());
    let released = sequencer.skip(&stream, Revision(args.through), &args.reason).await?;
    let target = format!("{stream} through {}", args.through);
    let outcome = format!("{} released", count(released, "event"));
    audit::record(&store, "skip-held", &target, Some(&args.reason), &outcome).await?;
    out.value(&json!({ "stream": stream, "through": args.through, "released": released }))?;
    out.line(format_args!(
        "{stream} no longer waits for {}; {} released",
        args.through,
        count(released, "event")
    ))?;
    Ok(Exit::Done)
}

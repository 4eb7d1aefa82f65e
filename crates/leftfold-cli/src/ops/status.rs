//! `leftfold status`: the progress of each projection, and its parked records.

use leftfold::Sequencer;
use leftfold::inspect::ProjectionStatus;
use leftfold::sequence::{SequencerCounts, SequencerStatus};
use leftfold_terminal::{Exit, Failure, Location, Out, count, shorten, table, thousands, time};
use serde_json::json;

use crate::args::StatusArgs;
use crate::projections::Projections;

pub(crate) async fn status<L: Location>(
    location: &L,
    projections: &Projections,
    args: &StatusArgs,
    out: &mut Out,
) -> Result<Exit, Failure> {
    let documents = projections.open(location).await?;
    let all = documents.status().await?;
    // Leave out the activity in this process: it runs no projection.
    let shown = all.iter().map(|status| {
        json!({
            "projection": status.projection,
            "position": status.position,
            "head": status.head,
            "lag": status.lag,
            "documents": status.documents,
            "parked_documents": status.parked_documents,
            "parked_streams": status.parked_streams,
            "tally": status.tally,
            "generation": status.generations.live.number,
            "rebuild_needed": documents.have_code().then_some(status.rebuild_needed),
        })
    });
    let sequence = Sequencer::new(documents.store().clone()).status().await?;
    out.value(&json!({ "projections": shown.collect::<Vec<_>>(), "sequence": sequence }))?;
    if !out.is_json() {
        show(&all, out)?;
        show_sequence(&sequence, out)?;
    }
    let is_fine = |status: &ProjectionStatus| {
        status.lag == 0 && status.parked_documents == 0 && status.parked_streams == 0
    };
    Ok(if args.check && !all.iter().all(is_fine) { Exit::No } else { Exit::Done })
}

fn show(all: &[ProjectionStatus], out: &mut Out) -> Result<(), Failure> {
    if all.is_empty() {
        return Ok(out.line("no projection has run on this store")?);
    }
    let header = ["projection", "events", "behind", "documents", "parked", "retried"];
    let mut rows = table(header, &[1, 2, 3, 4, 5]);
    for status in all {
        rows.add_row([
            status.projection.clone(),
            thousands(status.tally.events),
            thousands(status.lag),
            thousands(status.documents),
            parked(status),
            thousands(status.tally.retried),
        ]);
    }
    out.line(rows)?;
    for status in all {
        let name = &status.projection;
        if status.rebuild_needed {
            out.line(format_args!(
                "{name}: other code built its documents; see `leftfold rebuild {name} --dry-run`"
            ))?;
        }
        if let Some(error) = &status.tally.last_error {
            out.line(format_args!("{name}: the last error was {}", shorten(error, 200)))?;
        }
    }
    Ok(())
}

/// Prints the deliveries, and those that are not in the log.
fn show_sequence(sequence: &SequencerStatus, out: &mut Out) -> Result<(), Failure> {
    let counts = sequence.counts;
    if counts != SequencerCounts::default() {
        let counts: Vec<_> = counts
            .named()
            .into_iter()
            .filter(|(_, number)| *number > 0)
            .map(|(name, number)| format!("{} {name}", thousands(number)))
            .collect();
        out.line(format_args!("deliveries: {}", counts.join(", ")))?;
    }
    if let (Some(stream), Some(since)) = (&sequence.waits_longest, &sequence.waits_since) {
        let held = count(sequence.held, "event");
        out.line(format_args!(
            "{held} came early and wait, {stream} since {}; see `leftfold held list`",
            time(*since)
        ))?;
    }
    if sequence.conflicts > 0 {
        let conflicts = count(sequence.conflicts, "event");
        out.line(format_args!("{conflicts} contradict the log; see `leftfold conflicts list`"))?;
    }
    if sequence.rejected > 0 {
        let rejected = count(sequence.rejected, "message");
        out.line(format_args!("{rejected} could not be read as events; see `leftfold rejected list`"))?;
    }
    Ok(())
}

fn parked(status: &ProjectionStatus) -> String {
    match status.parked_streams {
        0 => thousands(status.parked_documents),
        streams => format!("{} + {}", thousands(status.parked_documents), count(streams, "stream")),
    }
}

//! `leftfold status`: the progress of each projection, and its parked records.

use leftfold::inspect::ProjectionStatus;
use leftfold::sequence::SequencerCounts;
use leftfold::{Sequencer, sequence};
use serde_json::json;

use crate::args;
use crate::exit::{Exit, Failure};
use crate::models::Models;
use crate::output::{Out, count, shorten, table, thousands, time};
use crate::place::Place;

pub(crate) async fn status<P: Place>(
    place: &P,
    models: &Models,
    args: &args::Status,
    out: &mut Out,
) -> Result<Exit, Failure> {
    let app = models.open_existing(place).await?;
    let all = app.status().await?;
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
            "rebuild_needed": status.rebuild_needed,
        })
    });
    let sequence = Sequencer::new(app.store().clone()).status().await?;
    out.value(&json!({ "projections": shown.collect::<Vec<_>>(), "sequence": sequence }))?;
    if !out.is_json() {
        show(&all, out)?;
        show_sequence(&sequence, out)?;
    }
    let fine = |status: &ProjectionStatus| {
        status.lag == 0 && status.parked_documents == 0 && status.parked_streams == 0
    };
    Ok(if args.check && !all.iter().all(fine) { Exit::No } else { Exit::Done })
}

fn show(all: &[ProjectionStatus], out: &mut Out) -> Result<(), Failure> {
    let mut rows = table(
        ["projection", "events", "behind", "documents", "parked", "applied", "retried", "conflicts"],
        &[1, 2, 3, 4, 5, 6, 7],
    );
    for status in all {
        rows.add_row([
            status.projection.clone(),
            thousands(status.tally.events),
            thousands(status.lag),
            thousands(status.documents),
            parked(status),
            thousands(status.tally.applied),
            thousands(status.tally.retried),
            thousands(status.tally.conflicts),
        ]);
    }
    out.line(rows)?;
    for status in all {
        if status.rebuild_needed {
            let name = &status.projection;
            out.line(format_args!(
                "{name} was made by other code than there is now: see `leftfold rebuild {name}`"
            ))?;
        }
        if let Some(error) = &status.tally.last_error {
            out.line(format_args!("{}: the last failure was {}", status.projection, shorten(error, 200)))?;
        }
    }
    Ok(())
}

/// Prints the deliveries, and the stages before the log.
fn show_sequence(sequence: &sequence::SequencerStatus, out: &mut Out) -> Result<(), Failure> {
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
            "{held} came early and wait, {stream} since {}: see `held list`",
            time(*since)
        ))?;
    }
    if sequence.conflicts > 0 {
        let conflicts = count(sequence.conflicts, "event");
        out.line(format_args!("{conflicts} contradict what is there: see `conflicts list`"))?;
    }
    if sequence.rejected > 0 {
        let rejected = count(sequence.rejected, "message");
        out.line(format_args!("{rejected} could not be read as events: see `rejected list`"))?;
    }
    Ok(())
}

fn parked(status: &ProjectionStatus) -> String {
    match status.parked_streams {
        0 => thousands(status.parked_documents),
        streams => format!("{} + {} streams", thousands(status.parked_documents), thousands(streams)),
    }
}

//! `leftfold parked`: documents and streams that stopped at a failing event, and their retry.

use leftfold::documents::Parked;
use leftfold::fold::RepairOutcome;
use leftfold::{App, Collection, DocumentId, Store, StreamId, Unit};
use leftfold_terminal::{Exit, Failure, Location, Out, count, shorten, thousands, time};
use serde_json::json;

use super::audit;
use crate::args::{ParkedListArgs, RetryParkedArgs};
use crate::projections::{Projections, select_from};

const PAGE: usize = 100;

pub(crate) async fn list_parked<L: Location>(
    location: &L,
    projections: &Projections,
    args: &ParkedListArgs,
    out: &mut Out,
) -> Result<Exit, Failure> {
    let documents = projections.open(location).await?;
    let mut nothing = true;
    for collection in documents.collections(args.collection.as_deref()).await? {
        let mut after = None;
        loop {
            let page = documents.parked(&collection, after.as_ref(), PAGE).await?;
            let Some((last, _)) = page.last() else { break };
            (nothing, after) = (false, Some(last.clone()));
            for (unit, parked) in &page {
                show(&collection, unit, parked, out)?;
            }
        }
    }
    out.end_of_list()?;
    if nothing {
        out.line("nothing is parked")?;
    }
    Ok(Exit::Done)
}

fn show(collection: &Collection, unit: &Unit, parked: &Parked, out: &mut Out) -> Result<(), Failure> {
    let (kind, id) = parts(unit);
    out.element(&json!({ "collection": collection, "unit": kind, "id": id, "parked": parked }))?;
    let Parked { stream, revision, kind: event, attempts, waiting, since, error, .. } = parked;
    out.line(format_args!("{collection} {kind} {id}: stopped at {stream}@{revision} ({event})"))?;
    out.line(format_args!(
        "  since {}, after {}, {} waiting",
        time(*since),
        count((*attempts).into(), "attempt"),
        count(*waiting, "event"),
    ))?;
    Ok(out.line(format_args!("  {}", shorten(error, 200)))?)
}

pub(crate) async fn retry_parked<L: Location>(
    location: &L,
    projections: &Projections,
    args: &RetryParkedArgs,
    out: &mut Out,
) -> Result<Exit, Failure> {
    if args.collection.is_none() && !args.all {
        let message =
            "retrying: nothing is selected; name a read model and its documents, or select all with --all";
        return Err(Failure::new(Exit::Usage, message));
    }
    let app = projections.open_with_code(location, "parked retry").await?;
    let mut counts = RetryCounts { repaired: 0, failing: 0, dry_run: args.dry_run };
    for collection in select_from(&app, args.collection.as_deref())? {
        let collection = collection.as_str();
        let before = (counts.repaired, counts.failing);
        if args.ids.is_empty() {
            retry_all(&app, collection, args, &mut counts, out).await?;
        }
        for id in &args.ids {
            let unit = unit(args.streams, id)?;
            let outcome = app.retry(collection, &unit, args.dry_run).await?;
            counts.add(collection, &unit, &outcome, out)?;
        }
        let (repaired, failing) = (counts.repaired - before.0, counts.failing - before.1);
        if !args.dry_run && repaired + failing > 0 {
            let ids = if args.ids.is_empty() { String::new() } else { format!(": {}", args.ids.join(", ")) };
            let (target, reason) = (format!("{collection}{ids}"), args.reason.reason.as_deref());
            let outcome = format!("{repaired} repaired, {failing} still failing");
            audit::record(app.store(), "retry-parked", &target, reason, &outcome).await?;
        }
    }
    out.end_of_list()?;
    counts.sum_up(out)
}

async fn retry_all<S: Store>(
    app: &App<S>,
    collection: &str,
    args: &RetryParkedArgs,
    counts: &mut RetryCounts,
    out: &mut Out,
) -> Result<(), Failure> {
    let mut after = None;
    loop {
        let page = app.parked(collection, after.as_ref(), PAGE).await?;
        let Some((last, _)) = page.last() else { return Ok(()) };
        after = Some(last.clone());
        for (unit, _) in &page {
            if args.streams && matches!(unit, Unit::Document(_)) {
                continue;
            }
            let outcome = app.retry(collection, unit, args.dry_run).await?;
            counts.add(collection, unit, &outcome, out)?;
        }
    }
}

/// The counts of a retry.
struct RetryCounts {
    repaired: u64,
    failing: u64,
    dry_run: bool,
}

impl RetryCounts {
    /// Counts and prints the result of a retry.
    fn add(
        &mut self,
        collection: &str,
        unit: &Unit,
        outcome: &RepairOutcome,
        out: &mut Out,
    ) -> Result<(), Failure> {
        let (kind, id) = parts(unit);
        let (name, error) = match outcome {
            RepairOutcome::Repaired => ("repaired", None),
            RepairOutcome::StillFailing(error) => ("still-failing", Some(error)),
            RepairOutcome::NotParked => ("not-parked", None),
        };
        self.repaired += u64::from(*outcome == RepairOutcome::Repaired);
        self.failing += u64::from(error.is_some());
        out.element(&json!({
            "collection": collection, "unit": kind, "id": id, "outcome": name, "error": error,
        }))?;
        let result = match outcome {
            RepairOutcome::Repaired if self.dry_run => "would be repaired".to_owned(),
            RepairOutcome::Repaired => "repaired".to_owned(),
            RepairOutcome::StillFailing(error) => format!("still failing: {}", shorten(error, 200)),
            RepairOutcome::NotParked => "not parked".to_owned(),
        };
        Ok(out.line(format_args!("{collection} {kind} {id}: {result}"))?)
    }

    fn sum_up(&self, out: &mut Out) -> Result<Exit, Failure> {
        let repaired = if self.dry_run { "would be repaired" } else { "repaired" };
        let (number, failing) = (thousands(self.repaired), thousands(self.failing));
        match (self.repaired, self.failing) {
            (0, 0) => out.line("nothing to repair")?,
            (_, 0) => out.line(format_args!("{number} {repaired}"))?,
            _ => out.line(format_args!("{number} {repaired}, {failing} still failing"))?,
        }
        Ok(if self.failing == 0 { Exit::Done } else { Exit::No })
    }
}

fn unit(stream: bool, id: &str) -> Result<Unit, Failure> {
    Ok(if stream { Unit::Stream(StreamId::new(id)?) } else { Unit::Document(DocumentId::new(id)?) })
}

fn parts(unit: &Unit) -> (&'static str, &str) {
    match unit {
        Unit::Document(id) => ("document", id.as_str()),
        Unit::Stream(stream) => ("stream", stream.as_str()),
    }
}

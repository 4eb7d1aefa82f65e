//! `leftfold parked`: documents and streams that stopped at a failing event, and their retry.

use leftfold::documents::Parked;
use leftfold::fold::Mended;
use leftfold::{App, DocumentId, Store, StreamId, Unit};
use serde_json::json;

use super::audit;
use crate::args::{ParkedList, ParkedRetry};
use crate::exit::{Exit, Failure};
use crate::models::Models;
use crate::output::{Out, count, shorten, table, thousands};
use crate::place::Place;

const PAGE: usize = 100;

pub(crate) async fn list_parked<P: Place>(
    place: &P,
    models: &Models,
    args: &ParkedList,
    out: &mut Out,
) -> Result<Exit, Failure> {
    let collections = models.named(args.collection.as_deref())?;
    let app = models.open_existing(place).await?;
    let mut rows = table(["collection", "", "id", "event", "type", "waiting", "tried", "error"], &[5, 6]);
    for collection in collections {
        let mut after = None;
        loop {
            let page = app.parked(collection, after.as_ref(), PAGE).await?;
            let Some((last, _)) = page.last() else { break };
            after = Some(last.clone());
            for (unit, parked) in &page {
                let (what, id) = parts(unit);
                out.element(&json!({ "collection": collection, "unit": what, "id": id, "parked": parked }))?;
                rows.add_row(row(collection, unit, parked));
            }
        }
    }
    out.end_of_list()?;
    if rows.is_empty() {
        out.line("nothing is parked")?;
    } else {
        out.line(rows)?;
    }
    Ok(Exit::Done)
}

fn row(collection: &str, unit: &Unit, parked: &Parked) -> [String; 8] {
    let (what, id) = parts(unit);
    [
        collection.to_owned(),
        what.to_owned(),
        id.to_owned(),
        format!("{}@{}", parked.stream, parked.revision),
        parked.kind.to_string(),
        thousands(parked.waiting),
        thousands(parked.attempts.into()),
        shorten(&parked.error, 100),
    ]
}

pub(crate) async fn retry_parked<P: Place>(
    place: &P,
    models: &Models,
    args: &ParkedRetry,
    out: &mut Out,
) -> Result<Exit, Failure> {
    if args.collection.is_none() && !args.all {
        let message = "retrying: name a read model, and documents of it if not all, or everything with --all";
        return Err(Failure::new(Exit::Usage, message));
    }
    let collections = models.named(args.collection.as_deref())?;
    let app = models.open_existing(place).await?;
    let mut told = Told { repaired: 0, failing: 0, dry_run: args.dry_run };
    for collection in collections {
        let before = (told.repaired, told.failing);
        if args.ids.is_empty() {
            retry_all(&app, collection, args, &mut told, out).await?;
        }
        for id in &args.ids {
            let unit = unit(args.streams, id)?;
            let mended = app.retry(collection, &unit, args.dry_run).await?;
            told.tell(collection, &unit, &mended, out)?;
        }
        let (repaired, failing) = (told.repaired - before.0, told.failing - before.1);
        if !args.dry_run && repaired + failing > 0 {
            let ids = if args.ids.is_empty() { String::new() } else { format!(": {}", args.ids.join(", ")) };
            let (target, reason) = (format!("{collection}{ids}"), args.why.reason.as_deref());
            let outcome = format!("{repaired} repaired, {failing} still failing");
            audit::record(app.store(), "retry-parked", &target, reason, &outcome).await?;
        }
    }
    out.end_of_list()?;
    told.sum_up(out)
}

async fn retry_all<S: Store>(
    app: &App<S>,
    collection: &str,
    args: &ParkedRetry,
    told: &mut Told,
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
            let mended = app.retry(collection, unit, args.dry_run).await?;
            told.tell(collection, unit, &mended, out)?;
        }
    }
}

/// The counts of a retry.
struct Told {
    repaired: u64,
    failing: u64,
    dry_run: bool,
}

impl Told {
    fn tell(&mut self, collection: &str, unit: &Unit, mended: &Mended, out: &mut Out) -> Result<(), Failure> {
        let (what, id) = parts(unit);
        let (outcome, error) = match mended {
            Mended::Repaired => ("repaired", None),
            Mended::StillFailing(error) => ("still-failing", Some(error)),
            Mended::NotParked => ("not-parked", None),
        };
        self.repaired += u64::from(*mended == Mended::Repaired);
        self.failing += u64::from(error.is_some());
        out.element(&json!({
            "collection": collection, "unit": what, "id": id, "outcome": outcome, "error": error,
        }))?;
        let said = match mended {
            Mended::Repaired if self.dry_run => "would be repaired".to_owned(),
            Mended::Repaired => "repaired".to_owned(),
            Mended::StillFailing(error) => format!("still fails: {}", shorten(error, 200)),
            Mended::NotParked => "is not parked".to_owned(),
        };
        Ok(out.line(format_args!("{collection} {what} {id}: {said}"))?)
    }

    fn sum_up(&self, out: &mut Out) -> Result<Exit, Failure> {
        let repaired = if self.dry_run { "would be repaired" } else { "repaired" };
        let (mended, failing) = (thousands(self.repaired), count(self.failing, "other"));
        match (self.repaired, self.failing) {
            (0, 0) => out.line("nothing to repair")?,
            (_, 0) => out.line(format_args!("{mended} {repaired}"))?,
            _ => out.line(format_args!("{mended} {repaired}, {failing} still failing"))?,
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

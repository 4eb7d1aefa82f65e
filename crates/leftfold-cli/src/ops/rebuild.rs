//! `leftfold rebuild`, `undo` and `verify`: rebuilds of documents beside the live ones, and
//! comparison of documents with the log.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use leftfold::inspect::{Differing, FieldChange, Sample};
use leftfold::rebuild::{Difference, Rebuild};
use leftfold::{App, Store};
use leftfold_terminal::{Exit, Failure, Location, Out, brief_difference, count};
use serde_json::json;

use super::audit;
use crate::args::{RebuildArgs, UndoArgs, VerifyArgs};
use crate::projections::{Projections, select_from};

/// The interval at which progress is shown.
const TICK: Duration = Duration::from_millis(200);

pub(crate) async fn rebuild<L: Location>(
    location: &L,
    projections: &Projections,
    args: &RebuildArgs,
    out: &mut Out,
) -> Result<Exit, Failure> {
    let collection = &args.collection;
    let app = projections.open_with_code(location, "rebuild").await?;
    select_from(&app, Some(collection))?;
    let reason = args.reason.reason.as_deref();
    if args.cancel {
        let cancelled = app.cancel_rebuild(collection).await?;
        if cancelled {
            audit::record(app.store(), "cancel-rebuild", collection, reason, "cancelled").await?;
        }
        out.value(&json!({ "collection": collection, "cancelled": cancelled }))?;
        out.line(if cancelled { "cancelled; the live documents stay" } else { "nothing is being rebuilt" })?;
        return Ok(Exit::Done);
    }
    let rebuild = app.rebuild(collection).await?;
    let generation = rebuild.generation();
    let built = tokio::select! {
        built = build(&rebuild, args.samples) => built,
        _ = tokio::signal::ctrl_c() => {
            let message = format!(
                "rebuilding {collection}: interrupted; resume with the same command, or cancel with --cancel"
            );
            Err(Failure::new(Exit::Interrupted, message))
        }
    };
    let difference = match built {
        Ok(difference) if !args.dry_run => {
            rebuild.switch().await?;
            let outcome = format!("switched to generation {generation}");
            audit::record(app.store(), "rebuild", collection, reason, &outcome).await?;
            difference
        }
        built => {
            rebuild.leave().await;
            let outcome = match &built {
                Ok(_) => format!("generation {generation} is built, but not live"),
                Err(failure) => format!("generation {generation} is not built: {failure}"),
            };
            audit::record(app.store(), "rebuild", collection, reason, &outcome).await?;
            built?
        }
    };
    out.value(&json!({
        "collection": collection, "generation": generation, "switched": !args.dry_run, "difference": difference,
    }))?;
    show(&difference, out)?;
    out.line(if args.dry_run {
        format!("{collection} is not switched; switch with the same command without --dry-run, or cancel with --cancel")
    } else {
        format!("{collection} is switched; `leftfold undo {collection}` switches back")
    })?;
    Ok(Exit::Done)
}

/// Waits for the build, with a progress bar for people, and compares it with the live documents.
async fn build<S: Store>(rebuild: &Rebuild<S>, samples: usize) -> Result<Difference, Failure> {
    let style = "{wide_bar} {human_pos} of {human_len} events, {msg}";
    let bar = ProgressBar::new(0)
        .with_style(ProgressStyle::with_template(style).unwrap_or_else(|_| ProgressStyle::default_bar()));
    let mut tick = tokio::time::interval(TICK);
    let built = rebuild.built();
    tokio::pin!(built);
    loop {
        tokio::select! {
            built = &mut built => break built?,
            _ = tick.tick() => {
                let progress = rebuild.progress().await?;
                bar.set_length(progress.total);
                bar.set_position(progress.done);
                let left = progress.remaining.map(|left| indicatif::HumanDuration(left).to_string());
                let left = left.unwrap_or_else(|| "…".to_owned());
                bar.set_message(match progress.last_error {
                    Some(error) => format!("waiting: {error}"),
                    None => format!("{:.0}/s, {left} left", progress.events_per_second),
                });
            }
        }
    }
    bar.finish_and_clear();
    Ok(rebuild.difference(samples).await?)
}

fn show(difference: &Difference, out: &mut Out) -> Result<(), Failure> {
    let Difference { compared, differing, only_live, only_rebuilt, parked, moving, samples } = difference;
    let compared = count(*compared, "document");
    if difference.is_none() {
        out.line(format_args!("{compared} compared: all are equal"))?;
    } else {
        out.line(format_args!(
            "{compared} compared: {differing} differ, {only_live} deleted, {only_rebuilt} new"
        ))?;
    }
    for sample in samples {
        out.line(format_args!("  {}", sample.id))?;
        let (live, rebuilt) = brief_difference(sample.live.as_ref(), sample.rebuilt.as_ref());
        out.line(format_args!("    live:    {live}\n    rebuilt: {rebuilt}"))?;
    }
    if parked + moving > 0 {
        out.line(format_args!("not compared: {parked} parked, {moving} kept changing"))?;
    }
    Ok(())
}

pub(crate) async fn undo<L: Location>(
    location: &L,
    projections: &Projections,
    args: &UndoArgs,
    out: &mut Out,
) -> Result<Exit, Failure> {
    let collection = &args.collection;
    let app = projections.open_with_code(location, "undo").await?;
    select_from(&app, Some(collection))?;
    app.undo(collection).await?;
    audit::record(app.store(), "undo", collection, args.reason.reason.as_deref(), "switched back").await?;
    out.value(&json!({ "collection": collection, "undone": true }))?;
    out.line(format_args!(
        "{collection} is switched back to the documents from before the last rebuild, and up to date"
    ))?;
    Ok(Exit::Done)
}

pub(crate) async fn verify<L: Location>(
    location: &L,
    projections: &Projections,
    args: &VerifyArgs,
    out: &mut Out,
) -> Result<Exit, Failure> {
    let app = projections.open_with_code(location, "verify").await?;
    let mut differs = false;
    for collection in select_from(&app, args.collection.as_deref())? {
        differs |= verify_one(&app, collection.as_str(), args.sample, out).await?;
    }
    out.end_of_list()?;
    Ok(if differs { Exit::No } else { Exit::Done })
}

/// Returns whether something differs.
async fn verify_one<S: Store>(
    app: &App<S>,
    collection: &str,
    sample: Option<usize>,
    out: &mut Out,
) -> Result<bool, Failure> {
    const SHOWN: usize = 100;
    let mut found = Vec::new();
    let tell = |differing: Differing| {
        if found.len() < SHOWN {
            found.push(differing);
        }
    };
    let verified = app.verify(collection, sample.map_or(Sample::All, Sample::Some), tell).await?;
    out.element(&json!({ "collection": collection, "verified": verified, "differing": found }))?;
    out.line(format_args!(
        "{collection}: {} checked, {} differ, {} parked, {} kept changing",
        count(verified.checked, "document"),
        verified.differing,
        verified.parked,
        verified.moving
    ))?;
    for Differing { id, stored, folded, changes, left_out, error } in &found {
        let fault = match (stored, folded, error) {
            (_, _, Some(error)) => format!(": its events can't be folded: {error}"),
            (true, false, None) => ": stored, but its events make no document".to_owned(),
            (false, true, None) => ": not stored".to_owned(),
            _ => String::new(),
        };
        out.line(format_args!("  {id}{fault}"))?;
        for FieldChange { path, before, after, .. } in changes {
            let path = if path.is_empty() { "the document" } else { path };
            let (stored, folded) = brief_difference(before.as_ref(), after.as_ref());
            out.line(format_args!("    {path}: stored {stored}, folded {folded}"))?;
        }
        if *left_out > 0 {
            out.line(format_args!("    … and {} more", count(*left_out, "field")))?;
        }
    }
    Ok(verified.differing > 0)
}

//! `leftfold rebuild`, `undo` and `verify`: rebuilds of documents beside the live ones, and
//! comparison of documents with the log.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use leftfold::inspect::{Differing, FieldChange, Sample};
use leftfold::rebuild::{Difference, Rebuild};
use leftfold::{App, Store};
use serde_json::json;

use super::audit;
use crate::args;
use crate::exit::{Exit, Failure};
use crate::models::Models;
use crate::output::{Out, brief_difference, count};
use crate::place::Place;

/// The interval at which progress is shown.
const TICK: Duration = Duration::from_millis(200);

pub(crate) async fn rebuild<P: Place>(
    place: &P,
    models: &Models,
    args: &args::Rebuild,
    out: &mut Out,
) -> Result<Exit, Failure> {
    let collection = &args.one.collection;
    models.known(collection)?;
    let app = models.open_existing(place).await?;
    let reason = args.why.reason.as_deref();
    if args.cancel {
        let cancelled = app.cancel_rebuild(collection).await?;
        if cancelled {
            audit::record(app.store(), "cancel-rebuild", collection, reason, "given up").await?;
        }
        out.value(&json!({ "collection": collection, "cancelled": cancelled }))?;
        out.line(if cancelled { "given up; what is live stays" } else { "nothing is being rebuilt" })?;
        return Ok(Exit::Done);
    }
    let rebuild = app.rebuild(collection).await?;
    let generation = rebuild.generation();
    let built = tokio::select! {
        built = build(&rebuild, args.samples) => built,
        _ = tokio::signal::ctrl_c() => {
            let message = format!(
                "rebuilding {collection}: interrupted; the same command goes on where it was, --cancel gives it up"
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
                Ok(_) => format!("generation {generation} is built, and not switched to"),
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
        format!("{collection} is not switched: the same command without --dry-run goes on and switches, --cancel gives it up")
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
                let left = progress.remaining.map_or_else(|| "…".to_owned(), |left| indicatif::HumanDuration(left).to_string());
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
        out.line(format_args!("{compared} compared: all are the same"))?;
    } else {
        out.line(format_args!(
            "{compared} compared: {differing} differ, {only_live} are gone, {only_rebuilt} are new"
        ))?;
    }
    for sample in samples {
        out.line(format_args!("  {}", sample.id))?;
        let (live, rebuilt) = brief_difference(sample.live.as_ref(), sample.rebuilt.as_ref());
        out.line(format_args!("    live:    {live}\n    rebuilt: {rebuilt}"))?;
    }
    if parked + moving > 0 {
        out.line(format_args!("not compared: {parked} parked, {moving} that kept changing"))?;
    }
    Ok(())
}

pub(crate) async fn undo<P: Place>(
    place: &P,
    models: &Models,
    args: &args::Undo,
    out: &mut Out,
) -> Result<Exit, Failure> {
    let collection = &args.one.collection;
    models.known(collection)?;
    let app = models.open_existing(place).await?;
    app.undo(collection).await?;
    audit::record(app.store(), "undo", collection, args.why.reason.as_deref(), "switched back").await?;
    out.value(&json!({ "collection": collection, "undone": true }))?;
    out.line(format_args!("{collection} is what it was before the last rebuild, and up to date"))?;
    Ok(Exit::Done)
}

pub(crate) async fn verify<P: Place>(
    place: &P,
    models: &Models,
    args: &args::Verify,
    out: &mut Out,
) -> Result<Exit, Failure> {
    let collections = models.named(args.collection.as_deref())?;
    let app = models.open_existing(place).await?;
    let mut differs = false;
    for collection in collections {
        differs |= verify_one(&app, collection, args.sample, out).await?;
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
        let what = match (stored, folded, error) {
            (_, _, Some(error)) => format!(": its events can't be folded: {error}"),
            (true, false, None) => ": it is stored, and its events make no document".to_owned(),
            (false, true, None) => ": it is not stored".to_owned(),
            _ => String::new(),
        };
        out.line(format_args!("  {id}{what}"))?;
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

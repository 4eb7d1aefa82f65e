//! The result of the demo, for people and for machines.

use std::collections::BTreeSet;
use std::time::Duration;

use leftfold::inspect::ProjectionStatus;
use leftfold_terminal::{Exit, Failure, Out, brief, count, table, thousands};
use serde::Serialize;
use serde_json::Value;

use crate::args::DemoArgs;
use crate::demo::Feeding;
use crate::feeds::Chaos;
use crate::repairs::{self, Repairs, Sample};
use crate::verify::{Difference, Verdict};

#[derive(Debug, Serialize)]
pub(crate) struct Report {
    /// `true` if every read model equals its fold, and nothing was lost.
    pub(crate) equal: bool,
    seed: u64,
    events: u64,
    pub(crate) appended: u64,
    feeding: Feeding,
    pub(crate) kills: u64,
    writers: u64,
    workers: u64,
    /// The time until everything was appended, folded and repaired.
    seconds: f64,
    events_per_second: f64,
    projections: Vec<Projection>,
    /// The number of parked units when everything was appended and folded, before the repair.
    parked_before_repair: u64,
    parked_samples: Vec<Sample>,
    /// The number of parked units after the repair.
    parked_at_the_end: u64,
    /// Problems other than differing documents.
    complaints: Vec<String>,
    verdict: Verdict,
    /// The store, if it is permanent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) store: Option<String>,
}

/// The counts of a projection.
#[derive(Debug, Serialize)]
struct Projection {
    name: String,
    documents: u64,
    applied: u64,
    skipped: u64,
    retried: u64,
    parked: u64,
    repaired: u64,
    conflicts: u64,
}

impl Report {
    #[expect(clippy::cast_precision_loss, reason = "a rate for people to read")]
    pub(crate) fn new(
        args: &DemoArgs,
        seed: u64,
        took: Duration,
        (before, all): (&[ProjectionStatus], &[ProjectionStatus]),
        repairs: &Repairs,
        feeding: Feeding,
        verdict: Verdict,
    ) -> Self {
        let seconds = took.as_secs_f64();
        // The store may contain counts of earlier runs.
        let projection = |(before, status): (&ProjectionStatus, &ProjectionStatus)| Projection {
            name: status.projection.clone(),
            documents: status.documents,
            applied: status.tally.applied - before.tally.applied,
            skipped: status.tally.skipped - before.tally.skipped,
            retried: status.tally.retried - before.tally.retried,
            parked: status.tally.parked - before.tally.parked,
            repaired: repairs.repaired.get(status.projection.as_str()).copied().unwrap_or(0),
            conflicts: status.tally.conflicts - before.tally.conflicts,
        };
        Self {
            equal: false,
            seed,
            events: args.events,
            appended: 0,
            feeding,
            kills: 0,
            writers: args.writers,
            workers: args.workers,
            seconds,
            events_per_second: args.events as f64 / seconds.max(f64::EPSILON),
            projections: before.iter().zip(all).map(projection).collect(),
            parked_before_repair: repairs.parked_before,
            parked_samples: repairs.samples.clone(),
            parked_at_the_end: repairs::parked(all),
            complaints: Vec::new(),
            verdict,
            store: None,
        }
    }

    /// Decides whether the run succeeded, given the number of events in the log before.
    pub(crate) fn judge(&mut self, before: u64) {
        let expected = before + self.events;
        if self.verdict.events != expected {
            let (stored, expected) = (thousands(self.verdict.events), thousands(expected));
            self.complaints.push(format!("the log has {stored} events instead of {expected}"));
        }
        if let Feeding::Chaos(chaos) = &self.feeding
            && chaos.rejected != chaos.poison
        {
            let (poison, rejected) = (thousands(chaos.poison), thousands(chaos.rejected));
            self.complaints.push(format!("{rejected} messages were rejected instead of {poison}"));
        }
        if self.parked_at_the_end > 0 {
            let still = thousands(self.parked_at_the_end);
            self.complaints.push(format!("{still} still parked after the repair"));
        }
        self.equal = self.verdict.equal && self.complaints.is_empty();
    }

    /// Prints the report, and returns the exit status.
    pub(crate) fn end(&self, out: &mut Out) -> Result<Exit, Failure> {
        out.value(self)?;
        let mut rows = table(
            ["read model", "documents", "applied", "skipped", "retried", "parked", "repaired"],
            &[1, 2, 3, 4, 5, 6],
        );
        for one in &self.projections {
            let numbers = [one.documents, one.applied, one.skipped, one.retried, one.parked, one.repaired];
            rows.add_row(std::iter::once(one.name.clone()).chain(numbers.map(thousands)));
        }
        out.line(rows)?;
        match &self.feeding {
            Feeding::Chaos(chaos) => print_chaos(chaos, self.writers, out)?,
            Feeding::Orderly { duplicates } => out.line(format_args!(
                "{} appended by {}; {} repeated with the same event ids, and recognized",
                count(self.appended, "event"),
                count(self.writers, "writer"),
                count(*duplicates, "append"),
            ))?,
        }
        out.line(format_args!("{} killed {}", count(self.workers, "worker"), count(self.kills, "time")))?;
        out.line(format_args!(
            "{} events per second: appended, folded into {} read models and repaired in {:.1} s (seed {})",
            thousands(rounded(self.events_per_second)),
            self.projections.len(),
            self.seconds,
            self.seed,
        ))?;
        if let Some(store) = &self.store {
            out.line(format_args!("kept in {store}: try `leftfold status --store {store}`"))?;
        }
        for complaint in &self.complaints {
            out.line(complaint)?;
        }
        print_differences(&self.verdict, out)?;
        let answer = if self.equal { "yes" } else { "no" };
        out.line(format_args!("every read model equals its fold: {answer}"))?;
        Ok(if self.equal { Exit::Done } else { Exit::No })
    }
}

fn print_chaos(chaos: &Chaos, feeds: u64, out: &mut Out) -> Result<(), Failure> {
    let Chaos { delivered, twice, early, lost, healed, poison, rejected } = *chaos;
    out.line(format_args!("{} delivered by {}:", count(delivered, "message"), count(feeds, "feed")))?;
    let lines = [
        (twice, "delivered twice, and recognized".to_owned()),
        (early, "delivered early, and held".to_owned()),
        (lost, format!("never delivered; the origin resupplied {}", thousands(healed))),
        (poison, format!("no events; {} rejected", thousands(rejected))),
    ];
    for (number, fate) in lines {
        out.line(format_args!("{:>9} {fate}", thousands(number)))?;
    }
    Ok(())
}

impl Verdict {
    /// Prints the result of the check alone, and returns the exit status.
    pub(crate) fn end(&self, out: &mut Out) -> Result<Exit, Failure> {
        out.value(self)?;
        print_differences(self, out)?;
        let documents = count(self.documents.values().sum(), "document");
        out.line(format_args!("{} make {documents}", count(self.events, "event")))?;
        let answer = if self.equal { "yes" } else { "no" };
        out.line(format_args!("every read model equals its fold: {answer}"))?;
        Ok(if self.equal { Exit::Done } else { Exit::No })
    }
}

fn print_differences(verdict: &Verdict, out: &mut Out) -> Result<(), Failure> {
    for Difference { collection, id, stored, expected } in &verdict.differences {
        match (stored, expected) {
            (Some(Value::Object(stored)), Some(Value::Object(expected))) => {
                out.line(format_args!("{collection} {id} differs:"))?;
                let fields: BTreeSet<_> = stored.keys().chain(expected.keys()).collect();
                for field in fields.into_iter().filter(|field| stored.get(*field) != expected.get(*field)) {
                    let (stored, expected) = (brief(stored.get(field)), brief(expected.get(field)));
                    out.line(format_args!("  {field} is {stored} instead of {expected}"))?;
                }
            }
            (None, expected) => {
                out.line(format_args!("{collection} {id} is missing: {}", brief(expected.as_ref())))?;
            }
            (stored, None) => {
                out.line(format_args!("{collection} {id} should not exist: {}", brief(stored.as_ref())))?;
            }
            (stored, expected) => {
                let (stored, expected) = (brief(stored.as_ref()), brief(expected.as_ref()));
                out.line(format_args!("{collection} {id} is {stored} instead of {expected}"))?;
            }
        }
    }
    if verdict.differing > verdict.differences.len() as u64 {
        out.line(format_args!("{} in all", count(verdict.differing, "difference")))?;
    }
    Ok(())
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rate for people to read")]
fn rounded(rate: f64) -> u64 {
    rate.round() as u64
}

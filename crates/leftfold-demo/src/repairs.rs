//! Repairs: parked documents and streams are folded again with code that does not fail.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use leftfold::fold::RepairOutcome;
use leftfold::inspect::ProjectionStatus;
use leftfold::{App, Store, Unit};
use leftfold_terminal::{Failure, count, shorten, thousands};
use serde::Serialize;

use crate::shop::COLLECTIONS;

/// The number of parked documents to show.
const SHOWN: usize = 5;

/// The parked documents and streams, and the outcome of their repair.
#[derive(Debug, Default)]
pub(crate) struct Repairs {
    /// Repaired documents and streams by read model.
    pub(crate) repaired: BTreeMap<&'static str, u64>,
    /// The number of parked documents and streams when everything was appended and folded.
    pub(crate) parked_before: u64,
    /// Some of them.
    pub(crate) samples: Vec<Sample>,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct Sample {
    pub(crate) collection: &'static str,
    pub(crate) id: String,
    pub(crate) error: String,
    pub(crate) waiting: u64,
}

impl Repairs {
    /// Retries everything that is parked.
    pub(crate) async fn retry_all<S: Store>(&mut self, app: &App<S>) -> Result<(), Failure> {
        for collection in COLLECTIONS {
            let repaired = self.repaired.entry(collection).or_default();
            let tell = |_: &Unit, outcome: &RepairOutcome| {
                *repaired += u64::from(*outcome == RepairOutcome::Repaired);
            };
            app.retry_all(collection, false, tell).await?;
        }
        Ok(())
    }

    /// Retries until nothing is parked. The check finds failures that remain.
    pub(crate) async fn retry_until_none<S: Store>(&mut self, app: &App<S>) -> Result<(), Failure> {
        const MOST: usize = 5;
        for _ in 0..MOST {
            self.retry_all(app).await?;
            if parked(&app.status().await?) == 0 {
                break;
            }
        }
        Ok(())
    }

    /// Counts parked documents and streams.
    pub(crate) async fn count_parked<S: Store>(&mut self, app: &App<S>) -> Result<(), Failure> {
        self.parked_before = parked(&app.status().await?);
        for collection in COLLECTIONS {
            for (unit, parked) in app.parked(collection, None, SHOWN).await? {
                let id = match unit {
                    Unit::Document(id) => id.to_string(),
                    Unit::Stream(stream) => stream.to_string(),
                };
                self.samples.push(Sample { collection, id, error: parked.error, waiting: parked.waiting });
            }
        }
        self.samples.truncate(4 * SHOWN);
        Ok(())
    }

    /// Describes the parked documents, for people.
    pub(crate) fn describe(&self) -> String {
        let mut text = match self.parked_before {
            0 => "every event is folded, and nothing is parked".to_owned(),
            parked => {
                format!("every event is folded, except in {}: repairing", count(parked, "parked document"))
            }
        };
        for sample in self.samples.iter().take(SHOWN) {
            let Sample { collection, id, error, waiting } = sample;
            let waiting = thousands(*waiting);
            let _ = write!(text, "\n  {collection} {id}: {} ({waiting} waiting)", shorten(error, 80));
        }
        text
    }
}

/// Returns the total number of parked documents and streams.
pub(crate) fn parked(all: &[ProjectionStatus]) -> u64 {
    all.iter().map(|status| status.parked_documents + status.parked_streams).sum()
}

//! Repairs: parked documents and streams are folded again with code that does not fail.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use leftfold::fold::Mended;
use leftfold::inspect::ProjectionStatus;
use leftfold::{App, Store, Unit};
use serde::Serialize;

use crate::exit::Failure;
use crate::models::COLLECTIONS;
use crate::output::{count, shorten, thousands};

/// The number of parked documents to show.
const SHOWN: usize = 5;

/// The parked documents and streams, and the outcome of their repair.
#[derive(Debug, Default)]
pub(super) struct Mending {
    /// Repaired documents and streams by read model.
    pub(super) repaired: BTreeMap<&'static str, u64>,
    /// The number of parked documents and streams when everything was appended and folded.
    pub(super) parked_at_the_end: u64,
    /// Some of them.
    pub(super) samples: Vec<Sample>,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct Sample {
    pub(super) collection: &'static str,
    pub(super) id: String,
    pub(super) error: String,
    pub(super) waiting: u64,
}

impl Mending {
    /// Retries everything that is parked. Returns whether all repairs succeeded.
    pub(super) async fn mend<S: Store>(&mut self, app: &App<S>) -> Result<bool, Failure> {
        let mut whole = true;
        for collection in COLLECTIONS {
            let repaired = self.repaired.entry(collection).or_default();
            let tell = |_: &Unit, mended: &Mended| match mended {
                Mended::Repaired => *repaired += 1,
                Mended::NotParked => {}
                Mended::StillFailing(_) => whole = false,
            };
            app.retry_all(collection, false, tell).await?;
        }
        Ok(whole)
    }

    /// Repairs until nothing is parked. The check finds failures that remain.
    pub(super) async fn mend_all<S: Store>(&mut self, app: &App<S>) -> Result<(), Failure> {
        const MOST: usize = 5;
        for _ in 0..MOST {
            self.mend(app).await?;
            if parked(&app.status().await?) == 0 {
                break;
            }
        }
        Ok(())
    }

    /// Counts parked documents and streams.
    pub(super) async fn look<S: Store>(&mut self, app: &App<S>) -> Result<(), Failure> {
        self.parked_at_the_end = parked(&app.status().await?);
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
    pub(super) fn found(&self) -> String {
        let mut text = match self.parked_at_the_end {
            0 => "all is folded, and nothing is parked".to_owned(),
            parked => format!("all is folded, but for {} parked: mending", count(parked, "document")),
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
pub(super) fn parked(all: &[ProjectionStatus]) -> u64 {
    all.iter().map(|status| status.parked_documents + status.parked_streams).sum()
}

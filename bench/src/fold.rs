//! Measures folding: the parts that were requested, or all that suit the store.

use clap::ValueEnum;

use crate::report::{Measurement, Result};
use crate::subject::Subject;
use crate::{append, catch_up, growth, latency};

/// A part of the measurements.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Part {
    CatchUp,
    PerEvent,
    Append,
    Latency,
    Growth,
    Traffic,
}

/// The measurements to take.
pub(crate) struct Plan {
    pub(crate) only: Vec<Part>,
    pub(crate) rounds: usize,
    pub(crate) events: Option<u64>,
}

impl Plan {
    /// Takes the measurements.
    pub(crate) async fn measure<S: Subject>(&self, subject: &S) -> Result<Vec<Measurement>> {
        let wanted = |part| if self.only.is_empty() { S::PARTS } else { &self.only }.contains(&part);
        let mut measurements = Vec::new();
        if wanted(Part::CatchUp) || wanted(Part::PerEvent) {
            let events = self.events.unwrap_or(S::EVENTS);
            measurements
                .extend(catch_up::measure(subject, events, self.rounds, wanted(Part::PerEvent)).await?);
        }
        if wanted(Part::Append) {
            measurements.extend(append::measure(subject, self.rounds).await?);
        }
        if wanted(Part::Latency) {
            measurements.extend(latency::measure(subject).await?);
        }
        if wanted(Part::Growth) {
            measurements.extend(growth::measure(subject).await?);
        }
        if wanted(Part::Traffic) {
            measurements.extend(subject.traffic().await?);
        }
        Ok(measurements)
    }
}

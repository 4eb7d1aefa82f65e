//! Ingesting: deliveries are grouped by partition and stream, settled and answered.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tokio::task::JoinSet;

use super::counts::SequencerCounts;
use super::delivery::{Delivery, IngestAnswer, Policy, Refusal};
use super::sequencer::{Inner, Sequencer};
use super::store::Sequences;
use crate::error::{Error, Kind, Result};
use crate::event::{Partition, StreamId};
use crate::log::check_entries;
use crate::mutant;

impl<S: Sequences + Clone> Sequencer<S> {
    /// Ingests deliveries of any streams, in order of arrival, and returns an answer for each.
    ///
    /// When it returns, all answers are durable. If it fails, some deliveries may be stored and
    /// others not: deliver them again.
    pub async fn ingest(&self, policy: Policy, deliveries: Vec<Delivery>) -> Result<Vec<IngestAnswer>> {
        self.ingest_as(Intake { policy, is_resupplied: false }, deliveries).await
    }

    /// Ingests deliveries that a resupplier was asked for. They have revisions.
    pub(super) async fn ingest_resupplied(&self, deliveries: Vec<Delivery>) -> Result<Vec<IngestAnswer>> {
        mutant!(HealTwice => return self.ingest_as(Intake { policy: Policy::Arrival, is_resupplied: true }, deliveries).await);
        self.ingest_as(Intake { policy: Policy::Contiguous, is_resupplied: true }, deliveries).await
    }

    async fn ingest_as(&self, intake: Intake, deliveries: Vec<Delivery>) -> Result<Vec<IngestAnswer>> {
        let store = &self.0.store;
        let mut answers: Vec<Option<IngestAnswer>> = vec![None; deliveries.len()];
        let mut parts: BTreeMap<Partition, Vec<(usize, Delivery)>> = BTreeMap::new();
        for (number, delivery) in deliveries.into_iter().enumerate() {
            match check_entries(std::slice::from_ref(&*delivery.entry), store.max_event_bytes()) {
                Ok(()) => {
                    let partition = Partition::of(&delivery.stream, store.partitions());
                    parts.entry(partition).or_default().push((number, delivery));
                }
                Err(invalid) => {
                    let answer = IngestAnswer::Refused(Refusal::Invalid(invalid));
                    let mut counts = SequencerCounts::default();
                    counts.answered(&answer);
                    self.0.cache().count_unstored(counts);
                    answers[number] = Some(answer);
                }
            }
        }
        let mut in_flight = JoinSet::new();
        let mut parts = parts.into_iter();
        let first = parts.next();
        for (partition, deliveries) in parts {
            let inner = Arc::clone(&self.0);
            in_flight.spawn(async move { inner.ingest(partition, intake, deliveries).await });
        }
        let mut failed = None;
        let mut collect = |answered: Result<Vec<(usize, IngestAnswer)>>| match answered {
            Ok(answered) => answered.into_iter().for_each(|(number, answer)| answers[number] = Some(answer)),
            Err(error) => failed = Some(error),
        };
        if let Some((partition, deliveries)) = first {
            collect(self.0.ingest(partition, intake, deliveries).await);
        }
        while let Some(ended) = in_flight.join_next().await {
            let stopped =
                |_| Error::new(Kind::Stopped, "ingesting deliveries was stopped; deliver them again");
            collect(ended.map_err(stopped).and_then(|answered| answered));
        }
        if let Some(error) = failed {
            return Err(error);
        }
        // A missing answer would shift the answers of the following deliveries.
        answers.into_iter().collect::<Option<_>>().ok_or_else(|| {
            Error::new(
                Kind::Store,
                "ingesting deliveries: a delivery got no answer; deliver them again, and report this bug",
            )
        })
    }
}

/// The way in which deliveries are ingested.
#[derive(Clone, Copy)]
pub(super) struct Intake {
    pub(super) policy: Policy,
    /// `true` if a resupplier delivers them.
    pub(super) is_resupplied: bool,
}

/// The deliveries of a partition by stream, each with a number of the caller's.
pub(super) type ByStream = BTreeMap<StreamId, Vec<(usize, Delivery)>>;

impl<S: Sequences + Clone> Inner<S> {
    /// Ingests deliveries of one partition.
    async fn ingest(
        &self,
        partition: Partition,
        intake: Intake,
        deliveries: Vec<(usize, Delivery)>,
    ) -> Result<Vec<(usize, IngestAnswer)>> {
        let mut streams: ByStream = BTreeMap::new();
        for (number, delivery) in deliveries {
            streams.entry(delivery.stream.clone()).or_default().push((number, delivery));
        }
        let mut answers = Vec::new();
        let mut more = BTreeSet::new();
        while !streams.is_empty() {
            let (plan, before) = self.settle(partition, intake, &streams).await?;
            streams.retain(|stream, _| plan.later.contains(stream));
            more.extend(plan.more.iter().cloned());
            answers.extend(plan.answers(before));
        }
        self.release(partition, more).await?;
        Ok(answers)
    }
}

//! Settling: writes a plan under guard, and plans again if another process was faster.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use super::ingest::{ByStream, Intake};
use super::plan::Plan;
use super::sequencer::Inner;
use super::store::{Sequences, Settled};
use crate::backoff::Backoff;
use crate::error::{Error, Kind, Result};
use crate::event::{Partition, Position, StreamId};
use crate::mutant;

impl<S: Sequences + Clone> Inner<S> {
    /// Plans and settles until it succeeds. Returns the plan, and the position before the first new
    /// event.
    pub(super) async fn settle(
        &self,
        partition: Partition,
        intake: Intake,
        streams: &ByStream,
    ) -> Result<(Plan, Position)> {
        let backoff = Backoff::default().first(Duration::from_millis(1)).most(Duration::from_millis(200));
        let mut delays = backoff.limit(20).delays(self.env.random());
        let mut taken = BTreeSet::new();
        loop {
            let plan = self.plan(partition, intake, streams, &taken).await?;
            // The store does not check a refusal: the cached state behind it may be wrong and must
            // not stay.
            let refused = plan.refused();
            if !refused.is_empty() {
                self.forget(partition, &refused);
            }
            if plan.is_empty() {
                let mut cache = self.cache();
                cache.put_back(plan.unstored);
                cache.count_unstored(plan.counts);
                drop(cache);
                return Ok((plan, Position(0)));
            }
            let failure = match self.store.settle(Arc::clone(&plan.settlement)).await {
                Ok(Settled::Applied { before }) => {
                    self.cache().apply(&plan.settlement, plan.counts);
                    return Ok((plan, before));
                }
                Ok(Settled::Moved(moved)) => {
                    self.drop_plan(&plan, &moved);
                    failed(Kind::Unavailable, "other processes keep changing the same streams")
                }
                Ok(Settled::Taken(ids)) => {
                    self.drop_plan(&plan, &plan.streams());
                    taken.extend(ids);
                    failed(Kind::Unavailable, "other processes keep appending the same events")
                }
                Ok(Settled::Full) => {
                    self.drop_plan(&plan, &plan.streams());
                    failed(Kind::Full, "the holding area is full, because other streams keep filling it")
                }
                Ok(Settled::Unknown(error)) => {
                    self.drop_plan(&plan, &plan.streams());
                    error
                }
                Err(error) => {
                    self.drop_plan(&plan, &plan.streams());
                    return Err(error);
                }
            };
            let Some(delay) = delays.next() else { return Err(failure) };
            sleep(delay).await;
        }
    }

    /// Forgets the states that a plan was computed from, and counts it later.
    fn drop_plan(&self, plan: &Plan, streams: &[StreamId]) {
        self.cache().put_back(plan.unstored);
        self.forget(plan.settlement.partition, streams);
    }

    fn forget(&self, partition: Partition, streams: &[StreamId]) {
        mutant!(KeepAfterMove => return);
        self.cache().forget(partition, streams);
    }
}

fn failed(kind: Kind, cause: &str) -> Error {
    Error::new(kind, format!("ingesting deliveries: {cause}; deliver them again"))
}

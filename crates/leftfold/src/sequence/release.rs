//! Releasing held events that no longer wait, page by page.

use std::collections::BTreeSet;

use super::delivery::Policy;
use super::ingest::Intake;
use super::sequencer::{Inner, Sequencer};
use super::store::Sequences;
use crate::error::Result;
use crate::event::{Partition, StreamId};

impl<S: Sequences + Clone> Sequencer<S> {
    /// Releases the held events of a stream that no longer wait. Returns their number.
    pub async fn release(&self, stream: &StreamId) -> Result<u64> {
        let partition = Partition::of(stream, self.0.store.partitions());
        self.0.cache().forget(partition, [stream]);
        self.0.release(partition, BTreeSet::from([stream.clone()])).await
    }
}

impl<S: Sequences + Clone> Inner<S> {
    /// Releases held events of streams, page by page.
    pub(super) async fn release(&self, partition: Partition, mut streams: BTreeSet<StreamId>) -> Result<u64> {
        let mut released = 0;
        while !streams.is_empty() {
            let none = streams.into_iter().map(|stream| (stream, Vec::new())).collect();
            let intake = Intake { policy: Policy::Contiguous, is_resupplied: false };
            let (plan, _) = self.settle(partition, intake, &none).await?;
            released += plan.counts.released;
            // If nothing changed, the limit of conflicts is reached: these events stay held until
            // some are resolved.
            streams = plan.streams().into_iter().collect();
            streams.retain(|stream| plan.more.contains(stream));
            streams.extend(plan.later);
        }
        Ok(released)
    }
}

//! The simulated store's operations for the log.

use std::time::Duration;

use leftfold::log::{AppendError, Appended, Entry, Limit, LogPage};
use leftfold::{Append, Event, Expected, Log, Mark, Partition, Position, Result, Revision, StreamId};
use tokio::time::sleep;

use super::calls::LATE;
use super::handle::SimStore;
use super::sabotage;
use crate::faults::Fault;

impl Log for SimStore {
    fn partitions(&self) -> u16 {
        self.shared.inner.partitions()
    }

    async fn heads(&self) -> Result<Mark> {
        self.answer("heads", self.shared.inner.heads()).await
    }

    async fn read(&self, partition: Partition, after: Position, limit: Limit) -> Result<LogPage> {
        self.answer("read", async {
            Ok(sabotage::page(self.shared.inner.read(partition, after, limit).await?))
        })
        .await
    }

    async fn read_stream(&self, stream: &StreamId, after: Revision, limit: Limit) -> Result<Vec<Event>> {
        self.answer("read stream", self.shared.inner.read_stream(stream, after, limit)).await
    }

    async fn grown(&self, beyond: &Mark) -> Result<()> {
        self.answer("wait for growth", self.shared.inner.grown(beyond)).await
    }
}

impl Append for SimStore {
    async fn append(
        &self,
        stream: StreamId,
        expected: Expected,
        entries: Vec<Entry>,
    ) -> Result<Appended, AppendError> {
        let unknown = sabotage::unknown_append(&stream);
        self.answer("append", async {
            if self.strikes(Fault::LostUnknown) {
                return Err(unknown);
            }
            let entries = sabotage::entries(self, entries);
            if self.strikes(Fault::Delayed) {
                let inner = self.shared.inner.clone();
                let late = self.shared.faults.dice().time(LATE);
                tokio::spawn(async move {
                    sleep(late).await;
                    let _ = inner.append(stream, expected, entries).await;
                });
                return Err(unknown);
            }
            let answer = self.shared.inner.append(stream, expected, entries).await;
            self.takes(Duration::from_millis(1)).await;
            if self.strikes(Fault::AppliedUnknown) { Err(unknown) } else { answer }
        })
        .await
    }
}

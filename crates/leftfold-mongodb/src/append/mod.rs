//! Appending events to the log: the appends of concurrent callers to a partition share a
//! transaction.

mod appender;
mod group;
mod judge;
mod queue;
mod write;

use leftfold::log::{Entry, check_entries};
use leftfold::{Append, AppendError, Appended, Expected, Partition, StreamId};

pub(crate) use self::queue::Appenders;
use crate::Mongo;
use crate::log::storable;

const DOING: &str = "append to the log in";

impl Append for Mongo {
    async fn append(
        &self,
        stream: StreamId,
        expected: Expected,
        entries: Vec<Entry>,
    ) -> Result<Appended, AppendError> {
        let base = self.logged()?;
        check_entries(&entries, self.inner.max_event_bytes)?;
        if let Expected::Revision(revision) = expected {
            storable("expected revision", revision.0)?;
        }
        let partition = Partition::of(&stream, base.partitions.unwrap_or(1));
        self.inner.appenders.append(base, partition, stream, expected, entries).await
    }
}

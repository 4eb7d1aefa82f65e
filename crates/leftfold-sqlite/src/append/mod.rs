//! Appending events to the log.

mod write;

use leftfold::log::{Entry, check_entries};
use leftfold::{Append, AppendError, Appended, Expected, Partition, StreamId};

use self::write::AppendWork;
pub(crate) use self::write::{INSERT, insert};
use crate::Sqlite;
use crate::log::storable;

impl Append for Sqlite {
    async fn append(
        &self,
        stream: StreamId,
        expected: Expected,
        entries: Vec<Entry>,
    ) -> Result<Appended, AppendError> {
        check_entries(&entries, self.inner.max_event_bytes)?;
        if let Expected::Revision(revision) = expected {
            storable("expected revision", revision.0)?;
        }
        let partition = Partition::of(&stream, self.inner.partitions);
        self.inner.writer.run(AppendWork { stream, partition, expected, entries }).await
    }
}

//! The log: one table, with the partition and the position as the row number.
//!
//! A partition is thus a contiguous range of rows, and reading it is one walk along the table.

mod heads;
mod read;
mod record;

use leftfold::log::{Limit, LogPage};
use leftfold::{Event, Invalid, Lane, Log, Mark, Partition, Position, Result, Revision, StreamId};
use rusqlite::params;

pub(crate) use self::heads::{REVISION, are_beyond, head, heads, revision};
pub(crate) use self::read::BY_ID;
use self::read::{READ, READ_STREAM, rows, take};
pub(crate) use self::record::{LAST_POSITION, event, position_of, row_of, storable};
use crate::Sqlite;

impl Log for Sqlite {
    fn partitions(&self) -> u16 {
        self.inner.partitions
    }

    async fn heads(&self) -> Result<Mark> {
        let count = usize::from(self.inner.partitions);
        let heads = self.inner.readers.read("read the log in", move |file| heads(file, count)).await?;
        Ok((0..).zip(heads).map(|(partition, head)| (Lane::from(Partition(partition)), head)).collect())
    }

    async fn read(&self, partition: Partition, after: Position, limit: Limit) -> Result<LogPage> {
        if partition.0 >= self.inner.partitions {
            let expected = format!("a number below {}, the number of partitions", self.inner.partitions);
            return Err(Invalid::new("partition", &partition.to_string(), expected).into());
        }
        let first = row_of(partition, storable("position", after.0)?.min(LAST_POSITION));
        let last = row_of(partition, LAST_POSITION);
        self.inner
            .readers
            .read("read the log in", move |file| {
                let mut statement = file.prepare_cached(READ)?;
                let (events, more) = take(statement.query(params![first, last, rows(limit)])?, limit)?;
                let through = events.last().map_or(after, |event| event.position);
                Ok(LogPage { events, through, more })
            })
            .await
    }

    async fn read_stream(&self, stream: &StreamId, after: Revision, limit: Limit) -> Result<Vec<Event>> {
        let stream = stream.clone();
        let after = storable("revision", after.0)?;
        self.inner
            .readers
            .read("read a stream in", move |file| {
                let mut statement = file.prepare_cached(READ_STREAM)?;
                Ok(take(statement.query(params![stream.as_str(), after, rows(limit)])?, limit)?.0)
            })
            .await
    }

    async fn grown(&self, beyond: &Mark) -> Result<()> {
        let (_waiting, mut known) = self.inner.board.wait()?;
        // The wait can't fail: this handle keeps the board alive.
        let _ = known.wait_for(|known| known.is_beyond(beyond)).await;
        Ok(())
    }
}

//! The log: one document per event, with the partition and the position as its `_id`.
//!
//! A partition is thus a contiguous range of the `_id` index.

mod heads;
mod read;
mod record;

use bson::doc;
use leftfold::log::{Limit, LogPage};
use leftfold::{Event, Invalid, Log, Mark, Partition, Position, Result, Revision, StreamId};

pub(crate) use self::heads::head;
use self::record::{LAST_POSITION, place};
pub(crate) use self::record::{append_entry, encode, entry, event, has_room, place_of, storable};
use crate::Mongo;
use crate::encoding::signed;
use crate::error::Failure;
use crate::schema::indexes::STREAM_INDEX;
use crate::watch::Scope;

impl Log for Mongo {
    fn partitions(&self) -> u16 {
        self.inner.base.partitions.unwrap_or(1)
    }

    async fn heads(&self) -> Result<Mark> {
        let base = self.logged()?;
        base.run("read the log in", base.heads()).await
    }

    async fn read(&self, partition: Partition, after: Position, limit: Limit) -> Result<LogPage> {
        let base = self.logged()?;
        if partition.0 >= self.partitions() {
            let expected = format!("a number below {}, the number of partitions", self.partitions());
            return Err(Invalid::new("partition", &partition.to_string(), expected).into());
        }
        let mut last = place_of(partition, storable("position", after.0)?.min(LAST_POSITION));
        let end = place_of(partition, LAST_POSITION);
        let taken = base.take(limit, "_id", |event| {
            let range = doc! { "_id": { "$gt": event.map_or(last, place), "$lte": end } };
            (range, doc! { "_id": 1 })
        });
        let (events, more) = base.run("read the log in", taken).await?;
        for event in &events {
            if place(event) != last + 1 {
                let report =
                    format!("events are missing before position {} of partition {partition}", event.position);
                return Err(Failure::damaged(report).to_error("read the log in", &base.place));
            }
            last += 1;
        }
        let through = events.last().map_or(after, |event| event.position);
        Ok(LogPage { events, through, more })
    }

    async fn read_stream(&self, stream: &StreamId, after: Revision, limit: Limit) -> Result<Vec<Event>> {
        let base = self.logged()?;
        let after = storable("revision", after.0)?;
        let number = |event: &Event| signed(event.revision.0);
        let next = |event: Option<&Event>| {
            let rest = doc! { "stream": stream.as_str(), "revision": { "$gt": event.map_or(after, number) } };
            (rest, doc! { "stream": 1, "revision": 1 })
        };
        let taken = async {
            let (events, _) = base.take(limit, STREAM_INDEX, next).await?;
            if !events.is_empty() {
                return Ok(events);
            }
            // Never report an acknowledged event as missing: catch up and read again.
            base.catch_up().await?;
            Ok(base.take(limit, STREAM_INDEX, next).await?.0)
        };
        base.run("read a stream in", taken).await
    }

    async fn grown(&self, beyond: &Mark) -> Result<()> {
        let base = self.logged()?;
        let (_waiting, mut known) = base.wait(Scope::All);
        // The wait can't fail: this handle keeps the board alive.
        let _ = known.wait_for(|known| known.is_beyond(beyond)).await;
        Ok(())
    }
}

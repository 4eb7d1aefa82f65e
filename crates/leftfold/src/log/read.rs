//! The reading half of a log: partitions, pages and streams.

use std::future::Future;

use crate::error::Result;
use crate::event::{Event, Partition, Position, Revision, StreamId};
use crate::mark::Mark;

/// The reading half of a log.
///
/// **Nothing is ever skipped**: a reader that has read a partition up to a position never finds a
/// new event at or behind it.
pub trait Log: Send + Sync + 'static {
    /// Returns the number of partitions, which is fixed when the log is created.
    fn partitions(&self) -> u16;

    /// Returns the last position of each partition.
    fn heads(&self) -> impl Future<Output = Result<Mark>> + Send;

    /// Returns the events of a partition after a position, in order.
    fn read(
        &self,
        partition: Partition,
        after: Position,
        limit: Limit,
    ) -> impl Future<Output = Result<LogPage>> + Send;

    /// Returns the events of a stream after a revision, in order. Only the limit cuts the result
    /// short.
    fn read_stream(
        &self,
        stream: &StreamId,
        after: Revision,
        limit: Limit,
    ) -> impl Future<Output = Result<Vec<Event>>> + Send;

    /// Waits until some partition's head is beyond this mark. An idle wait costs close to nothing.
    fn grown(&self, beyond: &Mark) -> impl Future<Output = Result<()>> + Send;
}

/// The size limit of a read. It ends at whichever bound it reaches first, but always returns one
/// event if there is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// The maximum number of events.
    pub events: usize,
    /// The maximum number of bytes of data and metadata.
    pub bytes: usize,
}

impl Default for Limit {
    fn default() -> Self {
        Self { events: 10_000, bytes: 1 << 20 }
    }
}

/// A page of a partition, in order.
#[derive(Clone, Debug, Default)]
pub struct LogPage {
    /// The events.
    pub events: Vec<Event>,
    /// The position up to which everything has been read. No event will ever appear at or before it
    /// that is not in this page or an earlier one.
    pub through: Position,
    /// `true` if the limit ended the page, so that there is more to read at once.
    pub more: bool,
}

//! Reading the log again, in pages, for documents that must be folded again.

use std::time::Duration;

use super::batch::{FoldState, Portion};
use super::folder::Folder;
use super::routed::Routed;
use super::{Projection, threads};
use crate::env::Env;
use crate::error::{Kind, Result};
use crate::event::{DocumentId, Partition, Position, Revision, StreamId};
use crate::log::{Limit, Log, LogPage};
use crate::mark::Mark;
use crate::mutant;
use crate::store::Store;

/// A part of the log to read again.
#[derive(Debug)]
pub(crate) enum Replay {
    /// The events of these partitions after `from`, up to `through`.
    Range { from: Mark, through: Mark },
    /// The events of this stream after a revision, up to a position.
    Stream { stream: StreamId, after: Revision, through: Position },
}

impl Replay {
    /// Returns the next page, or `None` at the end.
    pub(crate) async fn next(&mut self, log: &impl Log) -> Result<Option<(Partition, LogPage)>> {
        match self {
            Self::Range { from, through } => {
                let behind = through.lanes().find_map(|(lane, end)| {
                    let partition = lane.partition()?;
                    (from.position(partition).0 < end).then_some((partition, Position(end)))
                });
                let Some((partition, end)) = behind else { return Ok(None) };
                let mut page = log.read(partition, from.position(partition), Limit::default()).await?;
                if page.events.is_empty() && page.through < end {
                    let message = format!(
                        "reading partition {partition} up to {end}: the log ends before that position; \
                         check that this is the right store"
                    );
                    return Err(crate::Error::new(Kind::Format, message));
                }
                from.advance(&partition.into(), page.through.0);
                // Events after the end were read but must not be presented.
                page.events.retain(|event| event.position <= end);
                mutant!(ReplayTooFar => return Ok(Some((partition, page))));
                page.through = page.through.min(end);
                Ok(Some((partition, page)))
            }
            Self::Stream { stream, after, through } => {
                let mut events = log.read_stream(stream, *after, Limit::default()).await?;
                events.retain(|event| event.position <= *through);
                let Some(last) = events.last() else { return Ok(None) };
                *after = last.revision;
                let (partition, position) = (last.partition, last.position);
                mutant!(RetryOutOfOrder => events.reverse());
                Ok(Some((partition, LogPage { events, through: position, more: true })))
            }
        }
    }
}

impl Replay {
    /// Skips the rest of a partition.
    pub(crate) fn leave(&mut self, partition: Partition) {
        match self {
            Self::Range { from, through } => from.advance(&partition.into(), through.position(partition).0),
            Self::Stream { through, .. } => *through = Position(0),
        }
    }
}

impl<P: Projection> Folder<P> {
    /// Returns the part of the log with all events of a document up to `through`. If the document
    /// is routed by stream, it has the events of its stream after `after`.
    pub(crate) fn replay_of(
        &self,
        id: &DocumentId,
        after: Revision,
        from: Mark,
        through: Mark,
        log: &impl Log,
    ) -> Result<Replay> {
        if !self.routes_by_stream() {
            return Ok(Replay::Range { from, through });
        }
        let stream = StreamId::new(id)?;
        let through = through.position(Partition::of(&stream, log.partitions()));
        Ok(Replay::Stream { stream, after, through })
    }

    /// Folds a part of the log into the documents on the state only.
    pub(crate) async fn replay<S: Store>(
        &self,
        store: &S,
        env: &dyn Env,
        state: &mut FoldState<P::Document>,
        mut replay: Replay,
    ) -> Result<()> {
        while let Some((partition, page)) = replay.next(store).await? {
            let mut page = self.route(partition, page);
            let streams = self.missing_streams(state, &page, true);
            if !streams.is_empty() {
                self.load_streams(store, state, streams).await?;
            }
            self.apply_all(state, &mut page, env).await;
        }
        Ok(())
    }

    /// Folds a page into the documents on the state, and yields to other tasks in between.
    pub(crate) async fn apply_all(
        &self,
        state: &mut FoldState<P::Document>,
        page: &mut Routed<P::Event>,
        env: &dyn Env,
    ) {
        const PORTION: Portion = Portion { events: 512, time: Duration::from_millis(100) };
        while !threads::blocking(|| self.apply(state, page, PORTION, env.now())) {
            tokio::task::yield_now().await;
        }
    }
}

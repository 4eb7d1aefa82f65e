//! The waiting states of streams: where their gaps are, and when to ask for the missing events.

use std::collections::BTreeMap;

use bson::{Document, RawDocumentBuf, doc};
use jiff::Timestamp;
use leftfold::sequence::{DueGaps, StreamState, Survey, Waiting};
use leftfold::{Revision, StreamId};
use tokio::try_join;

use super::record;
use crate::connection::{Base, MAX_IDS, batch};
use crate::error::Failure;
use crate::schema::SEQUENCES;
use crate::schema::indexes::{OVERDUE_INDEX, WAITING_INDEX};

impl Base {
    /// Returns the states of these streams, and the totals and counts of the log.
    pub(super) async fn survey(&self, streams: Vec<StreamId>) -> Result<Survey, Failure> {
        let names: Vec<_> = streams.iter().map(StreamId::as_str).collect();
        let (mut last, mut waiting, (totals, counts)) =
            try_join!(self.last_revisions(&names), self.waiting_of(&names), self.totals())?;
        let state = |stream: StreamId| {
            let last = Revision(last.remove(&stream).unwrap_or(0).unsigned_abs());
            let state = StreamState { last, waiting: waiting.remove(&stream) };
            (stream, state)
        };
        Ok(Survey { streams: streams.into_iter().map(state).collect(), totals, counts })
    }

    /// Returns the waiting states of these streams. Streams that do not wait are left out.
    async fn waiting_of(&self, streams: &[&str]) -> Result<BTreeMap<StreamId, Waiting>, Failure> {
        let sequences = self.db.collection::<RawDocumentBuf>(SEQUENCES);
        let mut all = BTreeMap::new();
        for streams in streams.chunks(MAX_IDS) {
            let find = sequences.find(doc! { "_id": { "$in": streams } }).batch_size(batch(streams.len()));
            let mut found = find.await?;
            while found.advance().await? {
                all.extend([record::waiting(found.current())?]);
            }
        }
        Ok(all)
    }

    /// Lists the streams with held events, by id.
    pub(super) async fn waiting(
        &self,
        after: Option<StreamId>,
        most: usize,
    ) -> Result<Vec<(StreamId, StreamState)>, Failure> {
        let after = after.as_ref().map_or("", StreamId::as_str);
        let filter = doc! { "events": { "$gt": 0 }, "_id": { "$gt": after } };
        self.list_streams(filter, doc! { "_id": 1 }, WAITING_INDEX, most).await
    }

    /// Lists the streams with due gaps, the longest wait first.
    pub(super) async fn overdue(
        &self,
        due: DueGaps,
        most: usize,
    ) -> Result<Vec<(StreamId, StreamState)>, Failure> {
        let [since, now, end] = [due.since, due.now, due.end].map(Timestamp::as_microsecond);
        // Two ranges of the index, each with the index's full filter expression.
        let ranges = [doc! { "$lte": since }, doc! { "$gt": end }].map(|range| {
            doc! {
                "events": { "$gt": 0 },
                "since": range,
                "$or": [{ "ask_at": { "$lte": now } }, { "ask_at": { "$gt": end } }],
            }
        });
        let sort = doc! { "since": 1, "_id": 1 };
        self.list_streams(doc! { "$or": ranges.to_vec() }, sort, OVERDUE_INDEX, most).await
    }

    /// Returns waiting streams with their states.
    async fn list_streams(
        &self,
        filter: Document,
        sort: Document,
        index: &str,
        most: usize,
    ) -> Result<Vec<(StreamId, StreamState)>, Failure> {
        let found = self.list(SEQUENCES, filter, sort, index, most, record::waiting).await?;
        let names: Vec<_> = found.iter().map(|(stream, _)| stream.as_str()).collect();
        let mut last = self.last_revisions(&names).await?;
        let state = |(stream, waiting)| {
            let last = Revision(last.remove(&stream).unwrap_or(0).unsigned_abs());
            (stream, StreamState { last, waiting: Some(waiting) })
        };
        Ok(found.into_iter().map(state).collect())
    }
}

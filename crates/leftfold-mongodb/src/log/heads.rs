//! The last position of each partition, and the last revision of each stream.

use std::collections::HashMap;

use bson::{Document, RawDocument, RawDocumentBuf, doc};
use leftfold::{Lane, Mark, Partition, StreamId};
use mongodb::ClientSession;

use crate::connection::{Base, MAX_IDS, batch};
use crate::error::Failure;
use crate::schema::{EVENTS, HEADS};

impl Base {
    /// Returns the last position of each partition.
    pub(crate) async fn heads(&self) -> Result<Mark, Failure> {
        let mut heads = self.db.collection::<RawDocumentBuf>(HEADS).find(doc! {}).await?;
        let mut mark = Mark::default();
        while heads.advance().await? {
            let (partition, position) = head(heads.current())?;
            mark.advance(&Lane::from(partition), position);
        }
        Ok(mark)
    }

    /// Returns the last revision in the log of each of these streams.
    pub(crate) async fn last_revisions(&self, streams: &[&str]) -> Result<HashMap<StreamId, i64>, Failure> {
        let mut last = HashMap::new();
        for streams in streams.chunks(MAX_IDS) {
            let events = self.db.collection::<RawDocumentBuf>(EVENTS);
            let aggregate = events.aggregate(last_of(streams)).batch_size(batch(streams.len()));
            let mut found = aggregate.await?;
            while found.advance().await? {
                last.extend([last_revision(found.current())?]);
            }
        }
        Ok(last)
    }

    /// Does the same as [`Base::last_revisions`] inside a transaction.
    pub(crate) async fn last_revisions_in(
        &self,
        session: &mut ClientSession,
        streams: &[&str],
    ) -> Result<HashMap<StreamId, i64>, Failure> {
        let mut last = HashMap::new();
        for streams in streams.chunks(MAX_IDS) {
            let events = self.db.collection::<RawDocumentBuf>(EVENTS);
            let aggregate = events.aggregate(last_of(streams)).batch_size(batch(streams.len()));
            let mut found = aggregate.session(&mut *session).await?;
            while found.advance(session).await? {
                last.extend([last_revision(found.current())?]);
            }
        }
        Ok(last)
    }
}

/// Builds the pipeline for last revisions. The index lists each stream's last revision first, so
/// the server reads nothing else.
fn last_of(streams: &[&str]) -> [Document; 3] {
    [
        doc! { "$match": { "stream": { "$in": streams } } },
        doc! { "$sort": { "stream": 1, "revision": -1 } },
        doc! { "$group": { "_id": "$stream", "revision": { "$first": "$revision" } } },
    ]
}

fn last_revision(stored: &RawDocument) -> Result<(StreamId, i64), Failure> {
    Ok((StreamId::stored(stored.get_str("_id")?), stored.get_i64("revision")?))
}

/// Decodes a partition and its last position.
pub(crate) fn head(stored: &RawDocument) -> Result<(Partition, u64), Failure> {
    let partition =
        u16::try_from(stored.get_i32("_id")?).map_err(|error| Failure::damaged(error.to_string()))?;
    Ok((Partition(partition), stored.get_i64("position")?.unsigned_abs()))
}

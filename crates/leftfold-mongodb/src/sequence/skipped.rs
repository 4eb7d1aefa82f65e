//! Skipped revisions: gaps that an operator has closed for good.

use bson::{RawDocument, RawDocumentBuf, doc, rawdoc};
use leftfold::sequence::Skipped;
use leftfold::{Revision, StreamId};

use super::record::number;
use crate::connection::Base;
use crate::encoding::{signed, time};
use crate::error::Failure;
use crate::schema::SKIPPED;

impl Base {
    /// Lists the skipped revisions of a stream, the oldest first.
    pub(super) async fn skipped(&self, stream: &StreamId) -> Result<Vec<Skipped>, Failure> {
        let from = doc! { "stream": stream.as_str(), "after": 0_i64 };
        let to = doc! { "stream": stream.as_str(), "after": i64::MAX };
        let filter = doc! { "_id": { "$gte": from, "$lte": to } };
        self.list(SKIPPED, filter, doc! { "_id": 1 }, "_id_", usize::MAX, decode).await
    }
}

/// Encodes skipped revisions.
pub(super) fn encode(skipped: &Skipped) -> RawDocumentBuf {
    let Skipped { stream, after, through, reason, at } = skipped;
    rawdoc! {
        "_id": { "stream": stream.as_str(), "after": signed(after.0) },
        "through": signed(through.0),
        "reason": reason.as_str(),
        "at": at.as_microsecond(),
    }
}

/// Decodes skipped revisions.
fn decode(stored: &RawDocument) -> Result<Skipped, Failure> {
    let place = stored.get_document("_id")?;
    Ok(Skipped {
        stream: StreamId::stored(place.get_str("stream")?),
        after: Revision(number(place, "after")?),
        through: Revision(number(stored, "through")?),
        reason: stored.get_str("reason")?.to_owned(),
        at: time(stored.get_i64("at")?)?,
    })
}

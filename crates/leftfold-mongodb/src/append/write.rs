//! The transaction that writes appends: it moves the head of the partition and inserts the events.
//!
//! A transaction can move a head only after the previous move, so commit order is position order. A
//! reader never misses an event that appears later at a lower position.
//!
//! A cached revision that is too low does not always collide in streams that skip revisions: the
//! revision after a stale one may be free, yet lie before stored ones. The head records whether its
//! partition has such streams. If it does, the transaction reads their last revisions before it
//! writes.

use std::collections::HashMap;

use bson::{Document, RawDocumentBuf, doc};
use leftfold::{Kind, Partition, StreamId};
use mongodb::ClientSession;
use mongodb::options::ReturnDocument;

use super::group::Group;
use crate::connection::{Base, Step, Work};
use crate::error::{Failure, is_duplicate};
use crate::log::{encode, has_room, place_of};
use crate::schema::{EVENTS, HEADS};

/// The outcome of the transaction.
pub(super) enum Wrote {
    /// All events are stored; the number is the position of the last one.
    All(i64),
    /// An event id or a revision is already taken.
    Taken,
}

/// The work of the transaction.
pub(super) struct Insert<'a> {
    pub(super) base: &'a Base,
    pub(super) partition: Partition,
    pub(super) group: &'a Group,
}

impl Work for Insert<'_> {
    type Answer = Wrote;

    async fn run(&self, session: &mut ClientSession) -> Result<Step<Wrote>, Failure> {
        let Self { base, partition, group } = *self;
        let heads = base.db.collection::<Document>(HEADS);
        let head = heads
            .find_one_and_update(
                doc! { "_id": i32::from(partition.0) },
                doc! { "$inc": { "position": group.events } },
            )
            .return_document(ReturnDocument::After)
            .session(&mut *session)
            .await?;
        let damaged = || Failure::damaged(format!("partition {partition} has no head"));
        let head = head.ok_or_else(damaged)?;
        let last = head.get_i64("position").map_err(|_| damaged())?;
        if !has_room(last) {
            return Err(Failure::new(
                Kind::Full,
                "append to another log",
                "the partition has no positions left",
            ));
        }
        point!("head-moved");
        if head.get_bool("gaps").unwrap_or(false) && !self.is_last(session).await? {
            return Ok(Step::CallOff(Wrote::Taken));
        }
        let mut place = place_of(partition, last - group.events);
        let mut events = Vec::with_capacity(usize::try_from(group.events).unwrap_or(0));
        for (request, first) in group.requests.iter().zip(&group.first) {
            for (entry, revision) in request.entries.iter().zip(*first..) {
                place += 1;
                events.push(encode(place, &request.stream, revision, entry));
            }
        }
        let inserted =
            base.db.collection::<RawDocumentBuf>(EVENTS).insert_many(events).session(session).await;
        match inserted {
            Ok(_) => {
                point!("events-inserted");
                Ok(Step::Keep(Wrote::All(last)))
            }
            Err(error) if is_duplicate(&error) => Ok(Step::CallOff(Wrote::Taken)),
            Err(error) => Err(error.into()),
        }
    }
}

impl Insert<'_> {
    /// Returns whether each stream is at the revision that its first request assumes.
    async fn is_last(&self, session: &mut ClientSession) -> Result<bool, Failure> {
        let mut believed: HashMap<&StreamId, i64> = HashMap::new();
        for (request, first) in self.group.requests.iter().zip(&self.group.first) {
            believed.entry(&request.stream).or_insert(first - 1);
        }
        let streams: Vec<_> = believed.keys().map(|stream| stream.as_str()).collect();
        let last = self.base.last_revisions_in(session, &streams).await?;
        Ok(believed.into_iter().all(|(stream, at)| last.get(stream).copied().unwrap_or(0) == at))
    }
}

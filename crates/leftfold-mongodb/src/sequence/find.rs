//! Events by place or id, in the log and held, and pages of held events.
//!
//! Events found or held at a place must not be older than earlier reads, because the caller
//! combines them.

use std::collections::{BTreeMap, BTreeSet};

use bson::{RawDocumentBuf, doc};
use leftfold::log::Limit;
use leftfold::sequence::{Found, Held, HeldPage, WantedEvents};
use leftfold::{Event, EventId, Revision, StreamId};
use mongodb::options::Hint;
use tokio::try_join;

use super::record;
use crate::connection::{Base, MAX_IDS, batch};
use crate::encoding::{self, signed};
use crate::error::Failure;
use crate::log::event;
use crate::schema::indexes::{HELD_INDEX, STREAM_INDEX};
use crate::schema::{EVENTS, HELD};

/// The number of streams per query if each needs its own clause.
const MAX_PARTS: usize = 200;
/// The fewest events to read of a stream: a page has at least two, and one more shows whether there
/// are others.
const LEAST: usize = 3;

impl Base {
    /// Returns the wanted events that exist.
    pub(super) async fn look_for(&self, wanted: &WantedEvents) -> Result<Found, Failure> {
        let (mut logged, by_id, held) = try_join!(
            self.events_at(&wanted.places),
            self.events_with(wanted.ids.iter().map(EventId::as_str).collect()),
            self.held_at(&wanted.places),
        )?;
        logged.extend(by_id);
        Ok(Found { logged, held })
    }

    /// Returns the events in the log at these places.
    async fn events_at(&self, places: &[(StreamId, Revision)]) -> Result<Vec<Event>, Failure> {
        let events = self.db.collection::<RawDocumentBuf>(EVENTS);
        let mut streams: BTreeMap<&str, Vec<i64>> = BTreeMap::new();
        for (stream, revision) in places {
            streams.entry(stream.as_str()).or_default().push(signed(revision.0));
        }
        let mut parts = streams.into_iter().flat_map(|(stream, revisions)| {
            let part = |revisions: &[i64]| doc! { "stream": stream, "revision": { "$in": revisions } };
            revisions.chunks(MAX_IDS / MAX_PARTS).map(part).collect::<Vec<_>>()
        });
        let mut all = Vec::new();
        loop {
            let some: Vec<_> = parts.by_ref().take(MAX_PARTS).collect();
            if some.is_empty() {
                return Ok(all);
            }
            let find = events.find(doc! { "$or": some }).hint(Hint::Name(STREAM_INDEX.to_owned()));
            let mut found = find.batch_size(batch(MAX_IDS)).await?;
            while found.advance().await? {
                all.push(event(found.current())?);
            }
        }
    }

    /// Returns the held events at these places.
    async fn held_at(&self, places: &[(StreamId, Revision)]) -> Result<Vec<Held>, Failure> {
        let events = self.db.collection::<RawDocumentBuf>(HELD);
        let mut all = Vec::new();
        for places in places.chunks(MAX_IDS) {
            let keys: Vec<_> =
                places.iter().map(|(stream, revision)| record::key(stream, *revision)).collect();
            let mut found =
                events.find(doc! { "_id": { "$in": keys } }).batch_size(batch(places.len())).await?;
            while found.advance().await? {
                all.push(record::held(found.current())?);
            }
        }
        Ok(all)
    }

    /// Returns the lowest held events of streams. Pages fill up in stream order until the limit;
    /// each stream after that gets only a few events.
    pub(super) async fn pages(
        &self,
        streams: &BTreeSet<StreamId>,
        limit: Limit,
    ) -> Result<BTreeMap<StreamId, HeldPage>, Failure> {
        let names: Vec<_> = streams.iter().map(StreamId::as_str).collect();
        let (mut lists, cut) = self.lowest(&names, limit).await?;
        let late: Vec<_> =
            cut.into_iter().flat_map(|cut| streams.range(cut..)).map(StreamId::as_str).collect();
        let mut least: BTreeMap<StreamId, Vec<Held>> = BTreeMap::new();
        for held in self.least(&late).await? {
            least.entry(held.stream.clone()).or_default().push(held);
        }
        let mut room = limit;
        let page = |stream: &StreamId| {
            let list = lists.remove(stream).unwrap_or_default();
            let page = match least.remove(stream) {
                Some(least) if list.len() < LEAST => {
                    HeldPage::cut(least.into_iter(), &mut Limit { events: 0, bytes: 0 })
                }
                _ => HeldPage::cut(list.into_iter(), &mut room),
            };
            (stream.clone(), page)
        };
        Ok(streams.iter().map(page).collect())
    }

    /// Returns held events by stream and revision up to the limit, and the stream of the first
    /// event beyond it.
    async fn lowest(
        &self,
        streams: &[&str],
        limit: Limit,
    ) -> Result<(BTreeMap<StreamId, Vec<Held>>, Option<StreamId>), Failure> {
        let events = self.db.collection::<RawDocumentBuf>(HELD);
        let mut lists: BTreeMap<StreamId, Vec<Held>> = BTreeMap::new();
        let (mut count, mut bytes) = (0, 0);
        for streams in streams.chunks(MAX_IDS) {
            let find = events.find(doc! { "_id.stream": { "$in": streams } });
            let find = find.sort(doc! { "_id.stream": 1, "_id.revision": 1 });
            let find = find.hint(Hint::Name(HELD_INDEX.to_owned()));
            let mut found = find.batch_size(batch(limit.events.min(MAX_IDS))).await?;
            while found.advance().await? {
                let held = record::held(found.current())?;
                let stream = held.stream.clone();
                count += 1;
                bytes += held.bytes();
                lists.entry(stream.clone()).or_default().push(held);
                if count > limit.events || bytes > limit.bytes as u64 {
                    return Ok((lists, Some(stream)));
                }
            }
        }
        Ok((lists, None))
    }

    /// Returns the first few held events of each of these streams.
    async fn least(&self, streams: &[&str]) -> Result<Vec<Held>, Failure> {
        let events = self.db.collection::<RawDocumentBuf>(HELD);
        let mut all = Vec::new();
        for streams in streams.chunks(MAX_PARTS) {
            let mut pipeline = Vec::new();
            for stream in streams {
                let lowest = vec![
                    doc! { "$match": { "_id.stream": *stream } },
                    doc! { "$sort": { "_id.stream": 1, "_id.revision": 1 } },
                    doc! { "$limit": encoding::limit(LEAST) },
                ];
                if pipeline.is_empty() {
                    pipeline = lowest;
                } else {
                    pipeline.push(doc! { "$unionWith": { "coll": HELD, "pipeline": lowest } });
                }
            }
            let aggregate = events.aggregate(pipeline).batch_size(batch(streams.len() * LEAST));
            let mut found = aggregate.await?;
            while found.advance().await? {
                all.push(record::held(found.current())?);
            }
        }
        Ok(all)
    }
}

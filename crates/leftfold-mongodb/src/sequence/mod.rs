//! The sequencer's storage: held events, the waiting state of their streams, conflicts and rejected
//! messages.
//!
//! The `_id` of everything at a place in a stream is `{ stream, revision }`: it is unique and sorts
//! in stream order. A partition's head counts how much the partition holds.
//!
//! Reads return majority-committed data. A stream's last revision may be slightly old, because
//! settling checks it. Events found or held at a place may not be, because the caller combines them
//! with earlier reads.
//!
//! Futures of operations with several commands are boxed: otherwise they would enlarge the futures
//! of all callers.

mod settle;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bson::raw::cstr;
use bson::{Document, RawBsonRef, RawDocument, RawDocumentBuf, doc, rawdoc};
use jiff::Timestamp;
use leftfold::log::Limit;
use leftfold::sequence::{
    Conflict, DueGaps, Found, Held, HeldPage, Rejected, Resolution, SequencerCounts, Settled, Settlement,
    Skipped, StreamState, Survey, Totals, Waiting, WantedEvents,
};
use leftfold::{Event, Partition, Result, Revision, Sequences, StreamId};
use mongodb::options::Hint;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{from_str, to_string};
use tokio::try_join;

use crate::error::Failure;
use crate::log::{append_entry, entry, event, time};
use crate::schema::indexes::{HELD_INDEX, OPEN_INDEX, OVERDUE_INDEX, STREAM_INDEX, WAITING_INDEX};
use crate::schema::{CONFLICTS, EVENTS, HEADS, HELD, REJECTED, SEQUENCES, SKIPPED};
use crate::{Base, MAX_IDS, Mongo, batch};

/// The field of a head that counts the operations done.
pub(crate) const COUNTS: &str = "counts";
/// The number of streams per query if each needs its own clause.
const MAX_PARTS: usize = 200;
/// The fewest events to read of a stream: a page has at least two, and one more shows whether there
/// are others.
const LEAST: usize = 3;

impl Sequences for Mongo {
    fn max_event_bytes(&self) -> usize {
        self.inner.max_event_bytes
    }

    async fn survey(&self, streams: Vec<StreamId>) -> Result<Survey> {
        let base = self.logged()?;
        base.run("look at streams in", Box::pin(base.survey(streams))).await
    }

    async fn find(&self, wanted: WantedEvents) -> Result<Found> {
        let base = self.logged()?;
        base.run("look for events in", base.read_surely(|| Box::pin(base.look_for(&wanted)))).await
    }

    async fn held(&self, streams: Vec<StreamId>, limit: Limit) -> Result<BTreeMap<StreamId, HeldPage>> {
        let base = self.logged()?;
        let streams: BTreeSet<_> = streams.into_iter().collect();
        base.run("look for held events in", base.read_surely(|| Box::pin(base.pages(&streams, limit)))).await
    }

    async fn settle(&self, settlement: Arc<Settlement>) -> Result<Settled> {
        let base = self.logged()?;
        let failed = |failure: Failure| failure.to_error("settle deliveries in", &base.place);
        Box::pin(base.settle(&settlement)).await.map_err(failed)
    }

    async fn waiting(&self, after: Option<StreamId>, limit: usize) -> Result<Vec<(StreamId, StreamState)>> {
        let base = self.logged()?;
        let after = after.as_ref().map_or("", StreamId::as_str);
        let filter = doc! { "events": { "$gt": 0 }, "_id": { "$gt": after } };
        let standings = base.standings(filter, doc! { "_id": 1 }, WAITING_INDEX, limit);
        base.run("look at streams in", standings).await
    }

    async fn overdue(&self, due: DueGaps, limit: usize) -> Result<Vec<(StreamId, StreamState)>> {
        let base = self.logged()?;
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
        let standings = base.standings(doc! { "$or": ranges.to_vec() }, sort, OVERDUE_INDEX, limit);
        base.run("look at streams in", standings).await
    }

    async fn conflicts(&self, after: Option<Conflict>, limit: usize) -> Result<Vec<Conflict>> {
        let base = self.logged()?;
        let mut filter = doc! { "open": true };
        if let Some(after) = after {
            filter.insert("_id", doc! { "$gt": key_of_conflict(&after) });
        }
        let list = base.list(CONFLICTS, filter, doc! { "_id": 1 }, OPEN_INDEX, limit, conflict);
        base.run("look for conflicts in", list).await
    }

    async fn skipped(&self, stream: &StreamId) -> Result<Vec<Skipped>> {
        let base = self.logged()?;
        let from = doc! { "stream": stream.as_str(), "after": 0_i64 };
        let to = doc! { "stream": stream.as_str(), "after": i64::MAX };
        let filter = doc! { "_id": { "$gte": from, "$lte": to } };
        let list = base.list(SKIPPED, filter, doc! { "_id": 1 }, "_id_", usize::MAX, skipped);
        base.run("look for skipped revisions in", list).await
    }

    async fn reject(&self, rejected: Vec<Rejected>) -> Result<()> {
        let base = self.logged()?;
        base.reject(rejected).await
    }

    async fn rejected(&self, after: Option<String>, limit: usize) -> Result<Vec<Rejected>> {
        let base = self.logged()?;
        let filter = doc! { "_id": { "$gt": after.unwrap_or_default() } };
        let list = base.list(REJECTED, filter, doc! { "_id": 1 }, "_id_", limit, rejected);
        base.run("look for rejected messages in", list).await
    }

    async fn count_rejected(&self) -> Result<u64> {
        let base = self.logged()?;
        let count = async { Ok(base.db.collection::<Document>(REJECTED).count_documents(doc! {}).await?) };
        base.run("count rejected messages in", count).await
    }

    async fn forget(&self, rejected: &str) -> Result<bool> {
        let base = self.logged()?;
        let forget = async {
            let messages = base.db.collection::<Document>(REJECTED);
            Ok(messages.delete_one(doc! { "_id": rejected }).await?.deleted_count == 1)
        };
        base.run("forget a rejected message in", forget).await
    }

    async fn resolve(&self, conflict: &Conflict, decided: Option<Resolution>) -> Result<bool> {
        let base = self.logged()?;
        let partition = Partition::of(&conflict.stream, base.partitions.unwrap_or(1));
        base.resolve(partition, conflict, decided.as_ref()).await
    }
}

impl Base {
    async fn survey(&self, streams: Vec<StreamId>) -> Result<Survey, Failure> {
        let names: Vec<_> = streams.iter().map(StreamId::as_str).collect();
        let (mut last, mut waiting, (totals, counts)) =
            try_join!(self.last_revisions(&names), self.waiting_of(&names), self.totals())?;
        let standing = |stream: StreamId| {
            let last = Revision(last.remove(&stream).unwrap_or(0).unsigned_abs());
            let standing = StreamState { last, waiting: waiting.remove(&stream) };
            (stream, standing)
        };
        Ok(Survey { streams: streams.into_iter().map(standing).collect(), totals, counts })
    }

    /// Returns the waiting states of these streams. Streams that do not wait are left out.
    async fn waiting_of(&self, streams: &[&str]) -> Result<BTreeMap<StreamId, Waiting>, Failure> {
        let sequences = self.db.collection::<RawDocumentBuf>(SEQUENCES);
        let mut all = BTreeMap::new();
        for streams in streams.chunks(MAX_IDS) {
            let find = sequences.find(doc! { "_id": { "$in": streams } }).batch_size(batch(streams.len()));
            let mut found = find.await?;
            while found.advance().await? {
                all.extend([waiting(found.current())?]);
            }
        }
        Ok(all)
    }

    /// Returns the totals of each partition, and the counts of all partitions.
    async fn totals(&self) -> Result<(BTreeMap<Partition, Totals>, SequencerCounts), Failure> {
        let heads = self.db.collection::<RawDocumentBuf>(HEADS);
        let mut heads = heads.find(doc! {}).batch_size(batch(usize::from(u16::MAX))).await?;
        let (mut all, mut counts) = (BTreeMap::new(), SequencerCounts::default());
        while heads.advance().await? {
            counts = counts.plus(self::counts(heads.current())?);
            let (partition, _) = crate::log::head(heads.current())?;
            let totals = totals(heads.current())?;
            if totals != Totals::default() {
                all.insert(partition, totals);
            }
        }
        Ok((all, counts))
    }

    async fn look_for(&self, wanted: &WantedEvents) -> Result<Found, Failure> {
        let (mut logged, by_id, held) = try_join!(
            self.events_at(&wanted.places),
            self.events_with(wanted.ids.iter().map(leftfold::EventId::as_str).collect()),
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
            streams.entry(stream.as_str()).or_default().push(stored(revision.0));
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
            let keys: Vec<_> = places.iter().map(|(stream, revision)| key(stream, *revision)).collect();
            let mut found =
                events.find(doc! { "_id": { "$in": keys } }).batch_size(batch(places.len())).await?;
            while found.advance().await? {
                all.push(held(found.current())?);
            }
        }
        Ok(all)
    }

    /// Returns the lowest held events of streams. Pages fill up in stream order until the limit;
    /// each stream after that gets only a few events.
    async fn pages(
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
                let held = held(found.current())?;
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
                    doc! { "$limit": i64::try_from(LEAST).unwrap_or(i64::MAX) },
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
                all.push(held(found.current())?);
            }
        }
        Ok(all)
    }

    /// Returns waiting streams with their states.
    async fn standings(
        &self,
        filter: Document,
        sort: Document,
        index: &str,
        limit: usize,
    ) -> Result<Vec<(StreamId, StreamState)>, Failure> {
        let found = self.list(SEQUENCES, filter, sort, index, limit, waiting).await?;
        let names: Vec<_> = found.iter().map(|(stream, _)| stream.as_str()).collect();
        let mut last = self.last_revisions(&names).await?;
        let standing = |(stream, waiting)| {
            let last = Revision(last.remove(&stream).unwrap_or(0).unsigned_abs());
            (stream, StreamState { last, waiting: Some(waiting) })
        };
        Ok(found.into_iter().map(standing).collect())
    }

    /// Returns the matching documents in this order, up to the limit.
    async fn list<T>(
        &self,
        collection: &str,
        filter: Document,
        sort: Document,
        index: &str,
        limit: usize,
        decode: impl Fn(&RawDocument) -> Result<T, Failure>,
    ) -> Result<Vec<T>, Failure> {
        // MongoDB treats a limit of 0 as no limit.
        if limit == 0 {
            return Ok(Vec::new());
        }
        let find = self.db.collection::<RawDocumentBuf>(collection);
        let find = find.find(filter).sort(sort).hint(Hint::Name(index.to_owned()));
        let find = find.limit(i64::try_from(limit).unwrap_or(i64::MAX));
        let mut found = find.batch_size(batch(limit)).await?;
        let mut list = Vec::new();
        while found.advance().await? {
            list.push(decode(found.current())?);
        }
        Ok(list)
    }
}

/// Converts a number for storage. It was checked on arrival, so it always fits.
pub(crate) fn stored(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Returns the key of an event's place in its stream.
pub(crate) fn key(stream: &StreamId, revision: Revision) -> Document {
    doc! { "stream": stream.as_str(), "revision": stored(revision.0) }
}

/// Returns the key of a conflict: its place, and an id that distinguishes conflicts at one place.
pub(crate) fn key_of_conflict(conflict: &Conflict) -> Document {
    let mut key = key(&conflict.stream, conflict.revision);
    key.insert("conflict", conflict.id());
    key
}

/// Serializes a value to JSON text.
pub(crate) fn text(value: &impl Serialize) -> Result<String, Failure> {
    to_string(value).map_err(|error| Failure::damaged(error.to_string()))
}

fn json<T: DeserializeOwned>(text: &str) -> Result<T, Failure> {
    from_str(text).map_err(|error| Failure::damaged(error.to_string()))
}

fn number(stored: &RawDocument, field: &str) -> Result<u64, Failure> {
    Ok(stored.get_i64(field)?.unsigned_abs())
}

/// Reads a partition's totals from its head. Missing fields count as 0.
pub(crate) fn totals(head: &RawDocument) -> Result<Totals, Failure> {
    let total = |field: &str| -> Result<u64, Failure> {
        let total = head.get(field)?.and_then(RawBsonRef::as_i64).unwrap_or(0);
        Ok(u64::try_from(total).unwrap_or(0))
    };
    Ok(Totals { events: total("held")?, bytes: total("held_bytes")?, conflicts: total("conflicts")? })
}

/// Reads a partition's counts from its head.
fn counts(head: &RawDocument) -> Result<SequencerCounts, Failure> {
    let Some(counts) = head.get(COUNTS)?.and_then(RawBsonRef::as_document) else {
        return Ok(SequencerCounts::default());
    };
    let count = |name: &str| counts.get(name).ok().flatten().and_then(RawBsonRef::as_i64).unwrap_or(0);
    Ok(SequencerCounts::from_named(|name| count(name).unsigned_abs()))
}

pub(crate) fn encode_waiting(stream: &StreamId, waiting: &Waiting) -> RawDocumentBuf {
    let Waiting { version, skipped, events, bytes, first, until, highest, since, ask_at, asked, trouble } =
        waiting;
    let mut document = rawdoc! {
        "_id": stream.as_str(),
        "version": stored(*version),
        "skipped": stored(skipped.0),
        "events": stored(*events),
        "bytes": stored(*bytes),
        "first": stored(first.0),
        "until": stored(until.0),
        "highest": stored(highest.0),
        "since": since.as_microsecond(),
        "ask_at": ask_at.as_microsecond(),
        "asked": i64::from(*asked),
    };
    if let Some(trouble) = trouble {
        document.append(cstr!("trouble"), trouble.as_str());
    }
    document
}

fn waiting(stored: &RawDocument) -> Result<(StreamId, Waiting), Failure> {
    let waiting = Waiting {
        version: number(stored, "version")?,
        skipped: Revision(number(stored, "skipped")?),
        events: number(stored, "events")?,
        bytes: number(stored, "bytes")?,
        first: Revision(number(stored, "first")?),
        until: Revision(number(stored, "until")?),
        highest: Revision(number(stored, "highest")?),
        since: time(stored.get_i64("since")?)?,
        ask_at: time(stored.get_i64("ask_at")?)?,
        asked: u32::try_from(stored.get_i64("asked")?).unwrap_or(u32::MAX),
        trouble: stored.get("trouble")?.and_then(RawBsonRef::as_str).map(str::to_owned),
    };
    Ok((StreamId::stored(stored.get_str("_id")?), waiting))
}

pub(crate) fn encode_held(held: &Held) -> RawDocumentBuf {
    let mut document = rawdoc! {
        "_id": { "stream": held.stream.as_str(), "revision": stored(held.revision.0) },
        "previous": stored(held.previous.0),
        "since": held.since.as_microsecond(),
    };
    append_entry(&mut document, &held.entry);
    document
}

fn held(stored: &RawDocument) -> Result<Held, Failure> {
    let place = stored.get_document("_id")?;
    Ok(Held {
        stream: StreamId::stored(place.get_str("stream")?),
        revision: Revision(number(place, "revision")?),
        previous: Revision(number(stored, "previous")?),
        since: time(stored.get_i64("since")?)?,
        entry: Arc::new(entry(stored)?),
    })
}

pub(crate) fn encode_conflict(conflict: &Conflict) -> Result<RawDocumentBuf, Failure> {
    let mut document = rawdoc! {
        "_id": RawDocumentBuf::try_from(&key_of_conflict(conflict))?,
        "open": true,
        "why": text(&conflict.why)?,
        "since": conflict.since.as_microsecond(),
    };
    append_entry(&mut document, &conflict.entry);
    Ok(document)
}

fn conflict(stored: &RawDocument) -> Result<Conflict, Failure> {
    let place = stored.get_document("_id")?;
    Ok(Conflict {
        stream: StreamId::stored(place.get_str("stream")?),
        revision: Revision(number(place, "revision")?),
        why: json(stored.get_str("why")?)?,
        since: time(stored.get_i64("since")?)?,
        entry: Arc::new(entry(stored)?),
        decided: stored.get("decided")?.and_then(RawBsonRef::as_str).map(json).transpose()?,
    })
}

pub(crate) fn encode_skipped(skipped: &Skipped) -> RawDocumentBuf {
    let Skipped { stream, after, through, reason, at } = skipped;
    rawdoc! {
        "_id": { "stream": stream.as_str(), "after": stored(after.0) },
        "through": stored(through.0),
        "reason": reason.as_str(),
        "at": at.as_microsecond(),
    }
}

fn skipped(stored: &RawDocument) -> Result<Skipped, Failure> {
    let place = stored.get_document("_id")?;
    Ok(Skipped {
        stream: StreamId::stored(place.get_str("stream")?),
        after: Revision(number(place, "after")?),
        through: Revision(number(stored, "through")?),
        reason: stored.get_str("reason")?.to_owned(),
        at: time(stored.get_i64("at")?)?,
    })
}

pub(crate) fn encode_rejected(id: &str, rejected: &Rejected) -> Result<RawDocumentBuf, Failure> {
    let Rejected { source, reason, since, attributes, content } = rejected;
    let content = bson::Binary { subtype: bson::spec::BinarySubtype::Generic, bytes: content.clone() };
    Ok(rawdoc! {
        "_id": id,
        "source": source.as_str(),
        "reason": reason.as_str(),
        "since": since.as_microsecond(),
        "attributes": text(attributes)?,
        "content": content,
    })
}

fn rejected(stored: &RawDocument) -> Result<Rejected, Failure> {
    Ok(Rejected {
        source: stored.get_str("source")?.to_owned(),
        reason: stored.get_str("reason")?.to_owned(),
        since: time(stored.get_i64("since")?)?,
        attributes: json(stored.get_str("attributes")?)?,
        content: stored.get_binary("content")?.bytes.to_vec(),
    })
}

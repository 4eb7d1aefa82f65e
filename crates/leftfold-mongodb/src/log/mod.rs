//! Reading the log: one document per event, with the partition and the position as its `_id`.
//!
//! A partition is thus a contiguous range of the `_id` index. The transaction that moves a
//! partition's head also assigns the positions: 1, 2, 3 … without gaps. A transaction can move a
//! head only after the previous move, so commit order is position order. A reader never misses an
//! event that appears later at a lower position.

use std::collections::HashMap;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bson::raw::cstr;
use bson::{Document, RawDocument, RawDocumentBuf, doc};
use leftfold::log::{Entry, Limit, LogPage, check_entries};
use leftfold::{
    Append, AppendError, Appended, Error, Event, EventId, EventKind, Expected, Invalid, Json, Kind, Lane,
    Log, Mark, Partition, Position, Result, Revision, StreamId,
};
use mongodb::ClientSession;
use mongodb::options::ReadConcern;

use crate::error::Failure;
use crate::schema::indexes::STREAM_INDEX;
use crate::schema::{EVENTS, HEADS, META};
use crate::watch::Scope;
use crate::{Base, MAX_IDS, Mongo, batch};

const POSITION_BITS: u32 = 48;
const LAST_POSITION: i64 = (1 << POSITION_BITS) - 1;

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
            let expected = format!("one below {}, the number of partitions", self.partitions());
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
        let number = |event: &Event| i64::try_from(event.revision.0).unwrap_or(i64::MAX);
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

impl Append for Mongo {
    async fn append(
        &self,
        stream: StreamId,
        expected: Expected,
        entries: Vec<Entry>,
    ) -> Result<Appended, AppendError> {
        let base = self.logged()?;
        check_entries(&entries, self.inner.max_event_bytes)?;
        if let Expected::Revision(revision) = expected {
            storable("expected revision", revision.0)?;
        }
        let partition = Partition::of(&stream, self.partitions());
        self.inner.appenders.append(base, partition, stream, expected, entries).await
    }
}

impl Mongo {
    /// Returns the database if it can hold a log.
    pub(crate) fn logged(&self) -> Result<&std::sync::Arc<Base>> {
        let base = &self.inner.base;
        if base.has_transactions() {
            return Ok(base);
        }
        Err(no_transactions(&base.place))
    }
}

/// Creates the error for a server that can't hold a log because it has no transactions.
pub(crate) fn no_transactions(place: &str) -> Error {
    let message = format!(
        "could not use a log in {place}: a log is written in transactions, and this server is no replica set; start it \
         with --replSet and run rs.initiate(), one member will do, or keep only documents here"
    );
    Error::new(Kind::Store, message)
}

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

    /// Waits until reads show every acknowledged write. A newly elected primary does not know yet
    /// which writes a majority has, and shows fewer. This runs one linearizable read per primary,
    /// because that read costs a write. Repairing documents beside workers must stay fast.
    pub(crate) async fn catch_up(&self) -> Result<(), Failure> {
        let hello = self.client.database("admin").run_command(doc! { "hello": 1 }).await?;
        let elected = hello.get_object_id("electionId").ok();
        let known = || self.caught_up.lock().unwrap_or_else(PoisonError::into_inner);
        if elected.is_some() && *known() == elected {
            return Ok(());
        }
        let metas = self.db.collection::<RawDocumentBuf>(META);
        let find = metas.find_one(doc! { "_id": "log" }).read_concern(ReadConcern::linearizable());
        find.max_time(Duration::from_secs(5)).await?;
        *known() = elected;
        Ok(())
    }

    /// Runs a read that must not be older than what this process already knows. Repeats it after an
    /// election, because the new primary may have shown less than its predecessor.
    pub(crate) async fn read_surely<T, F>(&self, read: impl Fn() -> F) -> Result<T, Failure>
    where
        F: Future<Output = Result<T, Failure>>,
    {
        let election = || *self.caught_up.lock().unwrap_or_else(PoisonError::into_inner);
        let before = election();
        let found = read().await?;
        self.catch_up().await?;
        if before.is_some() && election() == before { Ok(found) } else { read().await }
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

    /// Returns the events in the log with these ids.
    pub(crate) async fn events_with(&self, ids: Vec<&str>) -> Result<Vec<Event>, Failure> {
        let events = self.db.collection::<RawDocumentBuf>(EVENTS);
        let mut all = Vec::new();
        for ids in ids.chunks(MAX_IDS) {
            let mut found = events.find(doc! { "id": { "$in": ids } }).batch_size(batch(ids.len())).await?;
            while found.advance().await? {
                all.push(event(found.current())?);
            }
        }
        Ok(all)
    }

    /// Reads events up to the limit, and returns whether the limit ended the page. `next` gives the
    /// query for the events after an event.
    async fn take(
        &self,
        limit: Limit,
        hint: &str,
        next: impl Fn(Option<&Event>) -> (Document, Document),
    ) -> Result<(Vec<Event>, bool), Failure> {
        /// The average size of recent events. It only determines how many are requested at once.
        static USUAL: AtomicUsize = AtomicUsize::new(100);
        let stored_events = self.db.collection::<RawDocumentBuf>(EVENTS);
        let wanted = limit.events.max(1).saturating_add(1);
        let mut events: Vec<Event> = Vec::new();
        let mut bytes = 0_usize;
        loop {
            let (filter, sort) = next(events.last());
            let room = limit.bytes.saturating_sub(bytes) / USUAL.load(Ordering::Relaxed);
            // Request a few more than should fit: a second query costs more than a few unused
            // events.
            let count = (room + room / 8 + 2).min(wanted - events.len());
            let find = stored_events.find(filter).sort(sort);
            let find = find.limit(i64::try_from(count).unwrap_or(i64::MAX));
            let find = find.batch_size(batch(count));
            let find =
                if hint == "_id" { find } else { find.hint(mongodb::options::Hint::Name(hint.to_owned())) };
            let mut found = find.await?;
            let (mut got, before) = (0, bytes);
            while found.advance().await? {
                let event = event(found.current())?;
                got += 1;
                bytes +=
                    event.data.as_str().len() + event.metadata.as_ref().map_or(0, |json| json.as_str().len());
                USUAL.store(((bytes - before) / got).max(1), Ordering::Relaxed);
                if !events.is_empty() && (events.len() >= limit.events || bytes > limit.bytes) {
                    return Ok((events, true));
                }
                events.push(event);
            }
            if got < count {
                return Ok((events, false));
            }
        }
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

/// Converts a number to BSON, where numbers are signed.
fn storable(what: &'static str, number: u64) -> Result<i64, Invalid> {
    i64::try_from(number)
        .map_err(|_| Invalid::new(what, &number.to_string(), format!("a number up to {}", i64::MAX)))
}

pub(crate) fn place_of(partition: Partition, position: i64) -> i64 {
    i64::from(partition.0) << POSITION_BITS | position
}

fn place(event: &Event) -> i64 {
    place_of(event.partition, i64::try_from(event.position.0).unwrap_or(LAST_POSITION))
}

/// Decodes a partition and its last position.
pub(crate) fn head(stored: &RawDocument) -> Result<(Partition, u64), Failure> {
    let partition =
        u16::try_from(stored.get_i32("_id")?).map_err(|error| Failure::damaged(error.to_string()))?;
    Ok((Partition(partition), stored.get_i64("position")?.unsigned_abs()))
}

/// Returns whether the position still fits into a partition.
pub(crate) fn has_room(last: i64) -> bool {
    last <= LAST_POSITION
}

/// Encodes an event for storage.
pub(crate) fn encode(place: i64, stream: &StreamId, revision: i64, entry: &Entry) -> RawDocumentBuf {
    let mut event = bson::rawdoc! { "_id": place, "stream": stream.as_str(), "revision": revision };
    append_entry(&mut event, entry);
    event
}

/// Appends the fields of an event. BSON dates count milliseconds, so a separate field holds the
/// remaining microseconds.
pub(crate) fn append_entry(document: &mut RawDocumentBuf, entry: &Entry) {
    let micros = entry.time.as_microsecond();
    document.append(cstr!("id"), entry.id.as_str());
    document.append(cstr!("type"), entry.kind.as_str());
    document.append(cstr!("time"), bson::DateTime::from_millis(micros.div_euclid(1_000)));
    document.append(cstr!("data"), entry.data.as_str());
    let rest = i32::try_from(micros.rem_euclid(1_000)).unwrap_or(0);
    if rest > 0 {
        document.append(cstr!("micros"), rest);
    }
    if let Some(metadata) = &entry.metadata {
        document.append(cstr!("metadata"), metadata.as_str());
    }
}

fn missing() -> Failure {
    Failure::damaged("an event lacks a field")
}

/// The fields of a stored event, in the log or elsewhere.
#[derive(Default)]
struct Fields<'a> {
    place: Option<i64>,
    stream: Option<&'a str>,
    revision: Option<i64>,
    id: Option<&'a str>,
    kind: Option<&'a str>,
    micros: i64,
    data: Option<&'a str>,
    metadata: Option<&'a str>,
}

fn fields(stored: &RawDocument) -> Result<Fields<'_>, Failure> {
    let mut fields = Fields::default();
    for element in stored {
        let (key, value) = element?;
        match key.as_str() {
            "_id" => fields.place = value.as_i64(),
            "stream" => fields.stream = value.as_str(),
            "revision" => fields.revision = value.as_i64(),
            "id" => fields.id = value.as_str(),
            "type" => fields.kind = value.as_str(),
            "time" => fields.micros += value.as_datetime().ok_or_else(missing)?.timestamp_millis() * 1_000,
            "micros" => fields.micros += i64::from(value.as_i32().ok_or_else(missing)?),
            "data" => fields.data = value.as_str(),
            "metadata" => fields.metadata = value.as_str(),
            _ => {}
        }
    }
    Ok(fields)
}

impl Fields<'_> {
    fn entry(&self) -> Result<Entry, Failure> {
        Ok(Entry {
            id: EventId::stored(self.id.ok_or_else(missing)?),
            kind: EventKind::stored(self.kind.ok_or_else(missing)?),
            time: time(self.micros)?,
            data: Json::stored(self.data.ok_or_else(missing)?),
            metadata: self.metadata.map(Json::stored),
        })
    }
}

/// Converts microseconds into a time.
pub(crate) fn time(micros: i64) -> Result<jiff::Timestamp, Failure> {
    jiff::Timestamp::from_microsecond(micros).map_err(|error| Failure::damaged(error.to_string()))
}

/// Decodes the entry of a stored event.
pub(crate) fn entry(stored: &RawDocument) -> Result<Entry, Failure> {
    fields(stored)?.entry()
}

/// Decodes a stored event.
pub(crate) fn event(stored: &RawDocument) -> Result<Event, Failure> {
    let fields = fields(stored)?;
    let place = fields.place.ok_or_else(missing)?;
    let partition = u16::try_from(place >> POSITION_BITS);
    let Entry { id, kind, time, data, metadata } = fields.entry()?;
    Ok(Event {
        id,
        stream: StreamId::stored(fields.stream.ok_or_else(missing)?),
        revision: Revision(fields.revision.ok_or_else(missing)?.unsigned_abs()),
        kind,
        time,
        data,
        metadata,
        partition: Partition(partition.map_err(|error| Failure::damaged(error.to_string()))?),
        position: Position((place & LAST_POSITION).unsigned_abs()),
    })
}

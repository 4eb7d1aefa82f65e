//! Changes of documents, by a change stream over the database.
//!
//! The stream tells which documents have changed, without their content: the feeder reads the
//! current documents. A place in the stream is a resume token. The feed keeps a pending request or
//! the opening of the stream. A wait that is dropped or times out loses nothing, because the next
//! wait continues it.
//!
//! **A place is reported only after all changes up to it.** It is the token of the last reported
//! change. If a request found no change, it is the server's token for how far it has looked. A
//! server resumes by finding the token's change, and fails if its collection is no longer followed.
//! So a place also stores the time and the collection of that change.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bson::{Document, RawDocument, RawDocumentBuf, Timestamp, doc};
use leftfold::react::{DocumentFeed, DocumentSource, FeedChanges, FeedItem};
use leftfold::{Backoff, DocumentId, Env as _, Kind, Result, System};
use mongodb::change_stream::ChangeStream;
use mongodb::change_stream::event::ResumeToken;
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::documents::collection_of;
use super::ids;
use crate::error::{Failure, code};
use crate::{Base, patiently};

/// The longest time that the server keeps an idle stream waiting. An idle feed costs one command
/// per interval.
const AWAIT: Duration = Duration::from_secs(10);
/// The time after which a server that does not even report an empty result counts as gone.
const SILENCE: Duration = Duration::from_secs(30);
/// The longest single wait.
const MAX_WAIT: Duration = Duration::from_hours(24);
/// The interval of checks for a switch to another generation.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// The reason given when a feed has to start over after a switch.
const SWITCHED: &str = "another generation of what is followed became live";
/// The number of changes in a batch from the server.
const BATCH: u32 = 5_000;

/// Codes for a place that no longer exists, or never did: `InvalidResumeToken`,
/// `ChangeStreamFatalError` and `ChangeStreamHistoryLost`.
const LOST: [i32; 3] = [260, 280, 286];
/// Codes that do not concern a place: `Unauthorized` and `AuthenticationFailed`.
const REFUSED: [i32; 2] = [13, 18];
/// The label of errors after which a stream can't be resumed.
const NOT_RESUMABLE: &str = "NonResumableChangeStreamError";

type Stream = ChangeStream<RawDocumentBuf>;

/// Changes of documents in MongoDB. It is idle unless a caller waits for the
/// [next](DocumentFeed::next) changes.
pub struct MongoFeed {
    source: Arc<Source>,
    /// The place up to which all changes were reported.
    place: Option<Place>,
    stream: Option<Stream>,
    /// The pending request.
    under_way: Option<Step>,
    /// The reason why the stream can't continue.
    lost: Option<String>,
    /// The last failure, unless a request has succeeded since.
    failed: Option<Failure>,
    /// The time of the last check for a switch.
    looked: Instant,
    delays: Box<dyn Iterator<Item = Duration> + Send>,
}

type Step = Pin<Box<dyn Future<Output = Result<(Stream, Option<RawDocumentBuf>), Trouble>> + Send>>;

/// A place in the stream.
#[derive(Clone, Serialize, Deserialize)]
struct Place {
    token: ResumeToken,
    /// The number of switches of each followed projection, if there were any.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    switches: BTreeMap<String, i64>,
    /// The change that the token belongs to, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    of: Option<Of>,
}

/// The collection and the time of a change.
#[derive(Clone, Serialize, Deserialize)]
struct Of {
    collection: String,
    time: u32,
    increment: u32,
}

/// The followed documents.
struct Source {
    base: Arc<Base>,
    on: HashMap<String, DocumentSource>,
    /// The number of switches of each followed projection.
    switches: BTreeMap<String, i64>,
}

/// The reason why there is no answer.
enum Trouble {
    Lost(String),
    Failed(Failure),
}

impl fmt::Debug for MongoFeed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let followed = self.source.on.values();
        f.debug_struct("MongoFeed").field("on", &followed.collect::<Vec<_>>()).finish_non_exhaustive()
    }
}

impl DocumentFeed for MongoFeed {
    async fn next(&mut self, most: usize, patience: Duration) -> Result<FeedItem> {
        let end = Instant::now() + patience.min(MAX_WAIT);
        let mut changes = FeedChanges::default();
        while self.lost.is_none() && count(&changes) < most.max(1) {
            let waits = changes.documents.is_empty();
            match self.answer(waits.then_some(end.min(self.looked + LOOK_EVERY))).await {
                None if waits && Instant::now() < end => self.look().await,
                None => break,
                Some(Ok(Some(change))) => self.note(&change, &mut changes),
                Some(Ok(None)) => {
                    if !waits || Instant::now() >= end {
                        break;
                    }
                }
                Some(Err(Trouble::Lost(why))) => self.lost = Some(why),
                Some(Err(Trouble::Failed(failure))) => {
                    let is_hopeless =
                        !matches!(failure.kind(), Kind::Unavailable | Kind::Contended | Kind::Unknown);
                    self.failed = Some(failure);
                    if is_hopeless || !waits || Instant::now() >= end {
                        break;
                    }
                }
            }
        }
        if self.lost.is_none() && (changes.documents.is_empty() || self.looked.elapsed() >= LOOK_EVERY) {
            self.look().await;
        }
        if let Some(why) = &self.lost {
            return Ok(FeedItem::Lost(why.clone()));
        }
        let failed = |failure: &Failure| Err(failure.to_error("follow changes in", &self.source.base.place));
        if let (Some(failure), true) = (&self.failed, changes.documents.is_empty()) {
            return failed(failure);
        }
        if !changes.documents.is_empty() {
            point!("feed-read");
        }
        match serde_json::to_string(&self.place) {
            Ok(through) => Ok(FeedItem::Changes(FeedChanges { through, ..changes })),
            Err(error) => failed(&Failure::damaged(error.to_string())),
        }
    }
}

impl MongoFeed {
    /// Follows documents from a place on, or from now on.
    pub(super) async fn open(
        base: &Arc<Base>,
        on: Vec<DocumentSource>,
        from: Option<String>,
    ) -> Result<Self> {
        let source = Arc::new(base.run("follow changes in", Source::of(base, on)).await?);
        let mut feed = Self {
            source,
            place: None,
            stream: None,
            under_way: None,
            lost: None,
            failed: None,
            looked: Instant::now(),
            delays: delays(),
        };
        if let Some(from) = from {
            match serde_json::from_str::<Place>(&from) {
                // The first wait finds out whether the server still knows the place.
                Ok(place) if place.switches == feed.source.switches => feed.place = Some(place),
                Ok(_) => feed.lost = Some(SWITCHED.to_owned()),
                Err(error) => feed.lost = Some(format!("{from:?} is no place in a change stream: {error}")),
            }
            return Ok(feed);
        }
        let begin = async {
            let mut stream = feed.source.stream(None).await?;
            let mut first = None;
            // A stream that starts with a change gives no token for the place before it. That
            // change happened before the caller had this feed, so the place after it counts as now.
            if stream.resume_token().is_none() {
                first = stream.next_if_any().await?;
            }
            let Some(token) = stream.resume_token() else {
                return Err(Failure::damaged("the server does not tell where its change stream begins"));
            };
            Ok((stream, feed.source.place(token, first.as_deref())))
        };
        let (stream, place) = base.run("follow changes in", begin).await?;
        Ok(Self { place: Some(place), stream: Some(stream), ..feed })
    }

    /// Returns the next change if there is one at once, or before `until`. `Some(None)` means that
    /// the server looked and found none.
    async fn answer(&mut self, until: Option<Instant>) -> Option<Result<Option<RawDocumentBuf>, Trouble>> {
        if self.under_way.is_none() {
            self.under_way = Some(self.step());
        }
        let step = self.under_way.as_mut()?;
        let done = match until {
            Some(until) => timeout_at(until, step).await.ok(),
            None => {
                poll_fn(|context| match step.as_mut().poll(context) {
                    Poll::Ready(done) => Poll::Ready(Some(done)),
                    Poll::Pending => Poll::Ready(None),
                })
                .await
            }
        };
        let done = done?;
        self.under_way = None;
        Some(done.map(|(stream, change)| {
            if self.failed.take().is_some() {
                self.delays = delays();
            }
            if let Some(token) = stream.resume_token() {
                self.place = Some(self.source.place(token, change.as_deref()));
            }
            self.stream = Some(stream);
            change
        }))
    }

    /// Starts the next step: requests a change, or reopens the stream at its place.
    fn step(&mut self) -> Step {
        if let Some(stream) = self.stream.take() {
            return Box::pin(ask(stream));
        }
        let (source, place) = (Arc::clone(&self.source), self.place.clone());
        let delay =
            if self.failed.is_some() { self.delays.next().unwrap_or_default() } else { Duration::ZERO };
        Box::pin(async move {
            sleep(delay).await;
            Ok((source.open(place).await?, None))
        })
    }

    /// Checks for a switch: the records of another generation are in another collection, and may
    /// differ.
    async fn look(&mut self) {
        self.looked = Instant::now();
        match patiently(self.source.switches()).await {
            Ok(switches) if switches == self.source.switches => {}
            Ok(_) => self.lost = Some(SWITCHED.to_owned()),
            // The next check finds out.
            Err(failure) => tracing::debug!(?failure, "could not look for a switch to another generation"),
        }
    }

    /// Records the document of a change. A drop, a rename or an unreadable change loses the feed,
    /// because the changed documents are unknown.
    fn note(&mut self, change: &RawDocument, changes: &mut FeedChanges) {
        match self.source.read(change) {
            Ok(Noted::Document(on, id)) => {
                changes.documents.entry(on.clone()).or_default().insert(id);
            }
            Ok(Noted::Nothing) => {}
            Ok(Noted::Lost(why)) => self.lost = Some(why),
            Err(failure) => self.lost = Some(format!("a change can't be read: {failure:?}")),
        }
    }
}

/// Returns whether there are changes after a place, up to now.
pub(super) async fn has_changes(
    base: &Arc<Base>,
    on: Vec<DocumentSource>,
    after: &str,
) -> Result<bool, Failure> {
    const GLANCE: Duration = Duration::from_millis(20);
    let Ok(place) = serde_json::from_str::<Place>(after) else { return Ok(true) };
    let hello = base.db.run_command(doc! { "hello": 1 }).await?;
    let last = hello.get_document("lastWrite").and_then(|write| write.get_document("opTime"));
    let now = last.and_then(|time| time.get_timestamp("ts"));
    let now = now.map_err(|error| {
        Failure::damaged(format!("a server that does not say when it was written to: {error}"))
    })?;
    let source = Source::of(base, on).await?;
    if place.switches != source.switches {
        return Ok(true);
    }
    let mut stream = match source.stream_that_waits(Some(place), GLANCE).await {
        Ok(stream) => stream,
        Err(error) => match judge(error) {
            Trouble::Lost(_) => return Ok(true),
            Trouble::Failed(failure) => return Err(failure),
        },
    };
    // The server answers as soon as it has no more results. Its token tells how far it has looked.
    loop {
        if stream.next_if_any().await?.is_some() {
            return Ok(true);
        }
        let looked = stream.resume_token().as_ref().and_then(time_of);
        if looked.is_some_and(|looked| (looked.time, looked.increment) >= (now.time, now.increment)) {
            return Ok(false);
        }
    }
}

/// Returns the time at the start of a resume token: a type byte, the seconds, and a number within
/// the second.
fn time_of(token: &ResumeToken) -> Option<Timestamp> {
    let token = serde_json::to_value(token).ok()?;
    let number = |range| u32::from_str_radix(token.get("_data")?.as_str()?.get(range)?, 16).ok();
    (number(0..2) == Some(0x82)).then_some(())?;
    Some(Timestamp { time: number(2..10)?, increment: number(10..18)? })
}

/// The content of a change.
enum Noted<'a> {
    Document(&'a DocumentSource, DocumentId),
    Nothing,
    Lost(String),
}

impl Source {
    /// Resolves these documents to the collections of their live generations.
    async fn of(base: &Arc<Base>, on: Vec<DocumentSource>) -> Result<Self, Failure> {
        let mut source = Self { base: Arc::clone(base), on: HashMap::new(), switches: BTreeMap::new() };
        for on in on {
            let (name, switches) = collection_of(base, &on).await?;
            if switches > 0 {
                source.switches.insert(on.to_string(), switches);
            }
            source.on.insert(name, on);
        }
        Ok(source)
    }

    /// Returns the current number of switches of each followed projection.
    async fn switches(&self) -> Result<BTreeMap<String, i64>, Failure> {
        let mut all = BTreeMap::new();
        for on in self.on.values().filter(|on| matches!(on, DocumentSource::Projection(_))) {
            let (_, switches) = collection_of(&self.base, on).await?;
            if switches > 0 {
                all.insert(on.to_string(), switches);
            }
        }
        Ok(all)
    }

    fn place(&self, token: ResumeToken, change: Option<&RawDocument>) -> Place {
        Place { token, switches: self.switches.clone(), of: change.and_then(of) }
    }

    /// Opens the stream at a place. Distinguishes a lost place from a server failure.
    async fn open(&self, place: Option<Place>) -> Result<Stream, Trouble> {
        let is_placed = place.is_some();
        let opened = patiently(async { Ok(self.stream(place).await) }).await.map_err(Trouble::Failed)?;
        let error = match opened {
            Ok(stream) => return Ok(stream),
            Err(error) => error,
        };
        let code = code(&error);
        match (judge(error), code) {
            (Trouble::Failed(failure), Some((code, report)))
                if is_placed && failure.kind() == Kind::Store && !REFUSED.contains(&code) =>
            {
                // Servers have many codes for an invalid place. If a stream without one works, the
                // place is lost.
                match self.stream(None).await {
                    Ok(_) => Err(Trouble::Lost(report)),
                    Err(_) => Err(Trouble::Failed(failure)),
                }
            }
            (trouble, _) => Err(trouble),
        }
    }

    /// Opens the stream of changes to these documents, after a place or from now on.
    async fn stream(&self, after: Option<Place>) -> Result<Stream, mongodb::error::Error> {
        self.stream_that_waits(after, AWAIT).await
    }

    async fn stream_that_waits(
        &self,
        after: Option<Place>,
        patience: Duration,
    ) -> Result<Stream, mongodb::error::Error> {
        let names: Vec<_> = self.on.keys().collect();
        let db = &self.base.db;
        let happens = ["insert", "update", "replace", "delete", "drop", "rename"];
        let pipeline = [
            doc! { "$match": { "$or": [
                { "operationType": { "$in": happens.to_vec() }, "ns.coll": { "$in": &names } },
                { "operationType": "rename", "to.db": db.name(), "to.coll": { "$in": &names } },
                { "operationType": { "$in": ["dropDatabase", "invalidate"] } },
            ] } },
            doc! { "$project": { "operationType": 1, "ns.coll": 1, "documentKey._id": 1, "clusterTime": 1 } },
        ];
        // A stream over a single collection costs the server less.
        let only = self.on.keys().next().filter(|_| self.on.len() == 1);
        let only = only.map(|name| db.collection::<Document>(name));
        let watch = only.as_ref().map_or_else(|| db.watch(), |only| only.watch());
        let watch = watch.pipeline(pipeline).max_await_time(patience).batch_size(BATCH);
        let watch = match after {
            Some(Place { of: Some(Of { collection, time, increment }), .. })
                if !self.on.contains_key(&collection) =>
            {
                watch.start_at_operation_time(Timestamp { time, increment })
            }
            Some(Place { token, .. }) => watch.resume_after(token),
            None => watch,
        };
        Ok(watch.await?.with_type())
    }

    fn read(&self, change: &RawDocument) -> Result<Noted<'_>, Failure> {
        let operation = change.get_str("operationType")?;
        let name = collection(change).unwrap_or_default();
        if !matches!(operation, "insert" | "update" | "replace" | "delete") {
            return Ok(Noted::Lost(match operation {
                "drop" => format!("collection {name} was dropped"),
                "rename" => format!("collection {name} was renamed"),
                _ => "the database was dropped".to_owned(),
            }));
        }
        let Some(on) = self.on.get(name) else { return Ok(Noted::Nothing) };
        let id = change.get_document("documentKey")?.get("_id")?;
        let id = id.ok_or_else(|| Failure::damaged("it names no document"))?;
        Ok(match (on, id) {
            (DocumentSource::External(_), id) => Noted::Document(on, ids::of(id)?),
            (DocumentSource::Projection(_), bson::RawBsonRef::String(id)) => {
                Noted::Document(on, DocumentId::stored(id))
            }
            // No projection wrote this document.
            (DocumentSource::Projection(_), _) => Noted::Nothing,
        })
    }
}

/// Returns the name of a change's collection.
fn collection(change: &RawDocument) -> Option<&str> {
    change.get_document("ns").ok()?.get_str("coll").ok()
}

/// Returns the collection and the time of a change.
fn of(change: &RawDocument) -> Option<Of> {
    let Timestamp { time, increment } = change.get_timestamp("clusterTime").ok()?;
    Some(Of { collection: collection(change)?.to_owned(), time, increment })
}

/// Requests a change. After an error, the caller opens the stream again.
async fn ask(mut stream: Stream) -> Result<(Stream, Option<RawDocumentBuf>), Trouble> {
    let change = match timeout(SILENCE, stream.next_if_any()).await {
        Ok(Ok(change)) => change,
        Ok(Err(error)) => return Err(judge(error)),
        Err(_) => return Err(Trouble::Failed(Failure::silent())),
    };
    if change.is_none() && !stream.is_alive() {
        let report = "the server has ended the change stream";
        return Err(Trouble::Failed(Failure::new(Kind::Unavailable, "try again", report)));
    }
    Ok((stream, change))
}

/// Distinguishes a lost place from a failed connection.
fn judge(error: mongodb::error::Error) -> Trouble {
    match code(&error) {
        Some((code, report)) if LOST.contains(&code) || error.contains_label(NOT_RESUMABLE) => {
            Trouble::Lost(report)
        }
        _ => Trouble::Failed(error.into()),
    }
}

fn count(changes: &FeedChanges) -> usize {
    changes.documents.values().map(std::collections::BTreeSet::len).sum()
}

/// Returns the delays before a failed stream is opened again.
fn delays() -> Box<dyn Iterator<Item = Duration> + Send> {
    let backoff = Backoff::default().first(Duration::from_millis(20)).most(Duration::from_secs(2));
    Box::new(backoff.without_limit().delays(System.random()))
}

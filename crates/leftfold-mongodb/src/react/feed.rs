//! Changes of documents, by a change stream over the database.
//!
//! The stream tells which documents have changed, not what they are: whoever hears of it reads them as they are then. A place in it is a
//! resume token. What is under way, a request to the server or the opening of the stream, is kept in the feed: a wait that is given up, or
//! that ends, loses nothing, and the next one goes on with it.
//!
//! **No place is told before all changes up to it were**: it is the token of the last change that was told; where a request found none, it
//! is the server's word for how far it has looked. A server looks for the change that a token is of, and does not find one of a
//! collection that is not followed any more: so a place also tells when and where that change was.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bson::{Document, RawDocument, RawDocumentBuf, Timestamp, doc};
use leftfold::react::{Changes, Feed, On, Told};
use leftfold::{Backoff, DocumentId, Env as _, Kind, Result, System};
use mongodb::change_stream::ChangeStream;
use mongodb::change_stream::event::ResumeToken;
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::documents::collection_of;
use super::ids;
use crate::error::{Failure, code};
use crate::{Base, patiently};

/// How long the server keeps an idle stream waiting: what an idle feed costs is one command in this time.
const AWAIT: Duration = Duration::from_secs(10);
/// A server that does not even say that nothing happened is gone.
const SILENCE: Duration = Duration::from_secs(30);
/// The longest that anybody waits at once.
const LONGEST: Duration = Duration::from_hours(24);
/// How often is looked whether another generation of what is followed became live.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// Why a feed has to begin anew then.
const SWITCHED: &str = "another generation of what is followed became live";
/// How many changes a server sends at once.
const BATCH: u32 = 5_000;

/// Codes that say that a place is not there any more, or never was: `InvalidResumeToken`, `ChangeStreamFatalError` and
/// `ChangeStreamHistoryLost`.
const LOST: [i32; 3] = [260, 280, 286];
/// Codes that say nothing about a place: `Unauthorized` and `AuthenticationFailed`.
const REFUSED: [i32; 2] = [13, 18];
/// The label of errors after which a stream can't go on where it was.
const NOT_RESUMABLE: &str = "NonResumableChangeStreamError";

type Stream = ChangeStream<RawDocumentBuf>;

/// Changes of documents in MongoDB. It does nothing while nobody waits for the [next](Feed::next).
pub struct MongoFeed {
    source: Arc<Source>,
    /// Up to where all changes were told.
    place: Option<Place>,
    stream: Option<Stream>,
    /// What was asked for and is not answered yet.
    under_way: Option<Step>,
    /// Why the stream can't go on.
    lost: Option<String>,
    /// What went wrong last, unless all went well since.
    failed: Option<Failure>,
    /// When it was last looked whether another generation became live.
    looked: Instant,
    delays: Box<dyn Iterator<Item = Duration> + Send>,
}

type Step = Pin<Box<dyn Future<Output = Result<(Stream, Option<RawDocumentBuf>), Trouble>> + Send>>;

/// A place in the stream.
#[derive(Clone, Serialize, Deserialize)]
struct Place {
    token: ResumeToken,
    /// How often other generations of what is followed had become live, where that ever happened.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    switches: BTreeMap<String, i64>,
    /// The change that the token is of, if it is of one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    of: Option<Of>,
}

/// Where and when a change was.
#[derive(Clone, Serialize, Deserialize)]
struct Of {
    collection: String,
    time: u32,
    increment: u32,
}

/// What is followed.
struct Source {
    base: Arc<Base>,
    on: HashMap<String, On>,
    /// How often other generations have become live, of each projection that is followed.
    switches: BTreeMap<String, i64>,
}

/// Why there is no answer.
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

impl Feed for MongoFeed {
    async fn next(&mut self, most: usize, patience: Duration) -> Result<Told> {
        let end = Instant::now() + patience.min(LONGEST);
        let mut changes = Changes::default();
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
            return Ok(Told::Lost(why.clone()));
        }
        let failed = |failure: &Failure| Err(failure.to_error("follow changes in", &self.source.base.place));
        if let (Some(failure), true) = (&self.failed, changes.documents.is_empty()) {
            return failed(failure);
        }
        if !changes.documents.is_empty() {
            point!("feed-read");
        }
        match serde_json::to_string(&self.place) {
            Ok(through) => Ok(Told::Changes(Changes { through, ..changes })),
            Err(error) => failed(&Failure::damaged(error.to_string())),
        }
    }
}

impl MongoFeed {
    /// Follows documents from a place on, or from now on.
    pub(super) async fn open(base: &Arc<Base>, on: Vec<On>, from: Option<String>) -> Result<Self> {
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
                // Whether the server knows it is found out by the first wait.
                Ok(place) if place.switches == feed.source.switches => feed.place = Some(place),
                Ok(_) => feed.lost = Some(SWITCHED.to_owned()),
                Err(error) => feed.lost = Some(format!("{from:?} is no place in a change stream: {error}")),
            }
            return Ok(feed);
        }
        let begin = async {
            let mut stream = feed.source.stream(None).await?;
            let mut first = None;
            // A stream that begins with a change does not say what is before it. That change was made before anybody could know of
            // this feed: now is after it.
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

    /// The next change, if there is one at once, or until then. `Some(None)` says that the server has looked and found none.
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

    /// What is done next: a change is asked for, or the stream is opened where it was.
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

    /// Looks whether another generation became live: then its records are elsewhere, and may be others.
    async fn look(&mut self) {
        self.looked = Instant::now();
        match patiently(self.source.switches()).await {
            Ok(switches) if switches == self.source.switches => {}
            Ok(_) => self.lost = Some(SWITCHED.to_owned()),
            // The next look tells.
            Err(failure) => tracing::debug!(?failure, "could not look for a switch to another generation"),
        }
    }

    /// Takes down what a change is about. After some, nobody knows what else has changed.
    fn note(&mut self, change: &RawDocument, changes: &mut Changes) {
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

/// Whether there are changes after a place, up to now.
pub(super) async fn has_changes(base: &Arc<Base>, on: Vec<On>, after: &str) -> Result<bool, Failure> {
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
    // The server answers as soon as it has nothing more at hand: how far it has looked by then is in its token.
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

/// The time that a resume token begins with: a byte for its type, seconds, and a number within the second.
fn time_of(token: &ResumeToken) -> Option<Timestamp> {
    let token = serde_json::to_value(token).ok()?;
    let number = |range| u32::from_str_radix(token.get("_data")?.as_str()?.get(range)?, 16).ok();
    (number(0..2) == Some(0x82)).then_some(())?;
    Some(Timestamp { time: number(2..10)?, increment: number(10..18)? })
}

/// What a change says.
enum Noted<'a> {
    Document(&'a On, DocumentId),
    Nothing,
    Lost(String),
}

impl Source {
    /// What is live now, of these documents.
    async fn of(base: &Arc<Base>, on: Vec<On>) -> Result<Self, Failure> {
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

    /// How often other generations of these documents have become live by now.
    async fn switches(&self) -> Result<BTreeMap<String, i64>, Failure> {
        let mut all = BTreeMap::new();
        for on in self.on.values().filter(|on| matches!(on, On::Projection(_))) {
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

    /// Opens the stream at a place. One that can't be found is told from a server that has trouble of its own.
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
                // There are many codes for a place that makes no sense. Without one, it works.
                match self.stream(None).await {
                    Ok(_) => Err(Trouble::Lost(report)),
                    Err(_) => Err(Trouble::Failed(failure)),
                }
            }
            (trouble, _) => Err(trouble),
        }
    }

    /// The stream of what happens to these documents, after a place or from now on.
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
        // What a server has to do for a stream over a single collection is less.
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
            (On::Plain(_), id) => Noted::Document(on, ids::of(id)?),
            (On::Projection(_), bson::RawBsonRef::String(id)) => Noted::Document(on, DocumentId::stored(id)),
            // No projection has written it.
            (On::Projection(_), _) => Noted::Nothing,
        })
    }
}

/// The name of the collection that a change is in.
fn collection(change: &RawDocument) -> Option<&str> {
    change.get_document("ns").ok()?.get_str("coll").ok()
}

/// Where and when a change was.
fn of(change: &RawDocument) -> Option<Of> {
    let Timestamp { time, increment } = change.get_timestamp("clusterTime").ok()?;
    Some(Of { collection: collection(change)?.to_owned(), time, increment })
}

/// Asks for a change. What fails is opened anew.
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

/// Whether the place is lost, or nothing but the connection.
fn judge(error: mongodb::error::Error) -> Trouble {
    match code(&error) {
        Some((code, report)) if LOST.contains(&code) || error.contains_label(NOT_RESUMABLE) => {
            Trouble::Lost(report)
        }
        _ => Trouble::Failed(error.into()),
    }
}

fn count(changes: &Changes) -> usize {
    changes.documents.values().map(std::collections::BTreeSet::len).sum()
}

/// How long is waited before a stream that failed is opened again.
fn delays() -> Box<dyn Iterator<Item = Duration> + Send> {
    let backoff = Backoff::default().first(Duration::from_millis(20)).most(Duration::from_secs(2));
    Box::new(backoff.without_limit().delays(System.random()))
}

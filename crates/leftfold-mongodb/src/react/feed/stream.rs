//! The change stream over the collections of followed documents.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use bson::{Document, RawDocument, RawDocumentBuf, Timestamp, doc};
use leftfold::react::DocumentSource;
use leftfold::{DocumentId, Kind};
use mongodb::change_stream::ChangeStream;
use mongodb::change_stream::event::ResumeToken;
use tokio::time::timeout;

use super::place::{Of, Place, collection, time_of};
use crate::connection::{Base, with_timeout};
use crate::encoding::ids;
use crate::error::{Failure, code};
use crate::react::documents::collection_of;

/// The longest time that the server keeps an idle stream waiting. An idle feed costs one command
/// per interval.
const AWAIT: Duration = Duration::from_secs(10);
/// The time after which a server that does not even report an empty result counts as gone.
const SILENCE: Duration = Duration::from_secs(30);
/// The number of changes in a batch from the server.
const BATCH: u32 = 5_000;

/// Codes for a place that no longer exists, or never did: `InvalidResumeToken`,
/// `ChangeStreamFatalError` and `ChangeStreamHistoryLost`.
const LOST: [i32; 3] = [260, 280, 286];
/// Codes that do not concern a place: `Unauthorized` and `AuthenticationFailed`.
const REFUSED: [i32; 2] = [13, 18];
/// The label of errors after which a stream can't be resumed.
const NOT_RESUMABLE: &str = "NonResumableChangeStreamError";

pub(super) type Stream = ChangeStream<RawDocumentBuf>;

/// The followed documents.
pub(super) struct Source {
    pub(super) base: Arc<Base>,
    pub(super) on: HashMap<String, DocumentSource>,
    /// The number of switches of each followed projection.
    pub(super) switches: BTreeMap<String, i64>,
}

/// The reason why there is no answer.
pub(super) enum StreamError {
    Lost(String),
    Failed(Failure),
}

/// The content of a change.
pub(super) enum Change<'a> {
    Document(&'a DocumentSource, DocumentId),
    Nothing,
    Lost(String),
}

impl Source {
    /// Resolves these documents to the collections of their live generations.
    pub(super) async fn of(base: &Arc<Base>, on: Vec<DocumentSource>) -> Result<Self, Failure> {
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
    pub(super) async fn switches(&self) -> Result<BTreeMap<String, i64>, Failure> {
        let mut all = BTreeMap::new();
        for on in self.on.values().filter(|on| matches!(on, DocumentSource::Projection(_))) {
            let (_, switches) = collection_of(&self.base, on).await?;
            if switches > 0 {
                all.insert(on.to_string(), switches);
            }
        }
        Ok(all)
    }

    /// Returns the place of a token, after a change if there was one.
    pub(super) fn place(&self, token: ResumeToken, change: Option<&RawDocument>) -> Place {
        Place { token, switches: self.switches.clone(), of: change.and_then(Of::change) }
    }

    /// Opens the stream at a place. Distinguishes a lost place from a server failure.
    pub(super) async fn open(&self, place: Option<Place>) -> Result<Stream, StreamError> {
        let is_placed = place.is_some();
        let opened =
            with_timeout(async { Ok(self.stream(place).await) }).await.map_err(StreamError::Failed)?;
        let error = match opened {
            Ok(stream) => return Ok(stream),
            Err(error) => error,
        };
        let code = code(&error);
        match (judge(error), code) {
            (StreamError::Failed(failure), Some((code, report)))
                if is_placed && failure.kind() == Kind::Store && !REFUSED.contains(&code) =>
            {
                // Servers have many codes for an invalid place. If a stream without one works, the
                // place is lost.
                match self.stream(None).await {
                    Ok(_) => Err(StreamError::Lost(report)),
                    Err(_) => Err(StreamError::Failed(failure)),
                }
            }
            (trouble, _) => Err(trouble),
        }
    }

    /// Opens the stream of changes to these documents, after a place or from now on.
    pub(super) async fn stream(&self, after: Option<Place>) -> Result<Stream, mongodb::error::Error> {
        self.stream_that_waits(after, AWAIT).await
    }

    async fn stream_that_waits(
        &self,
        after: Option<Place>,
        patience: Duration,
    ) -> Result<Stream, mongodb::error::Error> {
        let names: Vec<_> = self.on.keys().collect();
        let db = &self.base.db;
        let operations = ["insert", "update", "replace", "delete", "drop", "rename"];
        let pipeline = [
            doc! { "$match": { "$or": [
                { "operationType": { "$in": operations.to_vec() }, "ns.coll": { "$in": &names } },
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

    /// Decodes a change.
    pub(super) fn read(&self, change: &RawDocument) -> Result<Change<'_>, Failure> {
        let operation = change.get_str("operationType")?;
        let name = collection(change).unwrap_or_default();
        if !matches!(operation, "insert" | "update" | "replace" | "delete") {
            return Ok(Change::Lost(match operation {
                "drop" => format!("collection {name} was dropped"),
                "rename" => format!("collection {name} was renamed"),
                _ => "the database was dropped".to_owned(),
            }));
        }
        let Some(on) = self.on.get(name) else { return Ok(Change::Nothing) };
        let id = change.get_document("documentKey")?.get("_id")?;
        let id = id.ok_or_else(|| Failure::damaged("the change names no document"))?;
        Ok(match (on, id) {
            (DocumentSource::External(_), id) => Change::Document(on, ids::of(id)?),
            (DocumentSource::Projection(_), bson::RawBsonRef::String(id)) => {
                Change::Document(on, DocumentId::stored(id))
            }
            // No projection wrote this document.
            (DocumentSource::Projection(_), _) => Change::Nothing,
        })
    }
}

/// Requests a change. After an error, the caller opens the stream again.
pub(super) async fn request(mut stream: Stream) -> Result<(Stream, Option<RawDocumentBuf>), StreamError> {
    let change = match timeout(SILENCE, stream.next_if_any()).await {
        Ok(Ok(change)) => change,
        Ok(Err(error)) => return Err(judge(error)),
        Err(_) => return Err(StreamError::Failed(Failure::silent())),
    };
    if change.is_none() && !stream.is_alive() {
        let report = "the server has ended the change stream";
        return Err(StreamError::Failed(Failure::new(Kind::Unavailable, "try again", report)));
    }
    Ok((stream, change))
}

/// Distinguishes a lost place from a failed connection.
fn judge(error: mongodb::error::Error) -> StreamError {
    match code(&error) {
        Some((code, report)) if LOST.contains(&code) || error.contains_label(NOT_RESUMABLE) => {
            StreamError::Lost(report)
        }
        _ => StreamError::Failed(error.into()),
    }
}

/// Returns whether there are changes after a place, up to now.
pub(in crate::react) async fn has_changes(
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
        Failure::damaged(format!("the server did not report the time of its last write: {error}"))
    })?;
    let source = Source::of(base, on).await?;
    if place.switches != source.switches {
        return Ok(true);
    }
    let mut stream = match source.stream_that_waits(Some(place), GLANCE).await {
        Ok(stream) => stream,
        Err(error) => match judge(error) {
            StreamError::Lost(_) => return Ok(true),
            StreamError::Failed(failure) => return Err(failure),
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

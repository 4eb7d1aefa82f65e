//! Streams: appending events and reading them.

use std::collections::VecDeque;

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use leftfold::log::Limit;
use leftfold::{Event, Expected, Invalid, Json, NewEvent, Revision, StreamId};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::extract::{Content, Named, Params};
use super::sse::{self, Feed, FeedStep, last_event_id};
use super::{Answer, MAX_ITEMS, Operation, PAGE_BYTES, json_of, page_limit, with_status};
use crate::access::Scope;
use crate::idempotency::idempotency_key;
use crate::problem::Problem;
use crate::{Backend, Shared};

pub(super) fn operations<S: Backend>() -> Vec<Operation<S>> {
    let event = json!({
        "type": "object",
        "required": ["type", "data"],
        "additionalProperties": false,
        "properties": {
            "type": { "type": "string" }, "data": {}, "id": { "type": "string" },
            "time": { "type": "string", "format": "date-time" }, "metadata": { "type": "object" },
        },
    });
    vec![
        Operation::post("/streams/{stream}", "append", "Append events to a stream, all or none", append::<S>)
            .scope(Scope::Ingest)
            .query("expected", "The expected revision of the stream; 0 for a new one", "integer")
            .header(
                "Idempotency-Key",
                "Makes the request idempotent: events without an id get one from this key",
            )
            .body(
                "application/json",
                json!({ "oneOf": [event.clone(), { "type": "array", "items": event }] }),
            )
            .answers(200, "application/json", "The log already has these events")
            .answers(201, "application/json", "The events were appended")
            .fails(409, "The stream is at another revision, or another event has the same id"),
        Operation::get(
            "/streams/{stream}",
            "readStream",
            "Read the events of a stream, in order; as an event stream with `Accept: text/event-stream`",
            read::<S>,
        )
        .scope(Scope::Read)
        .query("after", "Read the events after this revision", "integer")
        .query("limit", "The maximum number of events: 100 by default, at most 1000", "integer")
        .header("Last-Event-ID", "The id of the last message of an event stream; resumes after it"),
    ]
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Append {
    expected: Option<u64>,
}

/// An event in a request.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Posted {
    r#type: String,
    data: Json,
    id: Option<String>,
    time: Option<jiff::Timestamp>,
    metadata: Option<Json>,
}

/// An event in a response.
#[derive(Serialize)]
pub(super) struct Shown<'e> {
    id: &'e str,
    stream: &'e str,
    revision: u64,
    r#type: &'e str,
    time: jiff::Timestamp,
    data: &'e Json,
    #[serde(skip_serializing_if = "Option::is_none")]
    metadata: Option<&'e Json>,
    bookmark: String,
}

impl<'e> From<&'e Event> for Shown<'e> {
    fn from(event: &'e Event) -> Self {
        Self {
            id: event.id.as_str(),
            stream: event.stream.as_str(),
            revision: event.revision.0,
            r#type: event.kind.as_str(),
            time: event.time,
            data: &event.data,
            metadata: event.metadata.as_ref(),
            bookmark: event.bookmark().to_string(),
        }
    }
}

/// A page of events. Their data is sent as it was received, even if it can't be parsed.
#[derive(Serialize)]
pub(super) struct Page<'e> {
    pub(super) events: Vec<Shown<'e>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) after: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) more: Option<bool>,
}

async fn append<S: Backend>(
    State(shared): State<Shared<S>>,
    Named(stream): Named<String>,
    Params(params): Params<Append>,
    headers: HeaderMap,
    content: Content,
) -> Answer {
    let key = idempotency_key(&headers)?;
    let is_list = content.0.trim_ascii_start().starts_with(b"[");
    let posted: Vec<Posted> = if is_list { content.json()? } else { vec![content.json()?] };
    if posted.is_empty() || posted.len() > MAX_ITEMS {
        return Err(Problem::invalid(format!("the body has {} events; send 1 to {MAX_ITEMS}", posted.len())));
    }
    let count = posted.len();
    let events =
        posted.into_iter().zip(1..).map(|(posted, number)| posted.into_event(key.as_deref(), number));
    let events = events.collect::<Result<Vec<_>, _>>()?;
    let expected = params.expected.map_or(Expected::Any, |revision| Expected::Revision(Revision(revision)));
    let appended = shared.app.append_events(&stream, expected, events).await?;
    let is_new = matches!(appended, leftfold::Appended::New(_));
    let bookmark = appended.into_bookmark();
    let answer = json_of(&json!({
        "stream": bookmark.stream, "revision": bookmark.revision, "events": count, "bookmark": bookmark.to_string(),
        "duplicate": !is_new,
    }))?;
    Ok(with_status(answer, if is_new { StatusCode::CREATED } else { StatusCode::OK }))
}

impl Posted {
    /// Returns the event. If it has no id, its id is derived from the key of the request. The body
    /// was checked before.
    fn into_event(self, key: Option<&str>, number: usize) -> Result<NewEvent, Invalid> {
        let mut event = NewEvent::new(&self.r#type, self.data.assume_strict())?;
        match (self.id, key) {
            (Some(id), _) => event = event.with_id(id)?,
            (None, Some(key)) => event = event.with_id(format!("{key}-{number}"))?,
            (None, None) => {}
        }
        if let Some(time) = self.time {
            event = event.at(time);
        }
        match self.metadata {
            Some(metadata) => event.with_metadata(&metadata),
            None => Ok(event),
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Read {
    #[serde(default)]
    after: u64,
    limit: Option<usize>,
}

async fn read<S: Backend>(
    State(shared): State<Shared<S>>,
    Named(stream): Named<String>,
    Params(params): Params<Read>,
    headers: HeaderMap,
) -> Answer {
    let stream = StreamId::new(stream)?;
    let limit = Limit { events: page_limit(params.limit)?, bytes: PAGE_BYTES };
    if sse::is_wanted(&headers) {
        let after = match last_event_id(&headers) {
            None => params.after,
            Some(id) => id.parse().map_err(|_| {
                Problem::invalid(format!("Last-Event-ID: {id:?} is not a revision; use the id of a message"))
            })?,
        };
        let following =
            Following { shared: shared.clone(), stream, after: Revision(after), left: VecDeque::new() };
        return sse::respond(shared, after.to_string(), following);
    }
    let _turn = shared.turn().await;
    let events = shared.app.store().read_stream(&stream, Revision(params.after), limit).await?;
    let after = events.last().map(|event| event.revision.to_string());
    json_of(&Page { events: events.iter().map(Shown::from).collect(), after, more: None })
}

/// A feed of one stream's events.
struct Following<S: Backend> {
    shared: Shared<S>,
    stream: StreamId,
    after: Revision,
    left: VecDeque<Event>,
}

impl<S: Backend> Feed for Following<S> {
    async fn next(&mut self) -> Result<FeedStep, Problem> {
        let store = self.shared.app.store();
        loop {
            if let Some(event) = self.left.pop_front() {
                self.after = event.revision;
                return FeedStep::event(event.revision.to_string(), &event);
            }
            // Read the heads before the stream: then an append in between ends the wait at once.
            let heads = store.heads().await?;
            self.left = store.read_stream(&self.stream, self.after, sse::PAGE).await?.into();
            if self.left.is_empty() {
                store.grown(&heads).await?;
            }
        }
    }
}

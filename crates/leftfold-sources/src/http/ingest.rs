//! A route that accepts events.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::HeaderMap;
use axum::http::header::{CONTENT_TYPE, HeaderValue};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use leftfold::sequence::Rejected;
use leftfold::{Delivery, Env, Error, Json, Kind, Policy, Sequencer, Sequences, System};
use serde::Serialize;
use serde_json::value::RawValue;

use super::answers::Told;
use super::problem::Problem;
use crate::intake;
use crate::mapping::{BATCH, Mapping, STRUCTURED};
use crate::message::Message;

/// The content types with one event per line.
const LINES: [&str; 2] = ["application/x-ndjson", "application/jsonl"];
/// The retry delay for messages that could not even be recorded as rejected, in seconds.
const NO_ROOM: u64 = 30;

/// A request extension which says that all JSON in the body passed
/// [`Json::check_strict`](leftfold::Json::check_strict). A layer that checks bodies inserts it, so
/// that their events are not checked again.
#[derive(Clone, Copy, Debug)]
pub struct Checked;

/// Returns a route `POST /` that accepts events; see [`Ingest`].
pub fn router<S: Sequences + Clone>(sequencer: Sequencer<S>, mapping: Mapping, policy: Policy) -> Router {
    Ingest::new(sequencer, mapping, policy).router("/")
}

/// A route that accepts posted CloudEvents, and responds when their outcome is durable.
///
/// | content type | events |
/// | --- | --- |
/// | `application/cloudevents+json` | one, structured |
/// | any other, with headers `ce-…` | one, binary: the body is its data |
/// | `application/cloudevents-batch+json` | many, as a JSON array |
/// | `application/x-ndjson` | many, one in each line |
///
/// With [`FieldMapping`](crate::FieldMapping) as mapping the body may have any type. It is one
/// message, or many as above.
///
/// The response for one event is an object; for many it is an array in the same order. An example
/// is `{"answer":"appended","bookmark":"0:17:3:cart-42"}`. Other answers are `duplicate` with a
/// `bookmark`, `held` with `waiting_for`, `stale` with `last`, `conflict` with `why`, and
/// `rejected` with `why` and an `id`.
///
/// | status | |
/// | --- | --- |
/// | 200 | The sender may delete all events. Invalid ones of many are recorded as rejected. |
/// | 400 | A single event can't be accepted, or the body can't be read. Nothing was recorded. |
/// | 413, 415 | The body is too large; the type is none of the above. |
/// | 429 | There was no room for the events with the answer `refused`. Send them again later. |
/// | 503 | The store is unavailable. Send all events again. |
///
/// After a 429, wait for `Retry-After` seconds. Sending all events again is harmless.
///
/// All but 200 are problem details (RFC 9457). This route has no authentication: put it behind a
/// layer that has.
pub struct Ingest<S> {
    sequencer: Sequencer<S>,
    mapping: Mapping,
    policy: Policy,
    name: String,
    max_bytes: usize,
    max_events: usize,
    env: Arc<dyn Env>,
}

impl<S: Sequences + Clone> Ingest<S> {
    /// Creates a route in front of this sequencer.
    pub fn new(sequencer: Sequencer<S>, mapping: Mapping, policy: Policy) -> Self {
        Self {
            sequencer,
            mapping,
            policy,
            name: "http".into(),
            max_bytes: 8 << 20,
            max_events: 10_000,
            env: Arc::new(System),
        }
    }

    /// Sets the name that operators see beside rejected messages. The default is `http`.
    #[must_use]
    pub fn name(self, name: impl Into<String>) -> Self {
        Self { name: name.into(), ..self }
    }

    /// Sets the maximum size of a body. The default is 8 MiB.
    #[must_use]
    pub fn max_bytes(self, max_bytes: usize) -> Self {
        Self { max_bytes, ..self }
    }

    /// Sets the maximum number of events in one body. The default is 10,000.
    #[must_use]
    pub fn max_events(self, max_events: usize) -> Self {
        Self { max_events, ..self }
    }

    /// Sets the source of time and randomness.
    #[must_use]
    pub fn env(self, env: Arc<dyn Env>) -> Self {
        Self { env, ..self }
    }

    /// Returns the route at this path.
    pub fn router(self, path: &str) -> Router {
        let other_methods = || async { Problem::not_allowed("post the event, or several of them") };
        Router::new().route(path, post(take::<S>).fallback(other_methods)).with_state(Arc::new(self))
    }

    /// Responds to a request, like the route does.
    pub async fn respond(&self, request: Request) -> Response {
        self.answer(request).await.unwrap_or_else(IntoResponse::into_response)
    }

    async fn answer(&self, request: Request) -> Result<Response, Problem> {
        let (parts, body) = request.into_parts();
        let body = self.read(body).await?;
        let checked = parts.extensions.get::<Checked>().copied();
        let kind =
            Message { attributes: attributes(&parts.headers, true)?, ..Message::default() }.content_type();
        let many = match kind.as_deref() {
            Some(BATCH) => Some(batch(&body)?),
            Some(kind) if LINES.contains(&kind) => Some(lines(&body)),
            _ => None,
        };
        match many {
            Some(items) if items.len() > self.max_events => {
                let said =
                    format!("{} events in one body, and at most {} are taken", items.len(), self.max_events);
                Err(Problem::too_large(said))
            }
            Some(items) => self.take_many(&items, checked).await,
            None => {
                let message =
                    Message { content: body.into(), attributes: attributes(&parts.headers, false)? };
                let is_event = kind.as_deref() == Some(STRUCTURED)
                    || message.attributes.keys().any(|name| name.starts_with("ce-"))
                    || matches!(self.mapping, Mapping::Fields(_));
                if !is_event {
                    let said = format!(
                        "the content type {:?} without headers such as ce-id and ce-type says nothing of an event; post \
                         {STRUCTURED}, {BATCH} or {}",
                        kind.unwrap_or_default(),
                        LINES[0]
                    );
                    return Err(Problem::unsupported(said));
                }
                self.take_one(&message, checked).await
            }
        }
    }

    async fn read(&self, body: Body) -> Result<Bytes, Problem> {
        match Limited::new(body, self.max_bytes).collect().await {
            Ok(read) => Ok(read.to_bytes()),
            Err(error) if error.is::<LengthLimitError>() => {
                Err(Problem::too_large(format!("at most {} bytes are taken in one body", self.max_bytes)))
            }
            Err(error) => Err(Problem::unreadable(format!("reading the body: {error}"))),
        }
    }

    async fn take_one(&self, message: &Message, checked: Option<Checked>) -> Result<Response, Problem> {
        let delivery = self.mapping.map(message, self.env.now());
        let delivery = delivery.map_err(|invalid| Problem::invalid(invalid.to_string()))?;
        let delivery = noted(checked, delivery);
        let answers =
            self.sequencer.ingest(self.policy, vec![delivery]).await.map_err(|error| problem(&error))?;
        let told: Vec<_> = answers.iter().map(Told::of).collect();
        match told.into_iter().next() {
            Some(Told::Invalid { why }) => Err(Problem::invalid(why)),
            Some(told) => match told.retry_after() {
                Some(seconds) => Err(full(seconds, vec![told])),
                None => Ok(json(&told)),
            },
            None => Err(Problem::failed("the event was not answered")),
        }
    }

    async fn take_many(&self, items: &[&[u8]], checked: Option<Checked>) -> Result<Response, Problem> {
        let now = self.env.now();
        let mut told: Vec<Option<Told>> = Vec::with_capacity(items.len());
        let (mut numbers, mut deliveries) = (Vec::new(), Vec::new());
        for (number, item) in items.iter().enumerate() {
            match self.mapping.map_item(item, now) {
                Ok(delivery) => {
                    numbers.push(number);
                    deliveries.push(noted(checked, delivery));
                    told.push(None);
                }
                Err(invalid) => told.push(Some(Told::Invalid { why: invalid.to_string() })),
            }
        }
        if !deliveries.is_empty() {
            let (answers, failure) = intake::ingest(&self.sequencer, self.policy, deliveries).await;
            if let Some(error) = failure {
                return Err(problem(&error));
            }
            for (number, answer) in numbers.into_iter().zip(answers.iter().flatten()) {
                told[number] = Some(Told::of(answer));
            }
        }
        let mut told: Vec<_> = told.into_iter().flatten().collect();
        self.reject(items, &mut told).await?;
        match told.iter().filter_map(Told::retry_after).max() {
            Some(seconds) => Err(full(seconds, told)),
            None => Ok(json(&told)),
        }
    }

    /// Records messages that can't be accepted. The sender of a batch may check only the status.
    async fn reject(&self, items: &[&[u8]], told: &mut [Told]) -> Result<(), Problem> {
        let since = self.env.now();
        let mut rejected = Vec::new();
        for (told, item) in told.iter_mut().zip(items) {
            let Told::Invalid { why } = told else { continue };
            let Message { content, attributes } = self.mapping.item(item);
            let (source, reason) = (self.name.clone(), std::mem::take(why));
            let one = Rejected { source, reason: reason.clone(), since, attributes, content };
            *told = Told::Rejected { why: reason, id: one.id() };
            rejected.push(one);
        }
        if rejected.is_empty() {
            return Ok(());
        }
        match self.sequencer.store().reject(rejected).await {
            Ok(()) => Ok(()),
            Err(error) if error.kind() == Kind::Full => {
                for told in told {
                    if let Told::Rejected { why, .. } = told {
                        *told = Told::Refused { why: format!("{why}; and {error}"), retry_after: NO_ROOM };
                    }
                }
                Ok(())
            }
            Err(error) => Err(problem(&error)),
        }
    }
}

async fn take<S: Sequences + Clone>(State(ingest): State<Arc<Ingest<S>>>, request: Request) -> Response {
    ingest.respond(request).await
}

/// Marks an event's data as checked, if it was.
fn noted(checked: Option<Checked>, mut delivery: Delivery) -> Delivery {
    if let (Some(Checked), Some(entry)) = (checked, Arc::get_mut(&mut delivery.entry)) {
        let data = std::mem::replace(&mut entry.data, Json::stored(""));
        entry.data = data.assume_strict();
    }
    delivery
}

fn batch(body: &[u8]) -> Result<Vec<&[u8]>, Problem> {
    let said = |error| Problem::unreadable(format!("a JSON array of events was expected: {error}"));
    let events: Vec<&RawValue> = serde_json::from_slice(body).map_err(said)?;
    Ok(events.into_iter().map(|event| event.get().as_bytes()).collect())
}

fn lines(body: &[u8]) -> Vec<&[u8]> {
    let lines = body.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
    lines.filter(|line| !line.is_empty()).collect()
}

/// Returns the headers as attributes: all of them, or only the content type.
fn attributes(headers: &HeaderMap, only_type: bool) -> Result<BTreeMap<String, String>, Problem> {
    let mut attributes = BTreeMap::new();
    for (name, value) in headers {
        if only_type && name != CONTENT_TYPE {
            continue;
        }
        match std::str::from_utf8(value.as_bytes()) {
            Ok(value) => drop(attributes.insert(name.as_str().to_owned(), value.to_owned())),
            Err(_) if name == CONTENT_TYPE || name.as_str().starts_with("ce-") => {
                return Err(Problem::invalid(format!("the header {name} is not UTF-8 text")));
            }
            Err(_) => {}
        }
    }
    Ok(attributes)
}

fn full(seconds: u64, told: Vec<Told>) -> Problem {
    let refused = told.iter().filter(|told| told.retry_after().is_some()).count();
    let said =
        format!("{refused} of {} events were refused; send them again in {seconds} seconds", told.len());
    Problem::full(said).with_answers(told).retry_after(seconds)
}

fn problem(error: &Error) -> Problem {
    let said = error.to_string();
    tracing::warn!(%error, "posted events could not be taken");
    match error.kind() {
        Kind::Invalid => Problem::invalid(said),
        Kind::Full => Problem::full(said).retry_after(5),
        Kind::Contended => Problem::contended(said).retry_after(1),
        Kind::Unavailable | Kind::Unknown | Kind::Stopped => Problem::unavailable(said).retry_after(1),
        _ => Problem::failed(said),
    }
}

fn json(told: &impl Serialize) -> Response {
    let mut response = Response::new(Body::from(serde_json::to_vec(told).unwrap_or_default()));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

//! A route that accepts events.

use std::sync::Arc;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::header::{CONTENT_TYPE, HeaderValue};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use leftfold::sequence::Rejected;
use leftfold::{Delivery, Env, Json, Kind, Policy, Sequencer, Sequences, System};
use serde::Serialize;

use super::answers::EventOutcome;
use super::body::{attributes, batch, lines};
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
        let other_methods =
            || async { Problem::not_allowed("only POST is allowed: post one event or several") };
        Router::new().route(path, post(post_events::<S>).fallback(other_methods)).with_state(Arc::new(self))
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
                let detail = format!("the body has {} events; send at most {}", items.len(), self.max_events);
                Err(Problem::too_large(detail))
            }
            Some(items) => self.ingest_many(&items, checked).await,
            None => {
                let message =
                    Message { content: body.into(), attributes: attributes(&parts.headers, false)? };
                let is_event = kind.as_deref() == Some(STRUCTURED)
                    || message.attributes.keys().any(|name| name.starts_with("ce-"))
                    || matches!(self.mapping, Mapping::Fields(_));
                if !is_event {
                    let detail = format!(
                        "content type {:?} without headers such as ce-id is not an event; post {STRUCTURED}, {BATCH} \
                         or {}",
                        kind.unwrap_or_default(),
                        LINES[0]
                    );
                    return Err(Problem::unsupported(detail));
                }
                self.ingest_one(&message, checked).await
            }
        }
    }

    async fn read(&self, body: Body) -> Result<Bytes, Problem> {
        match Limited::new(body, self.max_bytes).collect().await {
            Ok(read) => Ok(read.to_bytes()),
            Err(error) if error.is::<LengthLimitError>() => {
                Err(Problem::too_large(format!("the body is larger than {} bytes", self.max_bytes)))
            }
            Err(error) => Err(Problem::unreadable(format!("reading the body: {error}"))),
        }
    }

    async fn ingest_one(&self, message: &Message, checked: Option<Checked>) -> Result<Response, Problem> {
        let delivery = self.mapping.map(message, self.env.now());
        let delivery = delivery.map_err(|invalid| Problem::invalid(invalid.to_string()))?;
        let delivery = mark_checked(checked, delivery);
        let answers =
            self.sequencer.ingest(self.policy, vec![delivery]).await.map_err(|error| Problem::of(&error))?;
        match answers.first().map(EventOutcome::of) {
            Some(EventOutcome::Invalid { why }) => Err(Problem::invalid(why)),
            Some(outcome) => match outcome.retry_after() {
                Some(seconds) => Err(Problem::no_room(seconds, vec![outcome])),
                None => Ok(json(&outcome)),
            },
            None => Err(Problem::failed("the sequencer returned no outcome")),
        }
    }

    async fn ingest_many(&self, items: &[&[u8]], checked: Option<Checked>) -> Result<Response, Problem> {
        let now = self.env.now();
        let mut outcomes: Vec<Option<EventOutcome>> = Vec::with_capacity(items.len());
        let (mut numbers, mut deliveries) = (Vec::new(), Vec::new());
        for (number, item) in items.iter().enumerate() {
            match self.mapping.map_item(item, now) {
                Ok(delivery) => {
                    numbers.push(number);
                    deliveries.push(mark_checked(checked, delivery));
                    outcomes.push(None);
                }
                Err(invalid) => outcomes.push(Some(EventOutcome::Invalid { why: invalid.to_string() })),
            }
        }
        if !deliveries.is_empty() {
            let (answers, failure) = intake::ingest(&self.sequencer, self.policy, deliveries).await;
            if let Some(error) = failure {
                return Err(Problem::of(&error));
            }
            for (number, answer) in numbers.into_iter().zip(answers.iter().flatten()) {
                outcomes[number] = Some(EventOutcome::of(answer));
            }
        }
        let mut outcomes: Vec<_> = outcomes.into_iter().flatten().collect();
        self.reject(items, &mut outcomes).await?;
        match outcomes.iter().filter_map(EventOutcome::retry_after).max() {
            Some(seconds) => Err(Problem::no_room(seconds, outcomes)),
            None => Ok(json(&outcomes)),
        }
    }

    /// Records messages that can't be accepted. The sender of a batch may check only the status.
    async fn reject(&self, items: &[&[u8]], outcomes: &mut [EventOutcome]) -> Result<(), Problem> {
        let since = self.env.now();
        let mut rejected = Vec::new();
        for (outcome, item) in outcomes.iter_mut().zip(items) {
            let EventOutcome::Invalid { why } = outcome else { continue };
            let Message { content, attributes } = self.mapping.item(item);
            let (source, reason) = (self.name.clone(), std::mem::take(why));
            let one = Rejected { source, reason: reason.clone(), since, attributes, content };
            *outcome = EventOutcome::Rejected { why: reason, id: one.id() };
            rejected.push(one);
        }
        if rejected.is_empty() {
            return Ok(());
        }
        match self.sequencer.store().reject(rejected).await {
            Ok(()) => Ok(()),
            Err(error) if error.kind() == Kind::Full => {
                for outcome in outcomes {
                    if let EventOutcome::Rejected { why, .. } = outcome {
                        *outcome =
                            EventOutcome::Refused { why: format!("{why}; {error}"), retry_after: NO_ROOM };
                    }
                }
                Ok(())
            }
            Err(error) => Err(Problem::of(&error)),
        }
    }
}

async fn post_events<S: Sequences + Clone>(
    State(ingest): State<Arc<Ingest<S>>>,
    request: Request,
) -> Response {
    ingest.respond(request).await
}

/// Marks an event's data as checked, if it was.
fn mark_checked(checked: Option<Checked>, mut delivery: Delivery) -> Delivery {
    if let (Some(Checked), Some(entry)) = (checked, Arc::get_mut(&mut delivery.entry)) {
        let data = std::mem::replace(&mut entry.data, Json::stored(""));
        entry.data = data.assume_strict();
    }
    delivery
}

fn json(outcomes: &impl Serialize) -> Response {
    let mut response = Response::new(Body::from(serde_json::to_vec(outcomes).unwrap_or_default()));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

//! Posted CloudEvents: ingested by `leftfold-sources`, after the body passed the server's limits.

use axum::extract::{Request, State};
use leftfold_sources::http::{Checked, Ingest};
use serde_json::{Value, json};

use super::{Answer, Operation};
use crate::access::Scope;
use crate::idempotency::AfterUnknown;
use crate::{Backend, Shared, strict};

pub(super) fn operations<S: Backend>() -> Vec<Operation<S>> {
    let summary = "Ingest events that may be duplicate or out of order. The response contains the outcome of \
                   each event, after it is durable. Ids identify duplicates, so a request without an \
                   `Idempotency-Key` can be repeated, too";
    let outcome = "The outcome of each event: appended, duplicate, held, stale, conflict or rejected. A \
                   repeated request with the same key gets the same outcomes, or the current ones if they \
                   are too large to keep";
    let many = json!({ "type": "array", "items": event() });
    let lines = json!({ "type": "string", "description": "One CloudEvent per line." });
    vec![
        Operation::post("/events", "ingest", summary, ingest::<S>)
            .scope(Scope::Ingest)
            // In binary mode the headers are the event.
            .idempotent_with_headers(AfterUnknown::Repeat, |service, name| service.mapping.reads(name))
            .body("application/cloudevents+json", event())
            .body("application/cloudevents-batch+json", many)
            .body("application/x-ndjson", lines)
            .answers_with(200, "application/json", outcome, outcomes())
            .fails(400, "The event is invalid, or the body can't be read. Nothing was recorded")
            .fails(413, "The body is too large")
            .fails(415, "The content type is not supported")
            .fails(429, "There was no room for the events with the answer `refused`. Send them again later")
            .fails(503, "The store is unavailable. Send all events again"),
    ]
}

/// Returns the schema of an event.
fn event() -> Value {
    json!({
        "type": "object",
        "description": "A CloudEvent 1.0. `subject` is the stream, and `sequence` is the revision.",
        "required": ["specversion", "id", "source", "type"],
        "properties": {
            "specversion": { "const": "1.0" }, "id": { "type": "string" }, "source": { "type": "string" },
            "type": { "type": "string" }, "subject": { "type": "string" },
            "sequence": { "type": ["string", "integer"] },
            "time": { "type": "string", "format": "date-time" }, "data": {},
        },
    })
}

/// Returns the schema of a response: an outcome for one event, or a list for several.
fn outcomes() -> Value {
    let outcome = json!({
        "type": "object",
        "required": ["answer"],
        "properties": {
            "answer": { "enum": ["appended", "duplicate", "held", "stale", "conflict", "rejected"] },
            "bookmark": { "type": "string" }, "waiting_for": { "type": "integer" },
            "last": { "type": "integer" }, "why": { "type": "string" }, "id": { "type": "string" },
        },
    });
    json!({ "oneOf": [outcome, { "type": "array", "items": outcome }] })
}

async fn ingest<S: Backend>(State(shared): State<Shared<S>>, request: Request) -> Answer {
    let (mut parts, body) = request.into_parts();
    let (body, _share) = strict::read(body, shared.limits.body, &shared.budget).await?;
    if strict::check_events(&parts.headers, &body)? {
        parts.extensions.insert(Checked);
    }
    let ingest = Ingest::new(shared.sequencer.clone(), shared.mapping.clone(), shared.policy);
    let ingest = ingest.max_bytes(shared.limits.body);
    Ok(ingest.respond(Request::from_parts(parts, body.into())).await)
}

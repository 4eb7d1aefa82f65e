//! The description of the route for posted CloudEvents. `leftfold-sources` implements the route.

use serde_json::json;

use super::Described;
use crate::access::Scope;

/// The path to which they are posted.
pub(crate) const PATH: &str = "/events";

pub(super) fn described() -> Described {
    let event = json!({
        "type": "object",
        "description": "A CloudEvent 1.0. `subject` is the stream, and `sequence` is the revision.",
        "required": ["specversion", "id", "source", "type"],
        "properties": {
            "specversion": { "const": "1.0" }, "id": { "type": "string" }, "source": { "type": "string" },
            "type": { "type": "string" }, "subject": { "type": "string" }, "sequence": { "type": ["string", "integer"] },
            "time": { "type": "string", "format": "date-time" }, "data": {},
        },
    });
    let many = json!({ "type": "array", "items": event });
    let summary = "Ingest events that may be duplicate or out of order. The response contains the outcome of \
                   each event, after it is durable. Ids identify duplicates";
    Described::new("post", "ingest", summary)
        .scope(Scope::Ingest)
        .body("application/cloudevents+json", event)
        .body("application/cloudevents-batch+json", many)
        .body("application/x-ndjson", json!({ "type": "string", "description": "One CloudEvent per line." }))
        .answers(
            200,
            "application/json",
            "The outcome of each event: appended, duplicate, held, stale, conflict or rejected",
        )
        .fails(400, "The event is invalid, or the body can't be read. Nothing was recorded")
        .fails(413, "The body is too large")
        .fails(415, "The content type is not supported")
        .fails(429, "There was no room for the events with the answer `refused`. Send them again later")
        .fails(503, "The store is unavailable. Send all events again")
}

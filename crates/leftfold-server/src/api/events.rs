//! The description of the route for posted CloudEvents. `leftfold-sources` implements the route.

use serde_json::json;

use super::Described;
use crate::access::Scope;

/// The path to which they are posted.
pub(crate) const PATH: &str = "/events";

pub(super) fn described() -> Described {
    let event = json!({
        "type": "object",
        "description": "A CloudEvent 1.0: its subject is the stream, the extension sequence its revision there.",
        "required": ["specversion", "id", "source", "type"],
        "properties": {
            "specversion": { "const": "1.0" }, "id": { "type": "string" }, "source": { "type": "string" },
            "type": { "type": "string" }, "subject": { "type": "string" }, "sequence": { "type": ["string", "integer"] },
            "time": { "type": "string", "format": "date-time" }, "data": {},
        },
    });
    let many = json!({ "type": "array", "items": event });
    let summary = "Bring events that may come twice or out of order; what became of each is answered when it is durable, and an event that is sent again \
                   is known by its id";
    Described::new("post", "ingest", summary)
        .scope(Scope::Ingest)
        .body("application/cloudevents+json", event)
        .body("application/cloudevents-batch+json", many)
        .body(
            "application/x-ndjson",
            json!({ "type": "string", "description": "One CloudEvent in each line." }),
        )
        .answers(
            200,
            "application/json",
            "An answer, or one for each of many: appended, duplicate, held, stale, conflict or rejected",
        )
        .fails(400, "It is no event, or the body can't be read; nothing was kept")
        .fails(413, "The body is too large")
        .fails(415, "This is no type of events")
        .fails(429, "Some found no room: send them again")
        .fails(503, "The store can't be reached: send all again")
}

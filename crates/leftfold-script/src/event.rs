//! Events as scripts see them.

use leftfold::fold;
use leftfold::{Event, Json};
use serde::Serialize;

/// Returns an event as JSON.
pub(crate) fn text(event: &Event<Json>) -> Result<String, fold::Error> {
    let shown = Shown {
        id: event.id.as_str(),
        stream: event.stream.as_str(),
        revision: event.revision.0,
        kind: event.kind.as_str(),
        time: event.time.to_string(),
        data: &event.data,
        metadata: event.metadata.as_ref(),
    };
    serde_json::to_string(&shown).map_err(|error| fold::Error::new(error.to_string()))
}

/// An event as a script sees it.
#[derive(Serialize)]
struct Shown<'e> {
    id: &'e str,
    stream: &'e str,
    revision: u64,
    #[serde(rename = "type")]
    kind: &'e str,
    time: String,
    data: &'e Json,
    metadata: Option<&'e Json>,
}

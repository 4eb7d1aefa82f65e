//! The parts of a posted request: its events, and its headers as attributes.

use std::collections::BTreeMap;

use axum::http::HeaderMap;
use axum::http::header::CONTENT_TYPE;
use serde_json::value::RawValue;

use super::problem::Problem;

/// Returns the events of a batch: a JSON array.
pub(super) fn batch(body: &[u8]) -> Result<Vec<&[u8]>, Problem> {
    let wrong = |error| Problem::unreadable(format!("expected a JSON array of events: {error}"));
    let events: Vec<&RawValue> = serde_json::from_slice(body).map_err(wrong)?;
    Ok(events.into_iter().map(|event| event.get().as_bytes()).collect())
}

/// Returns the events of a body with one per line.
pub(super) fn lines(body: &[u8]) -> Vec<&[u8]> {
    let lines = body.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
    lines.filter(|line| !line.is_empty()).collect()
}

/// Returns the headers as attributes: all of them, or only the content type.
pub(super) fn attributes(headers: &HeaderMap, only_type: bool) -> Result<BTreeMap<String, String>, Problem> {
    let mut attributes = BTreeMap::new();
    for (name, value) in headers {
        if only_type && name != CONTENT_TYPE {
            continue;
        }
        match std::str::from_utf8(value.as_bytes()) {
            Ok(value) => drop(attributes.insert(name.as_str().to_owned(), value.to_owned())),
            Err(_) if name == CONTENT_TYPE || name.as_str().starts_with("ce-") => {
                return Err(Problem::invalid(format!("header {name}: expected UTF-8 text")));
            }
            Err(_) => {}
        }
    }
    Ok(attributes)
}

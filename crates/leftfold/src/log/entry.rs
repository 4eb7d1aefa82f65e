//! An event ready to be appended, and the rules that it must follow.

use std::collections::HashSet;

use jiff::Timestamp;

use crate::error::Invalid;
use crate::event::{Event, EventId, EventKind};
use crate::json::Json;

/// An event ready to be appended: complete except for its position.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// The id of the event.
    pub id: EventId,
    /// The type of the event.
    pub kind: EventKind,
    /// The time when it happened, to the microsecond.
    pub time: Timestamp,
    /// The event's data.
    pub data: Json,
    /// The event's metadata.
    pub metadata: Option<Json>,
}

impl Entry {
    /// Returns whether a stored event is this one: same type, data and metadata. The time may
    /// differ, because a repeated append gets a new one.
    pub fn is(&self, stored: &Event) -> bool {
        let same = |a: &Option<Json>, b: &Option<Json>| match (a, b) {
            (Some(a), Some(b)) => a.same_as(b),
            (None, None) => true,
            _ => false,
        };
        self.kind == stored.kind && self.data.same_as(&stored.data) && same(&self.metadata, &stored.metadata)
    }
}

/// The default limit for the data, or metadata, of an event: 1 MiB.
pub const MAX_EVENT_BYTES: usize = 1 << 20;

/// The maximum number of events in one append.
pub const MAX_EVENTS: usize = 10_000;

/// Rejects events that no log may accept. Every event passes here before it reaches a log: a
/// sequencer checks deliveries and resupplied events, and a store checks appends.
///
/// Data and metadata must be [strict JSON](Json::strict) of a bounded size.
pub fn check_entries(entries: &[Entry], max_event_bytes: usize) -> Result<(), Invalid> {
    if entries.is_empty() || entries.len() > MAX_EVENTS {
        let expected = format!("1 to {MAX_EVENTS} in one append");
        return Err(Invalid::new("number of events", &entries.len().to_string(), expected));
    }
    let mut ids = HashSet::new();
    for entry in entries {
        let parts = [("event data", Some(&entry.data)), ("event metadata", entry.metadata.as_ref())];
        for (what, json) in parts {
            let Some(json) = json else { continue };
            if json.as_str().len() > max_event_bytes {
                let expected = format!(
                    "at most {max_event_bytes} bytes, and event {} has {}; keep large content elsewhere and refer \
                     to it, or raise the store's limit",
                    entry.id,
                    json.as_str().len()
                );
                return Err(Invalid::new(what, json.as_str(), expected));
            }
            json.ensure_strict().map_err(|fault| {
                let expected = format!("strict JSON; event {} is not: {fault}", entry.id);
                Invalid::new(what, json.as_str(), expected)
            })?;
        }
        if entries.len() > 1 && !ids.insert(entry.id.as_str()) {
            let expected = "a different id for each event of an append; this one is a duplicate";
            return Err(Invalid::new("event id", entry.id.as_str(), expected));
        }
    }
    Ok(())
}

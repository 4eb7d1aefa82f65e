//! The requests that one transaction writes.

use std::collections::{HashMap, HashSet};

use leftfold::{Expected, StreamId};

use super::queue::Request;

/// The requests of one transaction.
pub(super) struct Group {
    pub(super) requests: Vec<Request>,
    /// The revision of the first event of each request.
    pub(super) first: Vec<i64>,
    pub(super) events: i64,
}

impl Group {
    /// Splits the requests into a group to write now and the ones to write later. A request waits
    /// if its expected revision does not match yet, or if the group already has one of its events.
    pub(super) fn of(waiting: Vec<Request>, last: &HashMap<StreamId, i64>) -> (Self, Vec<Request>) {
        let mut group = Self { requests: Vec::new(), first: Vec::new(), events: 0 };
        let mut later = Vec::new();
        let mut revisions: HashMap<StreamId, i64> = HashMap::new();
        let mut ids = HashSet::new();
        for request in waiting {
            let known = last.get(&request.stream).copied().unwrap_or(0);
            let current = revisions.get(&request.stream).copied().unwrap_or(known);
            let is_at = match request.expected {
                Expected::Any => true,
                Expected::Revision(expected) => expected.0 == current.unsigned_abs(),
            };
            let is_twin = request.entries.iter().any(|entry| ids.contains(&entry.id));
            // A request must not overtake an earlier one to the same stream.
            let overtakes = later.iter().any(|other: &Request| other.stream == request.stream);
            if !is_at || is_twin || overtakes {
                later.push(request);
                continue;
            }
            ids.extend(request.entries.iter().map(|entry| entry.id.clone()));
            let count = i64::try_from(request.entries.len()).unwrap_or(i64::MAX);
            revisions.insert(request.stream.clone(), current + count);
            group.first.push(current + 1);
            group.events += count;
            group.requests.push(request);
        }
        (group, later)
    }
}

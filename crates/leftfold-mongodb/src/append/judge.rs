//! The requests that need no write: duplicates, and requests that expect another revision.

use std::collections::{HashMap, HashSet};

use leftfold::log::judge_append;
use leftfold::{Appended, Event, Expected, Revision, StreamId};

use super::appender::Appender;
use super::queue::Request;
use crate::connection::with_timeout;
use crate::error::Failure;

impl Appender {
    /// Answers the requests that need no write: duplicates, and requests that expect another
    /// revision.
    pub(super) async fn judge(&mut self, waiting: &mut Vec<Request>, look: bool) -> Result<(), Failure> {
        let mut seen = HashSet::new();
        let unknown = waiting.iter().map(|request| &request.stream);
        let unknown = unknown.filter(|stream| !look && !self.revisions.contains_key(*stream));
        let unknown: Vec<_> = unknown.filter(|stream| seen.insert(*stream)).cloned().collect();
        if self.only_new {
            self.revisions.extend(unknown.into_iter().map(|stream| (stream, 0)));
        } else if !unknown.is_empty() {
            with_timeout(self.learn(unknown.clone())).await?;
            self.only_new = unknown.iter().all(|stream| self.is_at(stream, Revision(0)));
        }
        let suspect = |request: &Request| match request.expected {
            _ if look || request.unsure => true,
            Expected::Any => false,
            Expected::Revision(expected) => !self.is_at(&request.stream, expected),
        };
        let (suspects, others): (Vec<_>, Vec<_>) = std::mem::take(waiting).into_iter().partition(suspect);
        *waiting = others;
        if suspects.is_empty() {
            return Ok(());
        }
        // A read that is behind must neither refuse a request nor cause an event to be written
        // twice.
        if let Err(failure) = with_timeout(self.base.catch_up()).await {
            self.fail(suspects, &failure);
            return Ok(());
        }
        // Read the events before the revisions: then no event found lies beyond the revision
        // learned for its stream.
        let ids = suspects.iter().flat_map(|request| &request.entries).map(|entry| entry.id.as_str());
        let stored = with_timeout(self.stored(ids.collect())).await;
        let streams: HashSet<_> = suspects.iter().map(|request| request.stream.clone()).collect();
        let learned = with_timeout(self.learn(streams.into_iter().collect())).await;
        let mut accepted = Vec::new();
        let stored = match (stored, learned) {
            (Ok(stored), Ok(())) => stored,
            (Err(failure), _) | (_, Err(failure)) => {
                self.fail(suspects, &failure);
                return Ok(());
            }
        };
        for request in suspects {
            let found: Vec<_> =
                request.entries.iter().map(|entry| stored.get(entry.id.as_str()).cloned()).collect();
            let current = self.revisions.get(&request.stream).copied().unwrap_or(0).unsigned_abs();
            let judged =
                judge_append(&request.stream, request.expected, &request.entries, &found, Revision(current));
            let answer = match judged {
                Ok(None) => {
                    accepted.push(request);
                    continue;
                }
                // An earlier attempt of this request wrote it.
                Ok(Some(bookmark)) if request.unsure => Ok(Appended::New(bookmark)),
                Ok(Some(bookmark)) => Ok(Appended::Duplicate(bookmark)),
                Err(error) => Err(error),
            };
            // The caller may have stopped waiting.
            let _ = request.answer.send(answer);
        }
        waiting.splice(0..0, accepted);
        Ok(())
    }

    fn is_at(&self, stream: &StreamId, revision: Revision) -> bool {
        self.revisions.get(stream).is_some_and(|known| known.unsigned_abs() == revision.0)
    }

    /// Reads the last revisions of streams, in one query.
    async fn learn(&mut self, streams: Vec<StreamId>) -> Result<(), Failure> {
        if streams.is_empty() {
            return Ok(());
        }
        let names: Vec<_> = streams.iter().map(StreamId::as_str).collect();
        let last = self.base.last_revisions(&names).await?;
        self.revisions.extend(streams.into_iter().map(|stream| (stream, 0)));
        self.revisions.extend(last);
        Ok(())
    }

    /// Returns the stored events with these ids.
    async fn stored(&self, ids: Vec<&str>) -> Result<HashMap<String, Event>, Failure> {
        let found = self.base.events_with(ids).await?;
        Ok(found.into_iter().map(|event| (event.id.to_string(), event)).collect())
    }
}

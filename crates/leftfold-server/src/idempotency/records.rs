//! The record of idempotent requests, and the decision about a repeated one.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

/// The time for which a request is remembered.
const REMEMBERED: SignedDuration = SignedDuration::from_hours(24);
/// The age at which another process's request counts as abandoned: no request takes so long.
const GIVEN_UP: SignedDuration = SignedDuration::from_mins(2);
/// The maximum size of the responses in one document.
const ROOM: usize = 4 << 20;

/// The requests in one document, by key.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Kept(BTreeMap<String, Entry>);

/// The record of a request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Entry {
    /// Distinguishes the request from others with the same key.
    fingerprint: String,
    begun: Timestamp,
    /// The name of the process that began it.
    by: String,
    /// The number of the last attempt.
    attempt: u64,
    answer: Option<Answered>,
}

/// A recorded response.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Answered {
    pub(super) status: u16,
    pub(super) kind: String,
    pub(super) body: String,
}

/// An incoming idempotent request.
#[derive(Debug)]
pub(super) struct Asked<'a> {
    pub(super) key: &'a str,
    pub(super) fingerprint: &'a str,
    pub(super) by: &'a str,
    pub(super) attempt: u64,
    pub(super) now: Timestamp,
    /// `true` if a request that began and never got a response may be processed again.
    pub(super) repeatable: bool,
}

/// The decision about a request.
#[derive(Debug, PartialEq)]
pub(super) enum Judged {
    /// The request is new, or had no effect: process it.
    Do,
    /// The request has a response already.
    Again(Answered),
    /// A process is working on it.
    UnderWay,
    /// Another request has the same key.
    Other,
    /// The request began, and its outcome is unknown.
    Unknown,
    /// Too much is recorded already.
    Full,
}

impl Kept {
    /// Decides about a request. `is_running` tells whether this process is working on an attempt.
    pub(super) fn judge(&mut self, asked: &Asked<'_>, is_running: impl Fn(u64) -> bool) -> Judged {
        self.0.retain(|_, entry| asked.now.duration_since(entry.begun) < REMEMBERED);
        if let Some(entry) = self.0.get(asked.key) {
            if entry.fingerprint != asked.fingerprint {
                return Judged::Other;
            }
            if let Some(answer) = &entry.answer {
                return Judged::Again(answer.clone());
            }
            if entry.attempt == asked.attempt {
                return Judged::Do;
            }
            let is_ours = entry.by == asked.by;
            let is_given_up = asked.now.duration_since(entry.begun) >= GIVEN_UP;
            if if is_ours { is_running(entry.attempt) } else { !is_given_up } {
                return Judged::UnderWay;
            }
            if !asked.repeatable {
                return Judged::Unknown;
            }
        } else if self.bytes() > ROOM {
            return Judged::Full;
        }
        let Asked { fingerprint, by, attempt, now, .. } = *asked;
        let (fingerprint, by) = (fingerprint.to_owned(), by.to_owned());
        self.0.insert(asked.key.to_owned(), Entry { fingerprint, begun: now, by, attempt, answer: None });
        Judged::Do
    }

    /// Records the response of an attempt. Without a response, the request may be retried. If
    /// another attempt has taken over, nothing changes.
    pub(super) fn end(&mut self, key: &str, attempt: u64, answer: Option<Answered>) {
        let Some(entry) = self.0.get_mut(key).filter(|entry| entry.attempt == attempt) else { return };
        match answer {
            Some(answer) => entry.answer = Some(answer),
            None => drop(self.0.remove(key)),
        }
    }

    fn bytes(&self) -> usize {
        self.0.values().filter_map(|entry| entry.answer.as_ref()).map(|answer| answer.body.len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(minutes: i64) -> Timestamp {
        Timestamp::UNIX_EPOCH + SignedDuration::from_mins(minutes)
    }

    fn asked(fingerprint: &str, attempt: u64, minutes: i64) -> Asked<'_> {
        Asked { key: "k", fingerprint, by: "ann", attempt, now: at(minutes), repeatable: true }
    }

    fn done() -> Answered {
        Answered { status: 200, kind: "application/json".to_owned(), body: "{}".to_owned() }
    }

    #[test]
    fn a_request_is_done_once_and_answered_again() {
        let mut kept = Kept::default();
        assert_eq!(kept.judge(&asked("a", 1, 0), |_| true), Judged::Do);
        // A write whose outcome was unknown is repeated.
        assert_eq!(kept.judge(&asked("a", 1, 0), |_| true), Judged::Do);
        assert_eq!(kept.judge(&asked("a", 2, 0), |attempt| attempt == 1), Judged::UnderWay);
        kept.end("k", 1, Some(done()));
        assert_eq!(kept.judge(&asked("a", 3, 1), |_| false), Judged::Again(done()));
        assert_eq!(kept.judge(&asked("b", 4, 1), |_| false), Judged::Other);
        assert_eq!(kept.judge(&asked("b", 5, 24 * 60), |_| false), Judged::Do, "it is forgotten after a day");
    }

    #[test]
    fn what_was_given_up_is_taken_up() {
        let mut kept = Kept::default();
        assert_eq!(kept.judge(&asked("a", 1, 0), |_| false), Judged::Do);
        let other = |attempt, minutes| Asked { by: "bob", ..asked("a", attempt, minutes) };
        assert_eq!(kept.judge(&other(2, 1), |_| false), Judged::UnderWay);
        let once = Asked { repeatable: false, ..other(3, 2) };
        assert_eq!(kept.judge(&once, |_| false), Judged::Unknown);
        assert_eq!(kept.judge(&other(4, 2), |_| false), Judged::Do);
        // An attempt that counts as abandoned can no longer record a response.
        kept.end("k", 1, Some(done()));
        assert_eq!(kept.judge(&other(5, 3), |_| true), Judged::UnderWay);
        // A restarted process knows that it is not working on the request.
        assert_eq!(kept.judge(&other(6, 3), |_| false), Judged::Do);
        kept.end("k", 6, None);
        assert_eq!(kept, Kept::default());
    }

    #[test]
    fn there_is_an_end_to_what_is_kept() {
        let mut kept = Kept::default();
        let large = || Answered { body: "x".repeat(ROOM / 8), ..done() };
        let keys: Vec<_> = (0..20).map(|number| number.to_string()).collect();
        let judged: Vec<_> = keys
            .iter()
            .map(|key| {
                let judged = kept.judge(&Asked { key, ..asked("a", 1, 0) }, |_| false);
                kept.end(key, 1, Some(large()));
                judged
            })
            .collect();
        assert_eq!(judged.iter().filter(|judged| **judged == Judged::Do).count(), 9);
        assert_eq!(judged.last(), Some(&Judged::Full));
    }
}

//! The records of idempotent requests, and the pure decision about a repeated one.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

/// The time for which a request is remembered.
const RETENTION: SignedDuration = SignedDuration::from_hours(24);
/// The age at which another process's request counts as abandoned: no request takes so long.
const ABANDONED: SignedDuration = SignedDuration::from_mins(2);
/// The maximum size of the records in one document.
const MAX_BYTES: usize = 4 << 20;
/// The approximate size of a record without its response.
const RECORD_BYTES: usize = 400;
/// The size of the largest response that is kept unchanged.
const MAX_ANSWER_BYTES: usize = 64 << 10;
/// The body that replaces a larger one.
const OMITTED: &str = r#"{"detail":"the request succeeded; its response was too large to keep"}"#;

/// The treatment of a repeated request whose first outcome is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AfterUnknown {
    /// Process it again, because that is harmless.
    Repeat,
    /// Respond that the outcome is unknown.
    Refuse,
}

/// The requests in one document, by key.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct RequestRecords(BTreeMap<String, RequestRecord>);

/// The record of a request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct RequestRecord {
    /// Distinguishes the request from others with the same key.
    fingerprint: String,
    begun: Timestamp,
    /// The name of the process that began it.
    by: String,
    /// The number of the last attempt.
    attempt: u64,
    answer: Option<StoredAnswer>,
}

/// A recorded response.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct StoredAnswer {
    pub(super) status: u16,
    pub(super) kind: String,
    pub(super) body: String,
}

/// An incoming idempotent request.
#[derive(Debug)]
pub(super) struct KeyedRequest<'a> {
    pub(super) key: &'a str,
    pub(super) fingerprint: &'a str,
    pub(super) by: &'a str,
    pub(super) attempt: u64,
    pub(super) now: Timestamp,
    pub(super) after_unknown: AfterUnknown,
}

/// The decision about a request.
#[derive(Debug, PartialEq)]
pub(super) enum Verdict {
    /// The request is new, or had no effect: process it.
    Process,
    /// The request has a response already.
    Replay(StoredAnswer),
    /// A process is working on it.
    InProgress,
    /// Another request has the same key.
    KeyReused,
    /// The request began, and its outcome is unknown.
    Unknown,
    /// Too much is recorded already.
    Full,
}

impl StoredAnswer {
    /// Creates the record of a response. A body that is too large is left out.
    pub(super) fn new(status: u16, kind: &str, body: &[u8]) -> Self {
        let body = match str::from_utf8(body) {
            Ok(text) if body.len() <= MAX_ANSWER_BYTES => text.to_owned(),
            _ => OMITTED.to_owned(),
        };
        Self { status, kind: kind.to_owned(), body }
    }
}

impl RequestRecords {
    /// Decides about a request. `is_running` tells whether this process is working on an attempt.
    pub(super) fn judge(&mut self, request: &KeyedRequest<'_>, is_running: impl Fn(u64) -> bool) -> Verdict {
        self.0.retain(|_, record| request.now.duration_since(record.begun) < RETENTION);
        if let Some(record) = self.0.get(request.key) {
            if record.fingerprint != request.fingerprint {
                return Verdict::KeyReused;
            }
            if let Some(answer) = &record.answer {
                // Processing the request again brings back a response that was not kept.
                let is_repeated = answer.body == OMITTED && request.after_unknown == AfterUnknown::Repeat;
                return if is_repeated { Verdict::Process } else { Verdict::Replay(answer.clone()) };
            }
            if record.attempt == request.attempt {
                return Verdict::Process;
            }
            let is_ours = record.by == request.by;
            let is_abandoned = request.now.duration_since(record.begun) >= ABANDONED;
            if if is_ours { is_running(record.attempt) } else { !is_abandoned } {
                return Verdict::InProgress;
            }
            if request.after_unknown == AfterUnknown::Refuse {
                return Verdict::Unknown;
            }
        } else if self.bytes() > MAX_BYTES {
            return Verdict::Full;
        }
        let KeyedRequest { fingerprint, by, attempt, now, .. } = *request;
        let (fingerprint, by) = (fingerprint.to_owned(), by.to_owned());
        self.0.insert(
            request.key.to_owned(),
            RequestRecord { fingerprint, begun: now, by, attempt, answer: None },
        );
        Verdict::Process
    }

    /// Records the response of an attempt. Without a response, the request may be retried. If
    /// another attempt has taken over, nothing changes.
    pub(super) fn end(&mut self, key: &str, attempt: u64, answer: Option<StoredAnswer>) {
        let Some(record) = self.0.get_mut(key).filter(|record| record.attempt == attempt) else { return };
        match answer {
            Some(answer) => record.answer = Some(answer),
            None => drop(self.0.remove(key)),
        }
    }

    fn bytes(&self) -> usize {
        let answers = self.0.values().filter_map(|record| record.answer.as_ref());
        self.0.len() * RECORD_BYTES + answers.map(|answer| answer.body.len()).sum::<usize>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(minutes: i64) -> Timestamp {
        Timestamp::UNIX_EPOCH + SignedDuration::from_mins(minutes)
    }

    fn request(fingerprint: &str, attempt: u64, minutes: i64) -> KeyedRequest<'_> {
        let after_unknown = AfterUnknown::Repeat;
        KeyedRequest { key: "k", fingerprint, by: "ann", attempt, now: at(minutes), after_unknown }
    }

    fn done() -> StoredAnswer {
        StoredAnswer::new(200, "application/json", b"{}")
    }

    #[test]
    fn a_request_is_processed_once_and_its_response_replayed() {
        let mut records = RequestRecords::default();
        assert_eq!(records.judge(&request("a", 1, 0), |_| true), Verdict::Process);
        // A write whose outcome was unknown is repeated.
        assert_eq!(records.judge(&request("a", 1, 0), |_| true), Verdict::Process);
        assert_eq!(records.judge(&request("a", 2, 0), |attempt| attempt == 1), Verdict::InProgress);
        records.end("k", 1, Some(done()));
        assert_eq!(records.judge(&request("a", 3, 1), |_| false), Verdict::Replay(done()));
        assert_eq!(records.judge(&request("b", 4, 1), |_| false), Verdict::KeyReused);
        let tomorrow = records.judge(&request("b", 5, 24 * 60), |_| false);
        assert_eq!(tomorrow, Verdict::Process, "its record has expired");
    }

    #[test]
    fn an_abandoned_request_is_taken_over() {
        let mut records = RequestRecords::default();
        assert_eq!(records.judge(&request("a", 1, 0), |_| false), Verdict::Process);
        let other = |attempt, minutes| KeyedRequest { by: "bob", ..request("a", attempt, minutes) };
        assert_eq!(records.judge(&other(2, 1), |_| false), Verdict::InProgress);
        let refused = KeyedRequest { after_unknown: AfterUnknown::Refuse, ..other(3, 2) };
        assert_eq!(records.judge(&refused, |_| false), Verdict::Unknown);
        assert_eq!(records.judge(&other(4, 2), |_| false), Verdict::Process);
        // An attempt that counts as abandoned can no longer record a response.
        records.end("k", 1, Some(done()));
        assert_eq!(records.judge(&other(5, 3), |_| true), Verdict::InProgress);
        // A restarted process knows that it is not working on the request.
        assert_eq!(records.judge(&other(6, 3), |_| false), Verdict::Process);
        records.end("k", 6, None);
        assert_eq!(records, RequestRecords::default());
    }

    #[test]
    fn a_response_that_is_too_large_comes_from_another_run_where_that_is_harmless() {
        let mut records = RequestRecords::default();
        assert_eq!(records.judge(&request("a", 1, 0), |_| true), Verdict::Process);
        let large = StoredAnswer::new(200, "application/json", &vec![b'x'; MAX_ANSWER_BYTES + 1]);
        assert!(large.body.len() < 100, "{large:?}");
        records.end("k", 1, Some(large.clone()));
        assert_eq!(records.judge(&request("a", 2, 0), |_| false), Verdict::Process);
        assert_eq!(records.judge(&request("b", 3, 0), |_| false), Verdict::KeyReused);
        let refused = KeyedRequest { after_unknown: AfterUnknown::Refuse, ..request("a", 4, 0) };
        assert_eq!(records.judge(&refused, |_| false), Verdict::Replay(large));
    }

    #[test]
    fn the_records_are_bounded() {
        let judged = |many: usize, body: usize| {
            let mut records = RequestRecords::default();
            let keys: Vec<_> = (0..many).map(|number| number.to_string()).collect();
            let judged = keys.iter().map(|key| {
                let judged = records.judge(&KeyedRequest { key, ..request("a", 1, 0) }, |_| false);
                records.end(key, 1, Some(StoredAnswer { body: "x".repeat(body), ..done() }));
                judged
            });
            judged.collect::<Vec<_>>()
        };
        for (many, body, expected) in
            [(20, MAX_BYTES / 8 - RECORD_BYTES, 9), (20_000, 0, MAX_BYTES / RECORD_BYTES + 1)]
        {
            let judged = judged(many, body);
            assert_eq!(judged.iter().filter(|judged| **judged == Verdict::Process).count(), expected);
            assert_eq!(judged.last(), Some(&Verdict::Full));
        }
    }
}

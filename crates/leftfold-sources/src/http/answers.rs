//! The response for each event.

use leftfold::IngestAnswer;
use leftfold::sequence::Refusal;
use serde::Serialize;

/// The outcome of an event, as JSON.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "answer", rename_all = "kebab-case")]
pub(super) enum EventOutcome {
    /// The event is in the log.
    Appended { bookmark: String },
    /// The event was in the log already.
    Duplicate { bookmark: String },
    /// The event is held until this revision arrives.
    Held { waiting_for: u64 },
    /// Only the latest revision counts, and this is an older one.
    Stale { last: u64 },
    /// The event contradicts the log; it is recorded for an operator to decide.
    Conflict { why: String },
    /// The event can't be accepted. The whole message is recorded under this id, and can be
    /// resubmitted.
    Rejected { why: String, id: String },
    /// The event can't be accepted, and nothing of it was recorded.
    Invalid { why: String },
    /// Nothing of the event was recorded: send it again.
    Refused { why: String, retry_after: u64 },
}

impl EventOutcome {
    pub(super) fn of(answer: &IngestAnswer) -> Self {
        match answer {
            IngestAnswer::Appended(bookmark) => Self::Appended { bookmark: bookmark.to_string() },
            IngestAnswer::Duplicate(bookmark) => Self::Duplicate { bookmark: bookmark.to_string() },
            IngestAnswer::Held { waiting_for } => Self::Held { waiting_for: waiting_for.0 },
            IngestAnswer::Stale { last } => Self::Stale { last: last.0 },
            IngestAnswer::Conflict(why) => Self::Conflict { why: why.to_string() },
            IngestAnswer::Refused(Refusal::Invalid(invalid)) => Self::Invalid { why: invalid.to_string() },
            IngestAnswer::Refused(refusal @ Refusal::Full { retry_after, .. }) => {
                Self::Refused { why: refusal.to_string(), retry_after: retry_after.as_secs().max(1) }
            }
        }
    }

    /// Returns the seconds until the sender should retry, if it must.
    pub(super) fn retry_after(&self) -> Option<u64> {
        match self {
            Self::Refused { retry_after, .. } => Some(*retry_after),
            _ => None,
        }
    }
}

//! What is said of each event.

use leftfold::Answer;
use leftfold::sequence::Refusal;
use serde::Serialize;

/// What became of an event, as JSON.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "answer", rename_all = "kebab-case")]
pub(super) enum Told {
    /// It is in the log.
    Appended { token: String },
    /// It was there already.
    Duplicate { token: String },
    /// It is kept until this revision has come.
    Held { waiting_for: u64 },
    /// Only the latest counts, and this is not it.
    Stale { last: u64 },
    /// It contradicts what is there; it is kept for somebody to decide.
    Conflict { why: String },
    /// It can't be accepted. The whole message is kept under this id, and can be submitted again.
    Rejected { why: String, id: String },
    /// It can't be accepted, and nothing of it was kept.
    Invalid { why: String },
    /// Nothing of it was kept: send it again.
    Refused { why: String, retry_after: u64 },
}

impl Told {
    pub(super) fn of(answer: &Answer) -> Self {
        match answer {
            Answer::Appended(token) => Self::Appended { token: token.to_string() },
            Answer::Duplicate(token) => Self::Duplicate { token: token.to_string() },
            Answer::Held { waiting_for } => Self::Held { waiting_for: waiting_for.0 },
            Answer::Stale { last } => Self::Stale { last: last.0 },
            Answer::Conflict(why) => Self::Conflict { why: why.to_string() },
            Answer::Refused(Refusal::Invalid(invalid)) => Self::Invalid { why: invalid.to_string() },
            Answer::Refused(refusal @ Refusal::Full { retry_after, .. }) => {
                Self::Refused { why: refusal.to_string(), retry_after: retry_after.as_secs().max(1) }
            }
        }
    }

    /// When to send it again, if it must be.
    pub(super) fn retry_after(&self) -> Option<u64> {
        match self {
            Self::Refused { retry_after, .. } => Some(*retry_after),
            _ => None,
        }
    }
}

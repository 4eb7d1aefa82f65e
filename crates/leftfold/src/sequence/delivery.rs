//! What comes in, and what is answered.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::error::Invalid;
use crate::event::{Revision, StreamId, Token};
use crate::log::Entry;

/// An event as a feed brings it.
#[derive(Clone, Debug, PartialEq)]
pub struct Delivery {
    /// Its stream.
    pub stream: StreamId,
    /// Its revision at the origin, from 1 on. Not needed by [`Policy::Arrival`].
    pub revision: Option<Revision>,
    /// The revision before it as this subscriber sees it: 0 if there is none. If left out, the one directly below.
    ///
    /// A filtered subscription leaves revisions out for good; with links nothing waits for those.
    pub previous: Option<Revision>,
    /// The event itself.
    pub entry: Arc<Entry>,
}

/// What the revisions of a feed mean.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Policy {
    /// 1, 2, 3 … without gaps, or linked by [`Delivery::previous`]. What comes early is held.
    #[default]
    Contiguous,
    /// Revisions only grow, gaps are normal: timestamps, say. What is older than the last is stale, and dropped.
    Latest,
    /// There are none: they are given in order of arrival. An event that comes twice is known by its id.
    Arrival,
}

/// What became of a delivery. All but [`Answer::Refused`] is durable: the feed may forget it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It is in the log.
    Appended(Token),
    /// It was in the log already.
    Duplicate(Token),
    /// It came early, and is kept until what it waits for has come.
    Held {
        /// The first revision that is missing, as far as can be told.
        waiting_for: Revision,
    },
    /// It is older than what is in the log, where only the latest counts.
    Stale {
        /// The last revision in the log.
        last: Revision,
    },
    /// It contradicts what is there. It is kept, and waits for somebody to decide.
    Conflict(super::Why),
    /// Nothing of it was kept.
    Refused(Refusal),
}

impl Answer {
    /// Whether the feed may forget the delivery, as it is kept here or can never be.
    pub fn is_final(&self) -> bool {
        !matches!(self, Self::Refused(Refusal::Full { .. }))
    }
}

/// Why a delivery was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It can't be accepted, now or later.
    Invalid(Invalid),
    /// There is no room to hold it. It must be delivered again.
    Full {
        /// What is full.
        bound: &'static str,
        /// When to try again.
        retry_after: Duration,
    },
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invalid(invalid) => invalid.fmt(f),
            Self::Full { bound, retry_after } => write!(
                f,
                "there is no room to hold it: {bound} is reached; deliver it again in {} seconds, look for what the \
                 held events wait for, or raise the bound",
                retry_after.as_secs()
            ),
        }
    }
}

/// How much may be held. Beyond it deliveries that would have to wait are refused until there is room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Events of one stream.
    pub stream_events: u64,
    /// Bytes of one stream.
    pub stream_bytes: u64,
    /// Events in all. Each partition of the log has its share.
    pub events: u64,
    /// Bytes in all. Each partition of the log has its share.
    pub bytes: u64,
    /// Conflicts in all. Each partition of the log has its share.
    pub conflicts: u64,
}

impl Default for Limits {
    /// 100,000 events and 256 MiB of one stream; 1,000,000 and 1 GiB in all; 10,000 conflicts.
    fn default() -> Self {
        Self {
            stream_events: 100_000,
            stream_bytes: 256 << 20,
            events: 1_000_000,
            bytes: 1 << 30,
            conflicts: 10_000,
        }
    }
}

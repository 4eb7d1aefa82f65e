//! Deliveries, and the answers to them.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::error::Invalid;
use crate::event::{Bookmark, Revision, StreamId};
use crate::log::Entry;

/// An event as a feed delivers it.
#[derive(Clone, Debug, PartialEq)]
pub struct Delivery {
    /// Its stream.
    pub stream: StreamId,
    /// Its revision at the origin, from 1 on. [`Policy::Arrival`] does not need it.
    pub revision: Option<Revision>,
    /// The previous revision that this subscriber receives; 0 if there is none. The default is the
    /// revision directly below.
    ///
    /// A filtered subscription never delivers some revisions. With links nothing waits for those.
    pub previous: Option<Revision>,
    /// The event itself.
    pub entry: Arc<Entry>,
}

/// The meaning of a feed's revisions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Policy {
    /// Revisions are 1, 2, 3 … without gaps, or linked by [`Delivery::previous`]. Early deliveries
    /// are held.
    #[default]
    Contiguous,
    /// Revisions only grow, and gaps are normal, as with timestamps. A delivery older than the last
    /// one is stale, and dropped.
    Latest,
    /// The feed has no revisions: they are assigned in order of arrival. Duplicates are recognised
    /// by their id.
    Arrival,
}

/// The result of a delivery. All but [`IngestAnswer::Refused`] are durable: the feed may drop the
/// delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IngestAnswer {
    /// It is in the log.
    Appended(Bookmark),
    /// It was already in the log.
    Duplicate(Bookmark),
    /// It arrived early, and is held until the missing revisions arrive.
    Held {
        /// The first missing revision, as far as known.
        waiting_for: Revision,
    },
    /// It is older than the last event in the log, with [`Policy::Latest`].
    Stale {
        /// The last revision in the log.
        last: Revision,
    },
    /// It conflicts with a stored event. It is kept until an operator decides.
    Conflict(super::ConflictReason),
    /// Nothing of it is stored.
    Refused(Refusal),
}

impl IngestAnswer {
    /// Returns whether the feed may drop the delivery, because it is stored or can never be.
    pub fn is_final(&self) -> bool {
        !matches!(self, Self::Refused(Refusal::Full { .. }))
    }
}

/// The reason why a delivery was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It is invalid, now and later.
    Invalid(Invalid),
    /// A limit of held events or conflicts is reached. It must be delivered again.
    Full {
        /// The limit that is reached.
        bound: &'static str,
        /// The time after which to deliver it again.
        retry_after: Duration,
    },
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invalid(invalid) => invalid.fmt(f),
            Self::Full { bound, retry_after } => write!(
                f,
                "the holding area is full: {bound} is at its limit; deliver it again in {} seconds, heal the gaps, \
                 or raise the limit",
                retry_after.as_secs()
            ),
        }
    }
}

/// The limits of held events and conflicts. Beyond them, deliveries that would be held are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HoldingLimits {
    /// The number of events of one stream.
    pub stream_events: u64,
    /// The bytes of one stream.
    pub stream_bytes: u64,
    /// The number of events in all. Each partition of the log has its share.
    pub events: u64,
    /// The bytes in all. Each partition of the log has its share.
    pub bytes: u64,
    /// The number of conflicts in all. Each partition of the log has its share.
    pub conflicts: u64,
}

impl Default for HoldingLimits {
    /// Allows 100,000 events and 256 MiB of one stream, 1,000,000 events and 1 GiB in all, and
    /// 10,000 conflicts.
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

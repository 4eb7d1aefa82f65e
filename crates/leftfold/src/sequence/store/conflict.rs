//! Events that conflict with the stored ones, and the operators' decisions about them.

use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::event::{Revision, StreamId};
use crate::log::Entry;

/// The reason why a delivery or a held event can't be appended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ConflictReason {
    /// The log has another event with its revision.
    Logged,
    /// Another event with its revision is held.
    Held,
    /// Its revision was skipped: an operator said that it does not exist.
    Skipped,
    /// The stream has revisions that its link leaves out, or lacks its revision but has later ones.
    Link,
    /// Its id belongs to another event.
    IdTaken {
        /// The stream of that event.
        stream: StreamId,
        /// Its revision.
        revision: Revision,
    },
}

impl fmt::Display for ConflictReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Logged => f.write_str("the log has another event with this revision"),
            Self::Held => f.write_str("another event with this revision is held"),
            Self::Skipped => f.write_str("this revision was skipped by an operator"),
            Self::Link => f.write_str("its link does not fit between the revisions in the log"),
            Self::IdTaken { stream, revision } => {
                write!(f, "its id belongs to revision {revision} of stream {stream}")
            }
        }
    }
}

/// An event that conflicts with the stored ones.
#[derive(Clone, Debug, PartialEq)]
pub struct Conflict {
    /// Its stream.
    pub stream: StreamId,
    /// The revision that it claims.
    pub revision: Revision,
    /// The reason of the conflict.
    pub why: ConflictReason,
    /// The time at which it arrived.
    pub since: Timestamp,
    /// The event itself.
    pub entry: Arc<Entry>,
    /// The decision of an operator, if there is one.
    pub decided: Option<Resolution>,
}

/// The decision that the stored events are right. It is kept, so that the same event need not be
/// decided again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resolution {
    /// The reason.
    pub reason: String,
    /// The time of the decision.
    pub at: Timestamp,
}

impl Conflict {
    /// Returns the identity of the conflict. It is the same if the same event arrives again.
    pub fn id(&self) -> String {
        let Entry { id, kind, data, .. } = &*self.entry;
        let revision = self.revision.0.to_string();
        // Names contain no control characters, so different conflicts never produce the same text.
        let parts = [self.stream.as_str(), &revision, id.as_str(), kind.as_str(), data.as_str()];
        let id = Uuid::new_v5(&Uuid::NAMESPACE_OID, parts.join("\n").as_bytes());
        id.simple().to_string()
    }
}

//! Messages that are not valid events.

use std::collections::BTreeMap;

use jiff::Timestamp;
use uuid::Uuid;

use crate::error::{Error, Kind};

/// A message that is not a valid event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejected {
    /// The feed that delivered it.
    pub source: String,
    /// The reason of the rejection.
    pub reason: String,
    /// The time at which it arrived.
    pub since: Timestamp,
    /// Its headers and keys.
    pub attributes: BTreeMap<String, String>,
    /// Its content, unchanged.
    pub content: Vec<u8>,
}

impl Rejected {
    /// Returns the identity of the message. It is the same if the same message arrives again.
    pub fn id(&self) -> String {
        let mut text = Vec::new();
        let attributes = self.attributes.iter().flat_map(|(name, value)| [name.as_bytes(), value.as_bytes()]);
        for part in [self.source.as_bytes()].into_iter().chain(attributes).chain([&self.content[..]]) {
            text.extend((part.len() as u64).to_le_bytes());
            text.extend(part);
        }
        Uuid::new_v5(&Uuid::NAMESPACE_OID, &text).simple().to_string()
    }
}

/// The maximum number of rejected messages that are kept.
pub const MAX_REJECTED: u64 = 10_000;

/// Returns the error of a store that has reached this maximum.
pub fn too_many_rejected(place: &str) -> Error {
    let message = format!(
        "keeping a rejected message in {place}: the limit of {MAX_REJECTED} is reached; submit the messages again, \
         or delete them"
    );
    Error::new(Kind::Full, message)
}

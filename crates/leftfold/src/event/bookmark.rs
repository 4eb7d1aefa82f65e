//! The place of an appended event, for reads to wait for.

use std::fmt;
use std::str::FromStr;

use super::names::StreamId;
use super::numbers::{Partition, Position, Revision};
use crate::error::Invalid;

/// The result of an append: the place of its last event. A read can wait for it.
///
/// Its text form, `partition:position:revision:stream`, is safe in URLs and headers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Bookmark {
    /// The stream appended to.
    pub stream: StreamId,
    /// The revision of the stream after the append.
    pub revision: Revision,
    /// The partition of the stream.
    pub partition: Partition,
    /// The place of the last appended event in the partition.
    pub position: Position,
}

impl fmt::Display for Bookmark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}:{}", self.partition, self.position, self.revision, self.stream)
    }
}

impl FromStr for Bookmark {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        let invalid =
            || Invalid::new("bookmark", text, "partition:position:revision:stream, as an append returned it");
        let mut parts = text.splitn(4, ':');
        let mut next = || parts.next().ok_or_else(invalid);
        Ok(Self {
            partition: Partition(next()?.parse().map_err(|_| invalid())?),
            position: Position(next()?.parse().map_err(|_| invalid())?),
            revision: Revision(next()?.parse().map_err(|_| invalid())?),
            stream: StreamId::new(next()?)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_survives_its_text() {
        let bookmark = Bookmark {
            stream: StreamId::new("cart:42").unwrap(),
            revision: Revision(3),
            partition: Partition(1),
            position: Position(99),
        };
        assert_eq!(bookmark.to_string(), "1:99:3:cart:42");
        assert_eq!(bookmark.to_string().parse::<Bookmark>().unwrap(), bookmark);
        for bad in ["", "1:2:3", "1:2:3:", "x:1:1:s", "70000:1:1:s", "0:-1:1:s"] {
            assert!(bad.parse::<Bookmark>().is_err(), "{bad:?} is no bookmark");
        }
    }
}

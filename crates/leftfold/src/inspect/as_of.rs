//! A moment in the life of a document, to inspect it as of then.

use std::fmt;
use std::str::FromStr;

use jiff::Timestamp;

use crate::error::{Error, Invalid, Kind, Result};
use crate::event::{DocumentId, Partition, Position, Revision, StreamId};
use crate::fold::Occurrence;
use crate::log::{Limit, Log};

/// The moment up to which a document is inspected.
///
/// Its text form is a revision, `cart-42@7`, or a time such as `2026-01-01T00:00:00Z`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AsOf {
    /// Right after this revision of the stream with the document's name.
    Revision(Revision),
    /// Right after this event of the log, whichever documents it belongs to. Partitions have no
    /// common order, so for events of other partitions its time decides.
    Event(StreamId, Revision),
    /// Before the first event, in each partition, with a later time.
    Time(Timestamp),
}

impl FromStr for AsOf {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        if let Ok(revision) = text.parse() {
            return Ok(Self::Revision(Revision(revision)));
        }
        if let Ok(time) = text.parse() {
            return Ok(Self::Time(time));
        }
        let event = text.rsplit_once('@').and_then(|(stream, revision)| {
            Some(Self::Event(StreamId::new(stream).ok()?, Revision(revision.parse().ok()?)))
        });
        let expected = "a revision, stream@revision, or a time such as 2026-01-01T00:00:00Z";
        event.ok_or_else(|| Invalid::new("moment", text, expected))
    }
}

impl fmt::Display for AsOf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Revision(revision) => write!(f, "revision {revision}"),
            Self::Event(stream, revision) => write!(f, "{stream}@{revision}"),
            Self::Time(time) => write!(f, "{time}"),
        }
    }
}

/// A moment in a form that events can be compared with.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Until {
    Now,
    Revision(Revision),
    Place(Partition, Position, Timestamp),
    Time(Timestamp),
}

impl Until {
    /// Finds the moment in the log.
    pub(crate) async fn find(
        moment: &AsOf,
        id: &DocumentId,
        by_stream: bool,
        log: &impl Log,
    ) -> Result<Self> {
        match moment {
            AsOf::Revision(revision) if by_stream => Ok(Self::Revision(*revision)),
            AsOf::Revision(revision) => {
                let message = format!(
                    "reading {id} as of revision {revision}: the document has events of several streams; \
                     name one, such as stream@{revision}"
                );
                Err(Error::new(Kind::Invalid, message))
            }
            AsOf::Event(stream, revision) => {
                let one = Limit { events: 1, ..Limit::default() };
                let before = Revision(revision.0.saturating_sub(1));
                let found = log.read_stream(stream, before, one).await?.pop();
                let found = found.filter(|event| event.revision == *revision).ok_or_else(|| {
                    let message = format!("reading {id} as of {moment}: the log has no such event");
                    Error::new(Kind::Invalid, message)
                })?;
                Ok(Self::Place(found.partition, found.position, found.time))
            }
            AsOf::Time(time) => Ok(Self::Time(*time)),
        }
    }

    /// Returns whether an event had happened by then.
    pub(crate) fn covers(self, event: &Occurrence) -> bool {
        match self {
            Self::Now => true,
            Self::Revision(revision) => event.revision <= revision,
            Self::Place(partition, position, _) if event.partition == partition => event.position <= position,
            Self::Place(_, _, time) | Self::Time(time) => event.time <= time,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_a_revision_an_event_or_a_time() {
        let stream = |name| StreamId::new(name).unwrap();
        for (text, moment) in [
            ("7", AsOf::Revision(Revision(7))),
            ("cart-42@7", AsOf::Event(stream("cart-42"), Revision(7))),
            ("ann@shop@2", AsOf::Event(stream("ann@shop"), Revision(2))),
            ("2026-01-01T00:00:00Z", AsOf::Time("2026-01-01T00:00:00Z".parse().unwrap())),
        ] {
            assert_eq!(text.parse(), Ok(moment), "{text}");
        }
        for text in ["", "-1", "yesterday", "@7", "cart@", "cart@x", "2026-01-01"] {
            assert!(text.parse::<AsOf>().is_err(), "{text}");
        }
    }
}

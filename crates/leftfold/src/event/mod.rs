//! Events, the streams they belong to, and the numbers that order them.
//!
//! | module | purpose |
//! | --- | --- |
//! | `stored` | an event in the log |
//! | `new` | an event to append |
//! | `encode` | from a serde value to an event's type and data |
//! | `bookmark` | the place of an appended event, for reads to wait for |
//! | `names` | the names of streams, events, event types and documents |
//! | `numbers` | revisions, positions and partitions |

mod bookmark;
mod encode;
mod names;
mod new;
mod numbers;
mod stored;

pub use bookmark::Bookmark;
pub use names::{DocumentId, EventId, EventKind, MAX_NAME_BYTES, StreamId};
pub use new::NewEvent;
pub use numbers::{Partition, Position, Revision};
pub use stored::Event;
pub(crate) use stored::to_the_microsecond;

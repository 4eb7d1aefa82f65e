//! Fold: turns the log into documents, with a pure function per projection.
//!
//! | module | purpose |
//! | --- | --- |
//! | `projection` | the trait that users implement |
//! | `decode` | from a stored event to a projection's own type |
//! | `slot` | one document in memory, and the effect of an event on it |
//! | `cache`   | the documents in memory: the batch's, and a bounded cache |
//! | `batch` | the pure core: from (documents, events) to (writes, failures, waiting events) |
//! | `projector` | the shell that reads, calls the core and commits |
//! | `replay` | reading the log again for documents that must be folded from the beginning |
//! | `ahead` | folds of a page that a projection computes many at a time |
//! | `threads` | threads for users' code, beside those of the runtime |
//! | `status`, `figures` | the status of a projection, and its measurements |
//! | `retell`, `changes` | folding one document event by event, and the changes of each event |
//! | `explain`, `moment`, `absence` | why a document has its state, had it in the past, or is missing |
//! | `verify` | compares the stored documents with a fold of the log |

mod absence;
mod ahead;
mod batch;
mod cache;
mod changes;
mod decode;
mod explain;
mod figures;
mod folding;
mod mend;
mod moment;
mod pipes;
mod projection;
mod projector;
mod replay;
mod retell;
mod slot;
mod status;
mod threads;
mod verify;

pub use absence::Absence;
pub(crate) use batch::Folder;
pub use batch::Occurrence;
#[cfg(feature = "testing")]
pub(crate) use batch::{FoldState, Portion};
pub use changes::FieldChange;
#[cfg(feature = "testing")]
pub(crate) use decode::{Decoded, decode};
pub(crate) use explain::Explaining;
pub use explain::{Effect, Explained, Explanation, ExplanationCursor};
pub use figures::{Figures, Histogram};
pub use mend::Mended;
pub use moment::AsOf;
pub(crate) use moment::Until;
pub use projection::{Bulk, DocumentIds, Error, Folded, Projection, Route, Upcoming};
pub use projector::FoldOptions;
pub(crate) use projector::{Ended, Projector, Pulse, SharedPulse, stopped};
#[cfg(feature = "testing")]
pub(crate) use slot::DocumentSlot;
pub(crate) use status::distance;
pub use status::{Activity, ProjectionStatus, SlowFold};
pub use verify::{Differing, Sample, Verified};

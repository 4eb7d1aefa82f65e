//! Fold: the log becomes documents, by a pure function per projection.
//!
//! | module | what it is for |
//! | --- | --- |
//! | `projection` | what users write |
//! | `decode` | from a stored event to a projection's own type |
//! | `slot` | one document in memory, and what an event does to it |
//! | `working` | the documents at hand: the batch's, and a bounded cache |
//! | `batch` | the pure core: from (documents at hand, events) to (what to write, what failed, what waits) |
//! | `projector` | the shell that reads, calls the core and commits |
//! | `replay` | reading the log again for documents that must be folded anew |
//! | `ahead` | folds of a page that a projection computes many at a time |
//! | `threads` | threads for users' code, beside those of the runtime |
//! | `status`, `figures` | how a projection is doing, and what was measured |
//! | `retell`, `changes` | folding one document event by event, and what each event changed |
//! | `explain`, `moment`, `absence` | why a document is what it is, was what it was, or is not there |
//! | `verify` | whether what is stored is what the log folds to |

mod absence;
mod ahead;
mod batch;
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
mod working;

pub use absence::Absence;
pub(crate) use batch::Folder;
pub use batch::Occurrence;
#[cfg(feature = "testing")]
pub(crate) use batch::{Desk, Portion};
pub use changes::Change;
#[cfg(feature = "testing")]
pub(crate) use decode::{Decoded, decode};
pub(crate) use explain::Explaining;
pub use explain::{Cursor, Effect, Explained, Explanation};
pub use figures::{Figures, Histogram};
pub use mend::Mended;
pub use moment::Moment;
pub(crate) use moment::Until;
pub use projection::{Bulk, Error, Folded, Ids, Projection, Route, Upcoming};
pub use projector::Options;
pub(crate) use projector::{Ended, Projector, Pulse, SharedPulse, stopped};
#[cfg(feature = "testing")]
pub(crate) use slot::Slot;
pub(crate) use status::distance;
pub use status::{Activity, SlowFold, Status};
pub use verify::{Differing, Sample, Verified};

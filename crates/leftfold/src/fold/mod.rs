//! Fold: turns the log into documents, with a pure function per projection.
//!
//! | module | purpose |
//! | --- | --- |
//! | `projection`, `route`, `error` | the trait that users implement |
//! | `decode` | from a stored event to a projection's own type |
//! | `folder`, `routed` | a projection as the engine uses it, and a page of the log as it sees it |
//! | `load` | loading stored documents for the core |
//! | `slot` | one document in memory, and the effect of an event on it |
//! | `cache`   | the documents in memory: the batch's, and a bounded cache |
//! | `batch` | the pure core: from (documents, events) to (writes, failures, waiting events) |
//! | `ahead` | folds of a page that a projection computes many at a time |
//! | `live` | the main loop of a worker: it folds the live generation |
//! | `projector` | the shell that reads, calls the core and commits |
//! | `replay` | reading the log again for documents that must be folded from the beginning |
//! | `repair` | retries of parked units, and refolds |
//! | `erased` | a projection without its types |
//! | `threads` | threads for users' code, beside those of the runtime |
//! | `pulse`, `figures`, `folding` | the observable state of a worker, and its measurements |

mod ahead;
mod batch;
mod cache;
mod decode;
mod erased;
mod error;
mod figures;
mod folder;
mod folding;
mod live;
mod load;
mod options;
mod projection;
mod projector;
mod pulse;
mod repair;
mod replay;
mod route;
mod routed;
mod slot;
mod threads;

#[cfg(feature = "testing")]
pub(crate) use batch::{FoldState, Portion};
#[cfg(feature = "testing")]
pub(crate) use decode::{Decoded, decode};
pub(crate) use erased::{ErasedProjection, Running, Work, WorkerContext};
pub use error::Error;
pub use figures::{Figures, Histogram};
pub(crate) use folder::Folder;
pub(crate) use live::run_live;
pub use options::FoldOptions;
pub use projection::{Bulk, Folded, Projection, Upcoming};
pub(crate) use projector::{Ended, stopped};
pub use pulse::Activity;
pub(crate) use pulse::{Pulse, SharedPulse};
pub use repair::RepairOutcome;
pub(crate) use replay::Replay;
pub use route::{DocumentIds, Route};
pub use routed::Occurrence;
pub(crate) use routed::{Routed, Step};
#[cfg(feature = "testing")]
pub(crate) use slot::DocumentSlot;
pub(crate) use slot::body;

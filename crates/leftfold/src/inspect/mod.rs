//! Inspection: everything that explains the state of an application. It is read-only.
//!
//! | module | purpose |
//! | --- | --- |
//! | `status` | the state of a projection |
//! | `explain`, `changes` | the events that made a document, and the changes of each |
//! | `as_of` | a moment in the past of a document |
//! | `absence` | the reasons why a document is missing |
//! | `verify`, `plain` | compares the stored documents with a fold of the log |
//! | `parked` | the parked units of a collection |
//! | `inspector` | every collection of a store, without the projections' code |
//! | `retell` | folds one document event by event, for all of these |
//! | [`doctor`] | findings about a store and the workers on it, with advice |

mod absence;
mod as_of;
mod changes;
pub mod doctor;
mod erased;
mod explain;
mod inspector;
mod parked;
mod plain;
mod retell;
mod status;
mod verify;

pub use absence::Absence;
pub use as_of::AsOf;
pub use changes::FieldChange;
pub(crate) use erased::InspectProjection;
pub(crate) use explain::Explaining;
pub use explain::{Effect, Explained, Explanation, ExplanationCursor};
pub use inspector::Inspector;
pub(crate) use parked::parked_units;
pub(crate) use status::stored_status;
pub use status::{ProjectionStatus, SlowFold, Vitals};
pub use verify::{Differing, Sample, Verified};

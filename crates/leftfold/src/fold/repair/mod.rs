//! Repair: retries parked documents and streams, and refolds documents, beside the running
//! projector.
//!
//! Every step is a guarded write of single documents, so concurrent work does no harm. If the
//! projector changes a document in between, the repair starts over from the changed document.

mod attempts;
mod documents;
mod refold;
mod stream;

/// The result of a repair.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RepairOutcome {
    /// The unit is repaired; on a dry run, it would be.
    Repaired,
    /// The unit still fails, with this error.
    StillFailing(String),
    /// There was nothing to repair.
    NotParked,
}

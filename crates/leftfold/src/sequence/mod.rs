//! Sequencing: from any feed to a log in order, each event once.
//!
//! Deliveries arrive twice, out of order, late, or never. An early delivery is *held* until the
//! revisions before it arrive, and is then released. A duplicate is recognised; a conflicting
//! delivery is kept and reported. A delivery is acknowledged only when it is durable, so that the
//! feed may drop it.
//!
//! [`judge`] decides, without any I/O. [`Sequencer`] loads the state that it needs, calls it, and
//! commits the decision under guard: several processes may ingest the same streams at once.

mod counts;
mod delivery;
mod heal;
mod judge;
mod logged;
mod sequencer;
mod store;

pub use counts::SequencerCounts;
pub use delivery::{Delivery, HoldingLimits, IngestAnswer, Policy, Refusal};
pub use heal::{FromLog, Healer, Healing, Missing, Resupply, resupply};
pub use judge::{Capacity, Judged, Judgement, Known, judge};
pub use logged::NotLogged;
pub use sequencer::{Sequencer, SequencerStatus};
pub use store::{
    Conflict, ConflictReason, DueGaps, Found, Held, HeldPage, MAX_REJECTED, Rejected, Resolution, Sequences,
    Settled, Settlement, Skipped, StreamChange, StreamState, StreamVersion, Survey, Totals, Waiting,
    WantedEvents, too_many_rejected,
};

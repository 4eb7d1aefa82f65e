//! Sequencing: from any feed to a log in order, each event once.
//!
//! Deliveries arrive twice, out of order, late, or never. An early delivery is *held* until the
//! revisions before it arrive, and is then released. A duplicate is recognised; a conflicting
//! delivery is kept and reported. A delivery is acknowledged only when it is durable, so that the
//! feed may drop it.
//!
//! [`judge`] decides, without any I/O. [`Sequencer`] loads the state that it needs, calls it, and
//! commits the decision under guard: several processes may ingest the same streams at once.
//!
//! | module | purpose |
//! | --- | --- |
//! | `delivery` | deliveries, and the answers to them |
//! | `sequencer` | the handle |
//! | `ingest` | deliveries by partition and stream, settled and answered |
//! | `load` | the states of streams, and the stored events to compare with |
//! | `judge` | the pure decision about the deliveries of a stream |
//! | `plan` | loading and judging: from deliveries to a settlement and answers |
//! | `settle` | writing a settlement under guard, and planning again if it is outdated |
//! | `release` | releasing held events |
//! | `skip` | skipping missing revisions, by an operator |
//! | `heal` | requesting missing events when a gap is old |
//! | `resupply` | the sources of missing events |
//! | `logged` | waiting until a delivery is in the log |
//! | `status`, `counts` | held events, gaps and conflicts in numbers |
//! | `cache` | the states of streams in memory |
//! | `store` | the interface of stores, and its types |

mod cache;
mod counts;
mod delivery;
mod heal;
mod ingest;
mod judge;
mod load;
mod logged;
mod plan;
mod release;
mod resupply;
mod sequencer;
mod settle;
mod skip;
mod status;
mod store;

pub use counts::SequencerCounts;
pub use delivery::{Delivery, HoldingLimits, IngestAnswer, Policy, Refusal};
pub use heal::{Healer, Healing};
pub use judge::{Capacity, Judged, Judgement, Known, judge};
pub use logged::NotLogged;
pub use resupply::{FromLog, Missing, Resupply, resupply};
pub use sequencer::Sequencer;
pub use status::SequencerStatus;
pub use store::{
    Conflict, ConflictReason, DueGaps, Found, Held, HeldPage, MAX_REJECTED, Rejected, Resolution, Sequences,
    Settled, Settlement, Skipped, StreamChange, StreamState, StreamVersion, Survey, Totals, Waiting,
    WantedEvents, too_many_rejected,
};

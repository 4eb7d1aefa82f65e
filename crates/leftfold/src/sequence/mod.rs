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

pub use counts::Counts;
pub use delivery::{Answer, Delivery, Limits, Policy, Refusal};
pub use heal::{FromLog, Healer, Healing, Missing, Resupply, resupply};
pub use judge::{Judged, Judgement, Known, Room, judge};
pub use logged::NotLogged;
pub use sequencer::{Sequencer, Status};
pub use store::{
    Conflict, Decided, Due, Found, Held, MAX_REJECTED, Page, Rejected, Seen, Sequences, Settled, Settlement,
    Skipped, Standing, Step, Survey, Totals, Waiting, Wanted, Why, too_many_rejected,
};

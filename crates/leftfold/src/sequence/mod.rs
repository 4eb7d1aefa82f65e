//! From any feed to a log in order, each event once.
//!
//! Deliveries come twice, out of order, late, or never. What comes early is *held* until what it waits for arrives, and
//! is then released behind it; what came before is recognised; what contradicts it is kept and shown. A delivery is
//! answered only when its place is durable, so that whoever brought it may forget it.
//!
//! [`judge`] decides, without any I/O; [`Sequencer`] loads what it needs to know, calls it, and commits what it decided
//! under guard: several processes may ingest the same streams at once.

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

//! A feed that delivers events twice, late, out of order or never, and the actors that ingest it.
//!
//! - I6: An event acknowledged to the feed is in the log, held, or stored as a conflict. It is
//!   never lost.
//! - I7: The held events stay within their limits and agree with the stream's state.
//! - I3: The log of each stream is a prefix of the events that its origin published, in order and
//!   without a gap.
//! - I10: Within a time limit after the last fault every published event is in the log and nothing
//!   is held.

mod check;
mod ingester;
mod messages;
mod publish;
mod tally;

pub(crate) use ingester::Ingester;
pub use messages::SimulatedFeed;

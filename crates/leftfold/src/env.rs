//! The outside world as a port: the wall clock and randomness. Waiting goes through tokio's clock,
//! which tests can pause.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use jiff::Timestamp;
use uuid::Uuid;

use crate::event::EventId;

/// The source of time and randomness. Correctness depends on neither.
pub trait Env: Send + Sync + 'static {
    /// Returns the time of day.
    fn now(&self) -> Timestamp;

    /// Returns a random number.
    fn random(&self) -> u64;
}

/// The machine's own clock and randomness.
#[derive(Clone, Copy, Debug, Default)]
pub struct System;

#[expect(clippy::disallowed_methods, reason = "this is the port to the system's time and randomness")]
impl Env for System {
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }

    /// Returns the next number of a sequence with a random start (SplitMix64): cheap, and different
    /// in each process. Not for secrets.
    fn random(&self) -> u64 {
        static NEXT: LazyLock<AtomicU64> = LazyLock::new(|| AtomicU64::new(Uuid::now_v7().as_u64_pair().1));
        let mut mixed = NEXT.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

/// Creates an event id: a UUID of version 7, so that ids created one after the other are neighbors
/// in an index.
pub(crate) fn event_id(env: &dyn Env) -> EventId {
    let mut random = [0; 10];
    random[..8].copy_from_slice(&env.random().to_le_bytes());
    random[8..].copy_from_slice(&env.random().to_le_bytes()[..2]);
    let millis = u64::try_from(env.now().as_millisecond()).unwrap_or(0);
    let id = uuid::Builder::from_unix_timestamp_millis(millis, &random).into_uuid();
    EventId::stored(id.hyphenated().encode_lower(&mut Uuid::encode_buffer()))
}

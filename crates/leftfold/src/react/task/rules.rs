//! The inputs of decisions about tasks.

use std::time::Duration;

use jiff::Timestamp;

use crate::react::define::{Every, Retry};

/// The settings of a reaction that apply to its tasks.
#[derive(Clone, Debug)]
pub struct Rules {
    /// The time for which a document must be unchanged before it is handled.
    pub debounce: Duration,
    /// The longest wait for a document that keeps changing.
    pub at_most: Duration,
    /// The retry policy.
    pub retry: Retry,
    /// The maximum number of runs in the history.
    pub history: usize,
    /// The length of a claim.
    pub visibility: Duration,
    /// The version of the reaction's code.
    pub version: u32,
    /// The schedule, for a recurring reaction.
    pub every: Option<Every>,
}

/// The inputs of a decision that differ on each call: the time and random values.
#[derive(Clone, Copy, Debug)]
pub struct TaskMoment {
    /// The store's time.
    pub now: Timestamp,
    /// The version of the resulting task.
    pub version: u64,
    /// A random number from 0 to 1.
    pub random: f64,
}

//! The messages between the rig and its processes: one JSON value per line on standard input and
//! output. A process ends when its input ends.

use std::io::{self, Write as _};
use std::ops::AddAssign;

use serde::{Deserialize, Serialize};

/// An order to a process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Order {
    /// Die or wait at a place.
    At { place: String, passes: Vec<String>, times: u32, action: Action },
    /// Go on from the place where it waits.
    GoOn,
    /// Cancel the order to die or wait, and confirm that.
    Disarm,
}

/// The action of a process at a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Action {
    Die,
    /// Wait to be stopped and then to be resumed.
    Wait,
}

/// A message from a process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Message {
    Ready,
    /// The process is at a place.
    Reached {
        place: String,
    },
    Disarmed,
    /// The store acknowledged an append.
    Acknowledged {
        append: u64,
        ids: Vec<String>,
        bookmark: String,
        again: bool,
    },
    /// The store rejected an append with a conflict.
    Refused {
        append: u64,
        ids: Vec<String>,
    },
    /// The store answered deliveries: these are in the log, by id and bookmark.
    Fed {
        batch: u64,
        logged: Vec<(String, String)>,
    },
    /// The counts of a reactor since its start.
    Counts(ReactorCounts),
    /// The document that the process handles is about to kill it, and with it the other running
    /// handlers.
    Dying {
        beside: u64,
    },
    /// The store gave an invalid response to an append or a delivery.
    Wrong(String),
}

/// The counts of a reactor.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct ReactorCounts {
    pub(crate) planned: u64,
    pub(crate) claimed: u64,
    pub(crate) done: u64,
    pub(crate) stale: u64,
    pub(crate) failed: u64,
    pub(crate) retried: u64,
    pub(crate) takeovers: u64,
    pub(crate) lost: u64,
}

impl AddAssign for ReactorCounts {
    fn add_assign(&mut self, other: Self) {
        self.planned += other.planned;
        self.claimed += other.claimed;
        self.done += other.done;
        self.stale += other.stale;
        self.failed += other.failed;
        self.retried += other.retried;
        self.takeovers += other.takeovers;
        self.lost += other.lost;
    }
}

/// Sends a message to the rig.
pub(crate) fn send(message: &Message) -> io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    let mut out = io::stdout().lock();
    out.write_all(&line)?;
    out.flush()
}

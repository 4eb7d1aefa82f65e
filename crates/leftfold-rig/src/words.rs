//! What the rig and its processes say to each other: one JSON value per line, on their standard input and output. A
//! process ends by itself when its input does.

use std::io::{self, Write as _};
use std::ops::AddAssign;

use serde::{Deserialize, Serialize};

/// What a process is told.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Order {
    /// To end or wait at a place.
    At { place: String, passes: Vec<String>, times: u32, blow: Blow },
    /// To go on from where it waits.
    GoOn,
    /// To forget that, and say so.
    Disarm,
}

/// What happens to a process at a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Blow {
    Die,
    /// It waits to be stopped, and to be told to go on.
    Wait,
}

/// What a process says.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Said {
    Ready,
    /// It is at a place.
    Reached {
        place: String,
    },
    Disarmed,
    /// An append was acknowledged.
    Acknowledged {
        append: u64,
        ids: Vec<String>,
        token: String,
        again: bool,
    },
    /// An append was answered with a conflict.
    Refused {
        append: u64,
        ids: Vec<String>,
    },
    /// Deliveries were answered: these are in the log, by id and token.
    Fed {
        batch: u64,
        logged: Vec<(String, String)>,
    },
    /// What a reactor did since it was started.
    Did(Did),
    /// It is about to be killed by the document that it handles, and so are the other handlers that
    /// run in it.
    Fell {
        beside: u64,
    },
    /// An append or a delivery was answered with something that must not happen.
    Wrong(String),
}

/// What a reactor did.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Did {
    pub(crate) planned: u64,
    pub(crate) claimed: u64,
    pub(crate) done: u64,
    pub(crate) stale: u64,
    pub(crate) failed: u64,
    pub(crate) retried: u64,
    pub(crate) takeovers: u64,
    pub(crate) lost: u64,
}

impl AddAssign for Did {
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

/// Says something to the rig.
pub(crate) fn say(said: &Said) -> io::Result<()> {
    let mut line = serde_json::to_vec(said)?;
    line.push(b'\n');
    let mut out = io::stdout().lock();
    out.write_all(&line)?;
    out.flush()
}

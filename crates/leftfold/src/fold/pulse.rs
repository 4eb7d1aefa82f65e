//! The observable state of a running projector.

use std::sync::{Arc, Mutex};

use serde::Serialize;

use super::figures::Figures;
use super::folding::Folding;

/// The activity of a worker on a projection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Activity {
    /// No worker of this process runs it.
    #[default]
    Stopped,
    /// Another worker holds the lease; this one stands by.
    Standby,
    /// It folds the backlog of the log.
    CatchingUp,
    /// It has folded all events and waits for more.
    Live,
    /// The store failed; the worker will retry.
    Failing,
}

/// The observable state of a running projector.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pulse {
    pub(crate) activity: Activity,
    pub(crate) events_per_second: f64,
    pub(crate) last_error: Option<String>,
    pub(crate) figures: Figures,
    /// The event that is being folded.
    pub(crate) folding: Option<Arc<Folding>>,
}

pub(crate) type SharedPulse = Arc<Mutex<Pulse>>;

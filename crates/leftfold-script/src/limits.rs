//! The limits of a script.

use std::time::Duration;

/// Limits for one call of a script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScriptLimits {
    /// The maximum processor time. The default is a second. Time spent by other processes does not
    /// count.
    pub time: Duration,
    /// The maximum memory of the engine with everything the script keeps, in bytes. The default is
    /// 64 MiB.
    pub memory: usize,
}

impl Default for ScriptLimits {
    fn default() -> Self {
        Self { time: Duration::from_secs(1), memory: 64 << 20 }
    }
}

impl ScriptLimits {
    /// Returns the message for a call that took too much processor time.
    pub(crate) fn time_exceeded(&self) -> String {
        format!("the script exceeded its time limit of {:?}", self.time)
    }

    /// Returns the message for a call that took too much memory.
    pub(crate) fn memory_exceeded(&self) -> String {
        format!("the script exceeded its memory limit of {} MiB", self.memory >> 20)
    }
}

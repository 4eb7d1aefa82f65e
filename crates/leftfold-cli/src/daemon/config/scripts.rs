//! Compiles the scripts of the file.

use std::ops::RangeInclusive;
use std::time::Duration;

use leftfold_script::{Script, ScriptLimits};
use leftfold_terminal::{Exit, Failure};

use super::Config;
use super::file::ProjectionConfig;
use super::value::Time;
use crate::daemon::workers::workers;

/// The allowed memory limits of a script in MiB, and its maximum time limit per event.
const MEMORY_MIB: RangeInclusive<usize> = 1..=4_096;
const MAX_DURATION: Duration = Duration::from_hours(1);

impl Config {
    /// Compiles all projections.
    pub(crate) fn scripts(&self) -> Result<Vec<Script>, Failure> {
        self.scripts_after(&[])
    }

    /// Compiles all projections, and reuses unchanged scripts of `before`.
    pub(crate) fn scripts_after(&self, before: &[Script]) -> Result<Vec<Script>, Failure> {
        self.projections.iter().map(|projection| self.script_after(projection, before)).collect()
    }

    /// Compiles one projection.
    pub(crate) fn script(&self, projection: &ProjectionConfig) -> Result<Script, Failure> {
        self.script_after(projection, &[])
    }

    fn script_after(&self, projection: &ProjectionConfig, before: &[Script]) -> Result<Script, Failure> {
        let ProjectionConfig { name, script, time_limit, memory_limit_mib } = projection;
        let file = self.script_file(projection);
        let failed = |fault: String| {
            Failure::new(Exit::Usage, format!("projection {name}: {}: {fault}", file.display()))
        };
        let wrong = |key: &str, expected: &str| {
            Failure::new(Exit::Usage, format!("projection {name}: {key}: expected {expected}"))
        };
        // Engines treat 0, and a number that overflows, as no limit at all.
        let memory = match memory_limit_mib.map(|mib| (mib, mib.checked_mul(1 << 20))) {
            None => ScriptLimits::default().memory,
            Some((mib, Some(bytes))) if MEMORY_MIB.contains(&mib) => bytes,
            Some(_) => return Err(wrong("memory_limit_mib", "1 to 4096")),
        };
        let time = match time_limit {
            None => ScriptLimits::default().time,
            Some(Time(time)) if !time.is_zero() && *time <= MAX_DURATION => *time,
            Some(_) => return Err(wrong("time_limit", "more than 0s, and at most 1h")),
        };
        let source = std::fs::read_to_string(&file).map_err(|error| failed(error.to_string()))?;
        let limits = ScriptLimits { time, memory };
        let shown = script.display().to_string();
        if let Some(same) = before.iter().find(|script| script.is_made_of(name, &shown, limits, &source)) {
            return Ok(same.clone());
        }
        Script::compile_in(workers(), name, shown, limits, source).map_err(|fault| failed(fault.to_string()))
    }
}

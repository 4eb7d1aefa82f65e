//! The trace of a run, line by line. It is the same for the same seed.

use std::sync::{Mutex, PoisonError};

use tokio::time::Instant;

/// The lines of a run, if the caller wants them.
#[derive(Debug)]
pub struct Trace {
    began: Instant,
    lines: Option<Mutex<Vec<String>>>,
}

impl Trace {
    /// Creates an empty trace that begins now. It stays empty unless `wanted` is set.
    pub fn new(wanted: bool) -> Self {
        Self { began: Instant::now(), lines: wanted.then(Mutex::default) }
    }

    /// Adds a line.
    pub fn note(&self, line: impl FnOnce() -> String) {
        if let Some(lines) = &self.lines {
            let at = self.began.elapsed().as_secs_f64();
            lines.lock().unwrap_or_else(PoisonError::into_inner).push(format!("{at:>12.6} {}", line()));
        }
    }

    /// Takes all lines.
    pub fn take(&self) -> Vec<String> {
        let lines = self.lines.as_ref().map(|lines| lines.lock().unwrap_or_else(PoisonError::into_inner));
        lines.map(|mut lines| std::mem::take(&mut *lines)).unwrap_or_default()
    }
}

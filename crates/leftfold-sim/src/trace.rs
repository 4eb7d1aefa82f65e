//! What happened in a run, line by line: the same for the same seed.

use std::sync::{Mutex, PoisonError};

use tokio::time::Instant;

/// The lines of a run.
#[derive(Debug)]
pub struct Trace {
    began: Instant,
    lines: Mutex<Vec<String>>,
}

impl Trace {
    pub fn new() -> Self {
        Self { began: Instant::now(), lines: Mutex::default() }
    }

    pub fn note(&self, line: impl FnOnce() -> String) {
        let at = self.began.elapsed().as_secs_f64();
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).push(format!("{at:>12.6} {}", line()));
    }

    pub fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.lines.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

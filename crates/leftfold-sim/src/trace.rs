//! What happened in a run, line by line: the same for the same seed.

use std::sync::{Mutex, PoisonError};

use tokio::time::Instant;

/// The lines of a run, if they are wanted.
#[derive(Debug)]
pub struct Trace {
    began: Instant,
    lines: Option<Mutex<Vec<String>>>,
}

impl Trace {
    /// An empty trace that begins now; one that is not wanted stays empty.
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

    /// All lines.
    pub fn take(&self) -> Vec<String> {
        let lines = self.lines.as_ref().map(|lines| lines.lock().unwrap_or_else(PoisonError::into_inner));
        lines.map(|mut lines| std::mem::take(&mut *lines)).unwrap_or_default()
    }
}

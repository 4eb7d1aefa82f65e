//! The windows from a kill until the daemon serves and folds again.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// All windows of a run. Requests that overlap a window are retried and not measured.
#[derive(Debug, Default)]
pub(crate) struct Windows(Mutex<Vec<Window>>);

#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    pub(crate) killed: Instant,
    /// The time from the kill until `/readyz` returned 200.
    pub(crate) ready: Option<Duration>,
    /// The time from the kill until an event appended after it was folded.
    pub(crate) folded: Option<Duration>,
}

impl Windows {
    /// Opens a window. The caller opens it before the kill, so that no client sees the kill
    /// earlier.
    pub(crate) fn open(&self) {
        self.all().push(Window { killed: Instant::now(), ready: None, folded: None });
    }

    /// Records that the daemon is ready.
    pub(crate) fn ready(&self) {
        if let Some(window) = self.all().last_mut() {
            window.ready = Some(window.killed.elapsed());
        }
    }

    /// Closes the last window.
    pub(crate) fn close(&self) {
        if let Some(window) = self.all().last_mut() {
            window.folded = Some(window.killed.elapsed());
        }
    }

    /// Returns whether a window was open at some time between `from` and `to`.
    pub(crate) fn overlap(&self, from: Instant, to: Instant) -> bool {
        let overlaps = |window: &Window| {
            window.killed <= to && window.folded.is_none_or(|folded| from <= window.killed + folded)
        };
        self.all().iter().rev().any(overlaps)
    }

    pub(crate) fn list(&self) -> Vec<Window> {
        self.all().clone()
    }

    fn all(&self) -> std::sync::MutexGuard<'_, Vec<Window>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_overlaps_what_was_open_while_it_ran() {
        let (windows, second) = (Windows::default(), Duration::from_secs(1));
        let before = Instant::now();
        assert!(!windows.overlap(before, before + second));
        windows.open();
        let killed = windows.list()[0].killed;
        assert!(windows.overlap(before, killed + second));
        assert!(windows.overlap(killed + 50 * second, killed + 60 * second), "it is still open");
        windows.all()[0].folded = Some(3 * second);
        assert!(windows.overlap(killed + 2 * second, killed + 60 * second));
        assert!(windows.overlap(killed + second, killed + 2 * second));
        assert!(!windows.overlap(killed + 4 * second, killed + 5 * second));
        if let Some(earlier) = killed.checked_sub(second) {
            assert!(!windows.overlap(earlier, earlier));
        }
    }
}

//! The state that all threads of a run share.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crate::windows::Windows;

/// The maximum number of messages kept of each kind.
const KEPT: usize = 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Only the bystander runs.
    Calm,
    Hostile,
    /// The bystander compares all its carts.
    Over,
}

/// The state of a run.
#[derive(Debug)]
pub(crate) struct Arena {
    pub(crate) address: SocketAddr,
    pub(crate) begun: Instant,
    pub(crate) windows: Windows,
    pub(crate) requests: AtomicU64,
    phase: AtomicU8,
    failures: Mutex<Messages>,
    wrong: Mutex<Messages>,
    put_off: Mutex<Messages>,
    hostile: Mutex<Answers>,
}

/// The first messages, and the total count.
#[derive(Clone, Debug, Default)]
pub(crate) struct Messages {
    pub(crate) count: u64,
    pub(crate) first: Vec<String>,
}

impl Messages {
    fn push(&mut self, message: String) {
        self.count += 1;
        if self.first.len() < KEPT {
            self.first.push(message);
        }
    }
}

/// The responses to hostile requests.
#[derive(Clone, Debug, Default)]
pub(crate) struct Answers {
    pub(crate) requests: u64,
    /// The counts by kind and status; status 0 means no response.
    pub(crate) statuses: BTreeMap<(&'static str, u16), u64>,
    /// Responses with a status that blames the daemon.
    pub(crate) blamed: Messages,
}

impl Arena {
    pub(crate) fn new(address: SocketAddr) -> Self {
        Self {
            address,
            begun: Instant::now(),
            windows: Windows::default(),
            requests: AtomicU64::new(0),
            phase: AtomicU8::new(0),
            failures: Mutex::default(),
            wrong: Mutex::default(),
            put_off: Mutex::default(),
            hostile: Mutex::default(),
        }
    }

    pub(crate) fn phase(&self) -> Phase {
        match self.phase.load(Ordering::SeqCst) {
            0 => Phase::Calm,
            1 => Phase::Hostile,
            _ => Phase::Over,
        }
    }

    pub(crate) fn enter(&self, phase: Phase) {
        let number = match phase {
            Phase::Calm => 0,
            Phase::Hostile => 1,
            Phase::Over => 2,
        };
        self.phase.store(number, Ordering::SeqCst);
    }

    /// Records a request of the bystander that got a wrong response.
    pub(crate) fn fail(&self, message: String) {
        lock(&self.failures).push(message);
    }

    /// Records wrong data of the bystander.
    pub(crate) fn wrong(&self, message: String) {
        lock(&self.wrong).push(message);
    }

    /// Records a request of the bystander that the daemon asked to retry.
    pub(crate) fn put_off(&self, message: String) {
        lock(&self.put_off).push(message);
    }

    pub(crate) fn all_put_off(&self) -> Messages {
        lock(&self.put_off).clone()
    }

    pub(crate) fn failures(&self) -> Messages {
        lock(&self.failures).clone()
    }

    pub(crate) fn wrongs(&self) -> Messages {
        lock(&self.wrong).clone()
    }

    /// Records the response to a hostile request; status 0 means no response.
    pub(crate) fn answered(&self, kind: &'static str, status: u16, text: &str) {
        let mut answers = lock(&self.hostile);
        answers.requests += 1;
        *answers.statuses.entry((kind, status)).or_default() += 1;
        if status >= 500 && status != 503 {
            answers.blamed.push(format!("{kind}: {status}: {text}"));
        }
    }

    pub(crate) fn answers(&self) -> Answers {
        lock(&self.hostile).clone()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_counted_and_some_are_kept() {
        let arena = Arena::new(SocketAddr::from(([127, 0, 0, 1], 1)));
        (0..100).for_each(|number| arena.fail(number.to_string()));
        assert_eq!((arena.failures().count, arena.failures().first.len()), (100, KEPT));
        assert_eq!(arena.wrongs().count, 0);
    }

    #[test]
    fn refusals_blame_nobody() {
        let arena = Arena::new(SocketAddr::from(([127, 0, 0, 1], 1)));
        for status in [0, 200, 400, 503, 500] {
            arena.answered("list", status, "why");
        }
        let answers = arena.answers();
        assert_eq!((answers.requests, answers.blamed.first), (5, vec!["list: 500: why".to_owned()]));
    }
}

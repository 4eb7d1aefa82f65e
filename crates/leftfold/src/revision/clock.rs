//! Revisions from the wall clock.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::env::{Env, System};
use crate::error::Invalid;
use crate::event::Revision;

/// The number of revisions in a millisecond.
const PER_MILLISECOND: u64 = 1_000_000;

/// Revisions that only grow, from the wall clock: milliseconds × 10⁶ and a sequence.
///
/// They never go back, even if the wall clock does, and no revision repeats. That holds for any
/// number of threads, and for several nodes if each has its own number. If more than a million are
/// drawn in a millisecond, the next ones run ahead of the clock. After a restart with a clock that
/// was set back, begin [after](Self::after) the last known revision.
///
/// ```
/// use leftfold::revision::Clock;
///
/// let clock = Clock::new();
/// let (one, other) = (clock.next(), clock.next());
/// assert!(one < other);
/// ```
#[derive(Clone)]
pub struct Clock {
    env: Arc<dyn Env>,
    last: Arc<AtomicU64>,
    node: u64,
    nodes: u64,
}

impl Default for Clock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock {
    /// Creates a clock for one producer. Cloning returns another handle to it.
    pub fn new() -> Self {
        Self { env: Arc::new(System), last: Arc::default(), node: 0, nodes: 1 }
    }

    /// Creates the clock of one node of several, numbered from 0. No two nodes draw the same
    /// revision.
    pub fn of_node(node: u16, nodes: u16) -> Result<Self, Invalid> {
        if node >= nodes {
            let expected = format!("a number below {nodes}, the number of nodes");
            return Err(Invalid::new("node", &node.to_string(), expected));
        }
        Ok(Self { node: node.into(), nodes: nodes.into(), ..Self::new() })
    }

    /// Sets the source of time.
    #[must_use]
    pub fn env(self, env: impl Env) -> Self {
        Self { env: Arc::new(env), ..self }
    }

    /// Restricts the clock to revisions above this one.
    #[must_use]
    pub fn after(self, last: Revision) -> Self {
        self.last.fetch_max(last.0, Ordering::Relaxed);
        self
    }

    /// Returns the next revision, above all that were drawn before.
    pub fn next(&self) -> Revision {
        let millis = u64::try_from(self.env.now().as_millisecond()).unwrap_or(0);
        let now = millis.saturating_mul(PER_MILLISECOND);
        let next = |last: u64| self.at_least(now.max(last.saturating_add(1)));
        let mut last = self.last.load(Ordering::Relaxed);
        loop {
            let wanted = next(last);
            match self.last.compare_exchange_weak(last, wanted, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return Revision(wanted),
                Err(other) => last = other,
            }
        }
    }

    /// Returns the lowest revision of this node that is not below a number.
    fn at_least(&self, number: u64) -> u64 {
        let ahead = (self.node + self.nodes - number % self.nodes) % self.nodes;
        number.saturating_add(ahead)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::sync::Mutex;
    use std::thread;

    use jiff::Timestamp;

    use super::*;

    /// A wall clock set by the test.
    #[derive(Clone)]
    struct Hands(Arc<Mutex<i64>>);

    impl Env for Hands {
        fn now(&self) -> Timestamp {
            Timestamp::from_millisecond(*self.0.lock().unwrap()).unwrap()
        }

        fn random(&self) -> u64 {
            0
        }
    }

    fn hands(millis: i64) -> Hands {
        Hands(Arc::new(Mutex::new(millis)))
    }

    #[test]
    fn a_revision_tells_its_time() {
        let clock = Clock::new().env(hands(1_700_000_000_123));
        assert_eq!(clock.next(), Revision(1_700_000_000_123_000_000));
        assert_eq!(clock.next(), Revision(1_700_000_000_123_000_001));
    }

    #[test]
    fn it_never_goes_back() {
        let hands = hands(5_000);
        let clock = Clock::new().env(hands.clone()).after(Revision(9_000_000_000));
        assert_eq!(clock.next(), Revision(9_000_000_001));
        *hands.0.lock().unwrap() = 20_000;
        assert_eq!(clock.next(), Revision(20_000_000_000));
        *hands.0.lock().unwrap() = -7;
        assert_eq!(clock.next(), Revision(20_000_000_001));
    }

    #[test]
    fn more_than_a_million_in_a_millisecond_are_all_different() {
        let clock = Clock::new().env(hands(1));
        let draw = || (0..300_000).map(|_| clock.next().0).collect::<Vec<_>>();
        let mut all = HashSet::new();
        thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(draw)).collect();
            for thread in threads {
                let drawn = thread.join().unwrap();
                assert!(drawn.is_sorted_by(|a, b| a < b), "they grow");
                all.extend(drawn);
            }
        });
        assert_eq!(all.len(), 1_200_000);
        assert_eq!(*all.iter().max().unwrap(), PER_MILLISECOND + 1_200_000 - 1);
    }

    #[test]
    fn nodes_never_draw_the_same() {
        let hands = hands(1_700_000_000_000);
        let mut all = HashSet::new();
        for node in 0..7 {
            let clock = Clock::of_node(node, 7).unwrap().env(hands.clone());
            for _ in 0..1_000 {
                assert!(all.insert(clock.next()), "node {node}");
            }
        }
        assert!(Clock::of_node(7, 7).is_err() && Clock::of_node(0, 0).is_err());
    }
}

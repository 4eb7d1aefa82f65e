//! The memory budget of a process: one number of bytes that caches, event streams, requests and
//! folding share.
//!
//! The budget counts bytes that its users announce; it allocates nothing. Each [`Use`] is refused
//! at its own share of the limit, so that the less important uses yield first: caches at 50 %,
//! event streams at 65 %, requests at 85 %. Folding is counted and never refused, so the last 15 %
//! are its reserve.
//!
//! # Example: Refuse a request when memory is short
//!
//! ```
//! use leftfold::budget::{Budget, Use};
//!
//! let budget = Budget::new(1_000);
//! let request = budget.try_take(Use::Request, 800)?;
//! assert!(budget.try_take(Use::Request, 100).is_err(), "requests may use 85 % in total");
//! let _batch = budget.take(Use::Fold, 500);
//! drop(request);
//! assert_eq!(budget.used(), 500);
//! # Ok::<_, leftfold::budget::Exhausted>(())
//! ```

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// A purpose that memory is used for, least important first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Use {
    /// Data kept to save a read. Refused beyond 50 % of the limit.
    Cache,
    /// Messages for clients that follow an event stream. Refused beyond 65 % of the limit.
    Stream,
    /// Bodies of requests and responses. Refused beyond 85 % of the limit.
    Request,
    /// Batches and the processes that fold them. Never refused.
    Fold,
}

impl Use {
    /// All uses, least important first.
    pub const ALL: [Self; 4] = [Self::Cache, Self::Stream, Self::Request, Self::Fold];

    /// Returns the name in metrics and messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cache => "cache",
            Self::Stream => "stream",
            Self::Request => "request",
            Self::Fold => "fold",
        }
    }

    /// Returns the part of a limit, in percent, that may be in use after this use has taken its
    /// bytes.
    fn percent(self) -> Option<usize> {
        match self {
            Self::Cache => Some(50),
            Self::Stream => Some(65),
            Self::Request => Some(85),
            Self::Fold => None,
        }
    }
}

/// A memory budget. Cloning returns another handle to the same budget.
#[derive(Clone)]
pub struct Budget(Arc<Counters>);

struct Counters {
    limit: usize,
    total: AtomicUsize,
    /// By use, in the order of [`Use::ALL`]. The sum is the total, except while a share changes.
    by_use: [AtomicUsize; 4],
    refused: [AtomicU64; 4],
}

impl Budget {
    /// Creates a budget of this many bytes.
    pub fn new(bytes: usize) -> Self {
        let (total, by_use) = (AtomicUsize::new(0), [const { AtomicUsize::new(0) }; 4]);
        let refused = [const { AtomicU64::new(0) }; 4];
        Self(Arc::new(Counters { limit: bytes, total, by_use, refused }))
    }

    /// Creates a budget that counts and never refuses.
    pub fn unlimited() -> Self {
        Self::new(usize::MAX)
    }

    /// Takes bytes for a use, unless more than that use's part of the limit would be in use.
    pub fn try_take(&self, r#use: Use, bytes: usize) -> Result<Share, Exhausted> {
        self.grow(r#use, bytes)?;
        Ok(Share { budget: self.clone(), r#use, bytes })
    }

    /// Takes bytes unconditionally: they are counted, and leave less for others.
    pub fn take(&self, r#use: Use, bytes: usize) -> Share {
        self.0.total.fetch_add(bytes, Ordering::Relaxed);
        self.counter(r#use).fetch_add(bytes, Ordering::Relaxed);
        Share { budget: self.clone(), r#use, bytes }
    }

    /// Returns the bytes in use.
    pub fn used(&self) -> usize {
        self.0.total.load(Ordering::Relaxed)
    }

    /// Returns the bytes in use for one purpose.
    pub fn used_by(&self, r#use: Use) -> usize {
        self.counter(r#use).load(Ordering::Relaxed)
    }

    /// Returns how often a use was refused.
    pub fn refused(&self, r#use: Use) -> u64 {
        self.0.refused[r#use as usize].load(Ordering::Relaxed)
    }

    /// Returns the limit in bytes; `usize::MAX` if the budget is unlimited.
    pub fn limit(&self) -> usize {
        self.0.limit
    }

    /// Returns the number of bytes a use may still take now. A cache whose allowance is 0 should
    /// shrink.
    pub fn allowance(&self, r#use: Use) -> usize {
        self.ceiling(r#use).saturating_sub(self.used())
    }

    /// Returns the total number of bytes that may be in use after this use has taken some.
    fn ceiling(&self, r#use: Use) -> usize {
        let limit = self.0.limit;
        match r#use.percent() {
            Some(percent) if limit < usize::MAX => limit / 100 * percent + limit % 100 * percent / 100,
            _ => usize::MAX,
        }
    }

    fn counter(&self, r#use: Use) -> &AtomicUsize {
        &self.0.by_use[r#use as usize]
    }

    fn grow(&self, r#use: Use, bytes: usize) -> Result<(), Exhausted> {
        let ceiling = self.ceiling(r#use);
        let grown = |used: usize| used.checked_add(bytes).filter(|used| bytes == 0 || *used <= ceiling);
        match self.0.total.fetch_update(Ordering::Relaxed, Ordering::Relaxed, grown) {
            Ok(_) => {
                self.counter(r#use).fetch_add(bytes, Ordering::Relaxed);
                Ok(())
            }
            Err(used) => {
                self.0.refused[r#use as usize].fetch_add(1, Ordering::Relaxed);
                Err(Exhausted { r#use, bytes, used, limit: self.0.limit })
            }
        }
    }

    fn shrink(&self, r#use: Use, bytes: usize) {
        self.counter(r#use).fetch_sub(bytes, Ordering::Relaxed);
        self.0.total.fetch_sub(bytes, Ordering::Relaxed);
    }
}

impl Default for Budget {
    fn default() -> Self {
        Self::unlimited()
    }
}

impl fmt::Debug for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Budget");
        shown.field("limit", &self.limit()).field("used", &self.used());
        for r#use in Use::ALL {
            shown.field(r#use.name(), &self.used_by(r#use));
        }
        shown.finish()
    }
}

/// Bytes taken from a [`Budget`]. Dropping a share gives them back.
#[derive(Debug)]
#[must_use = "dropping a share gives its bytes back"]
pub struct Share {
    budget: Budget,
    r#use: Use,
    bytes: usize,
}

impl Share {
    /// Returns the size of the share.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Changes the size of the share. A smaller size is always accepted; a refused larger one
    /// changes nothing.
    pub fn resize(&mut self, bytes: usize) -> Result<(), Exhausted> {
        if bytes > self.bytes {
            self.budget.grow(self.r#use, bytes - self.bytes)?;
        } else {
            self.budget.shrink(self.r#use, self.bytes - bytes);
        }
        self.bytes = bytes;
        Ok(())
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.budget.shrink(self.r#use, self.bytes);
    }
}

/// The error of a request that exceeds the budget. Nothing was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exhausted {
    r#use: Use,
    bytes: usize,
    used: usize,
    limit: usize,
}

impl fmt::Display for Exhausted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { r#use, bytes, used, limit } = self;
        let name = r#use.name();
        write!(
            f,
            "the memory budget has no room for {bytes} more bytes ({name}): {used} of {limit} bytes are in use; try \
             again later or raise the budget"
        )
    }
}

impl std::error::Error for Exhausted {}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn caches_yield_first_then_streams_then_requests_and_folding_never() {
        let budget = Budget::new(1_000);
        let folded = budget.take(Use::Fold, 500);
        assert_eq!(Use::ALL.map(|r#use| budget.allowance(r#use)), [0, 150, 350, usize::MAX - 500]);
        assert!(budget.try_take(Use::Cache, 1).is_err());
        let stream = budget.try_take(Use::Stream, 150).unwrap();
        assert!(budget.try_take(Use::Stream, 1).is_err());
        let request = budget.try_take(Use::Request, 200).unwrap();
        assert!(budget.try_take(Use::Request, 1).is_err());
        let more = budget.try_take(Use::Fold, 5_000).unwrap();
        assert_eq!(Use::ALL.map(|r#use| budget.used_by(r#use)), [0, 150, 200, 5_500]);
        drop((folded, stream, request, more));
        assert_eq!((budget.used(), budget.allowance(Use::Cache)), (0, 500));
    }

    #[test]
    fn a_share_grows_only_as_far_as_its_use_may() {
        let budget = Budget::new(100);
        let mut share = budget.try_take(Use::Request, 10).unwrap();
        share.resize(85).unwrap();
        let refused = share.resize(86).unwrap_err().to_string();
        assert!(refused.contains("1 more bytes (request): 85 of 100 bytes"), "{refused}");
        assert_eq!((share.bytes(), budget.used()), (85, 85));
        assert_eq!(Use::ALL.map(|r#use| budget.refused(r#use)), [0, 0, 1, 0]);
        share.resize(0).unwrap();
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn an_unlimited_budget_counts_and_refuses_nothing() {
        let budget = Budget::default();
        let _most = budget.try_take(Use::Cache, usize::MAX - 10).unwrap();
        assert_eq!((budget.limit(), budget.used()), (usize::MAX, usize::MAX - 10));
        assert_eq!(budget.allowance(Use::Cache), 10);
    }

    #[test]
    fn a_small_limit_is_divided_exactly() {
        let allowances = |limit| Use::ALL.map(|r#use| Budget::new(limit).allowance(r#use));
        assert_eq!(allowances(0), [0, 0, 0, usize::MAX]);
        assert_eq!(allowances(10), [5, 6, 8, usize::MAX]);
        assert_eq!(allowances(250), [125, 162, 212, usize::MAX]);
    }

    fn any_use() -> impl Strategy<Value = Use> {
        (0..Use::ALL.len()).prop_map(|number| Use::ALL[number])
    }

    proptest! {
        #[test]
        fn what_is_in_use_is_the_sum_of_the_shares(
            steps in prop::collection::vec((0..4_u8, any_use(), 0..60_usize, 0..8_usize), 0..100),
        ) {
            let budget = Budget::new(200);
            let mut shares: Vec<Share> = Vec::new();
            for (step, r#use, bytes, which) in steps {
                let (before, allowed) = (budget.used(), budget.allowance(r#use));
                match step {
                    0 => match budget.try_take(r#use, bytes) {
                        Ok(share) => {
                            prop_assert!(bytes <= allowed);
                            shares.push(share);
                        }
                        Err(_) => prop_assert!(bytes > allowed && budget.used() == before),
                    },
                    1 => shares.push(budget.take(r#use, bytes)),
                    2 if which < shares.len() => drop(shares.swap_remove(which)),
                    _ => if let Some(share) = shares.get_mut(which) {
                        let was = share.bytes();
                        let allowed = budget.allowance(share.r#use);
                        let is_done = share.resize(bytes).is_ok();
                        prop_assert_eq!(is_done, bytes <= was || bytes - was <= allowed);
                        prop_assert_eq!(share.bytes(), if is_done { bytes } else { was });
                    },
                }
                for r#use in Use::ALL {
                    let shares = shares.iter().filter(|share| share.r#use == r#use);
                    prop_assert_eq!(budget.used_by(r#use), shares.map(Share::bytes).sum::<usize>());
                }
                prop_assert_eq!(budget.used(), shares.iter().map(Share::bytes).sum::<usize>());
            }
            shares.clear();
            prop_assert_eq!(budget.used(), 0);
        }
    }

    #[test]
    fn takers_on_several_threads_never_pass_the_limit_together() {
        let budget = Budget::new(1_000);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for bytes in (1..=400).cycle().take(20_000) {
                        let share = budget.try_take(Use::Request, bytes);
                        assert!(budget.used() <= 850);
                        drop(share);
                    }
                });
            }
        });
        assert_eq!((budget.used(), budget.used_by(Use::Request)), (0, 0));
    }
}

//! The lease on a projection.

use std::time::Duration;

/// The result of claiming the lease on a projection. A lease avoids double work; correctness does
/// not depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// The work is ours until the lease ends.
    Ours,
    /// Another worker holds the lease.
    Theirs {
        /// The time until the lease ends, unless the other worker renews it.
        ends_in: Duration,
    },
}

impl Claim {
    /// Decides a claim. It succeeds if nobody holds the lease, if the lease has ended, or if
    /// `owner` already holds it. `lease` is the last owner and the time left.
    pub fn judge(lease: Option<(&str, Duration)>, owner: &str) -> Self {
        match lease {
            Some((other, ends_in)) if other != owner && !ends_in.is_zero() => Self::Theirs { ends_in },
            _ => Self::Ours,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_lease_of_others_that_has_not_ended_keeps_one_away() {
        let left = Duration::from_secs(3);
        assert_eq!(Claim::judge(Some(("ann", left)), "bob"), Claim::Theirs { ends_in: left });
        for free in [None, Some(("ann", Duration::ZERO)), Some(("bob", left)), Some(("bob", Duration::ZERO))]
        {
            assert_eq!(Claim::judge(free, "bob"), Claim::Ours, "{free:?}");
        }
    }
}

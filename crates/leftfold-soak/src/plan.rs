//! The plan of a run: the duration of its phases, and the times of the kills.

use std::time::Duration;

use crate::dice::Dice;

/// The phases of a run, and the kills of the hostile one.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) calm: Duration,
    pub(crate) hostile: Duration,
    /// The kills in order, by their time since the start of the hostile phase.
    pub(crate) kills: Vec<Kill>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kill {
    pub(crate) at: Duration,
    /// `true` for SIGTERM, `false` for SIGKILL.
    pub(crate) is_gentle: bool,
}

/// The shortest and longest life of a daemon.
const LIVES: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(20));
const QUICK_LIVES: (Duration, Duration) = (Duration::from_secs(6), Duration::from_secs(9));

impl Plan {
    /// Plans a run of the given duration. Each third of the hostile phase ends with a longer life,
    /// so that memory growth can show.
    pub(crate) fn new(time: Duration, is_quick: bool, dice: &mut Dice) -> Self {
        let calm = (time / 8).clamp(Duration::from_secs(4), Duration::from_mins(1));
        // Leave some seconds for the start and the final comparison.
        let hostile = time.saturating_sub(calm + Duration::from_secs(3)).max(Duration::from_secs(10));
        let (parts, (shortest, longest)) = if is_quick { (1, QUICK_LIVES) } else { (3, LIVES) };
        let part = hostile / parts;
        let mut kills = Vec::new();
        for number in 0..parts {
            let last = part * number + if is_quick { part } else { part * 3 / 4 };
            let mut at = part * number;
            loop {
                at += dice.between(shortest, longest);
                if at >= last {
                    break;
                }
                kills.push(Kill { at, is_gentle: dice.below(3) == 0 });
            }
        }
        Self { calm, hostile, kills }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_run_has_a_longer_life_at_the_end_of_each_third() {
        let plan = Plan::new(Duration::from_mins(15), false, &mut Dice::new(5));
        assert_eq!(plan.calm, Duration::from_mins(1));
        assert!(plan.kills.len() > 30 && plan.kills.iter().any(|kill| kill.is_gentle));
        assert!(plan.kills.is_sorted_by_key(|kill| kill.at));
        let third = plan.hostile / 3;
        for number in 1..=3 {
            let end = third * number;
            let late = plan.kills.iter().filter(|kill| kill.at + third / 4 >= end && kill.at < end);
            assert_eq!(late.count(), 0);
        }
    }

    #[test]
    fn a_short_run_has_kills_all_the_same() {
        for seed in 0..100 {
            let plan = Plan::new(Duration::from_secs(30), true, &mut Dice::new(seed));
            assert!((2..=3).contains(&plan.kills.len()), "{plan:?}");
            assert!(plan.calm + plan.hostile <= Duration::from_secs(28));
        }
    }
}

//! The conditions that a run must meet.

use std::time::Duration;

use super::Report;
use super::results::mib;
use crate::arena::Messages;
use crate::memory::{BASE, BUDGET};

/// The limit for the bystander's p99, as a multiple of the calm phase's.
const RATIO: u32 = 5;
/// The limit from a kill until ready, and for a response in a quick run.
pub(super) const SOON: Duration = Duration::from_secs(5);

/// A condition that must hold.
#[derive(Debug)]
pub(crate) struct Check {
    pub(crate) title: &'static str,
    /// The reason it does not hold.
    pub(crate) broken: Option<String>,
}

fn check(title: &'static str, holds: bool, why: impl FnOnce() -> String) -> Check {
    Check { title, broken: (!holds).then(why) }
}

impl Report {
    /// Returns all checks.
    pub(crate) fn checks(&self) -> Vec<Check> {
        let tally = &self.bystander;
        let mut checks = vec![
            check("the bystander's data is right", self.wrong.count == 0, || shown(&self.wrong)),
            check("the bystander's requests are answered", self.failures.count == 0, || {
                shown(&self.failures)
            }),
            check("the bystander compared documents", tally.compared > 0, || "it compared none".to_owned()),
            check("the daemon ends only on a signal", self.operator.ends.is_empty(), || {
                self.operator.ends.join("; ")
            }),
            check("nothing panics", self.panics.count == 0, || shown(&self.panics)),
            check("valid files are loaded, broken ones rejected", self.operator.misread.is_empty(), || {
                self.operator.misread.join("; ")
            }),
            check("hostile scripts are parked", self.parked > 0, || "no document is parked".to_owned()),
            within("the daemon's memory is within the budget", self.peaks.daemon),
            within("the memory with its workers is within the budget", self.peaks.total),
        ];
        if self.is_quick {
            let slowest = tally.hostile.max();
            checks.push(check("each request is served within 5 s", slowest < SOON, || {
                format!("the slowest took {slowest:.1?}, retries included")
            }));
            return checks;
        }
        let (calm, hostile) = (tally.calm.percentile(99), tally.hostile.percentile(99));
        checks.push(check("the p99 is below 5 times the calm one", hostile < calm * RATIO, || {
            format!("it is {hostile:.1?}, and was {calm:.1?}")
        }));
        let (ready, folded) = self.slowest_restart();
        checks.push(check("restarts take at most 5 s", ready <= SOON && folded <= SOON, || {
            format!("the slowest took {ready:.1?} until ready, {folded:.1?} until it folded")
        }));
        let (second, last) = self.peaks.thirds;
        checks.push(check("memory stops growing", self.peaks.stop_growing(), || {
            format!("the peak was {} MiB in the second third, {} MiB in the last", mib(second), mib(last))
        }));
        checks
    }
}

fn within(title: &'static str, peak: u64) -> Check {
    check(title, peak <= BUDGET + BASE, || {
        format!(
            "the peak was {} MiB, allowed are {} and {} for the program",
            mib(peak),
            mib(BUDGET),
            mib(BASE)
        )
    })
}

fn shown(messages: &Messages) -> String {
    format!("{} times, such as: {}", messages.count, messages.first.join("\n  "))
}

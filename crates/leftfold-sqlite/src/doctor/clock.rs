//! The store's time, compared with the machine's clock.

use std::time::Duration;

use leftfold::inspect::doctor::{Area, Finding, span};
use leftfold::store::clock::{ClockStep, Reading};

/// Judges the store's time: warns if the machine's clock was set back, or was recently set at all.
pub(super) fn judge(now: Reading, step: Option<ClockStep>) -> Finding {
    const SUBJECT: &str = "the store's time";
    const AHEAD: Duration = Duration::from_secs(1);
    const LATELY: i64 = 7 * 24 * 3_600 * 1_000_000;
    let ahead = now.ahead();
    if ahead > AHEAD {
        let found = format!(
            "{} ahead of this machine's clock, which was set back; leases and waits continue unchanged",
            span(ahead)
        );
        let advice = "see that the clock is right; until it has caught up, at a tenth of the time that passes, what is due at a \
                      time of day comes early by as much";
        return Finding::warning(Area::Clock, SUBJECT, found, advice);
    }
    match step.filter(|step| now.time.saturating_sub(step.at) < LATELY) {
        Some(ClockStep { by, .. }) => {
            let way = if by > 0 { "forward" } else { "back" };
            let found = format!(
                "this machine's clock was set {way} by {}",
                span(Duration::from_micros(by.unsigned_abs()))
            );
            let advice =
                "check the clock and its synchronization; if the machine slept, there is nothing to do";
            Finding::notice(Area::Clock, SUBJECT, found, advice)
        }
        None => Finding::fine(Area::Clock, SUBJECT, "equal to this machine's clock"),
    }
}

//! Quarantine: when a runner runs suspects, and nothing else.
//!
//! A suspect may kill its process, and every run beside it is lost too. So a runner first lets all
//! runs end, then runs suspects of one level, and then the other tasks again for at least as long.
//! This module decides; [`runner`](super::runner) acts.

use std::time::Duration;

use tokio::time::Instant;

use crate::mutant;
use crate::react::task::Suspicion;

/// The time for which suspects are claimed. Then the other tasks have their turn.
const TURN: Duration = Duration::from_secs(1);
/// The time after which a running suspect no longer keeps the other tasks waiting.
const MAX_QUARANTINE: Duration = Duration::from_secs(30);
/// The time that suspects wait for other runs to end, initially. Each time it is not enough, it
/// doubles.
const PATIENCE: Duration = Duration::from_secs(2);
/// The time after which a worker that found no room for suspects looks again.
const NO_ROOM: Duration = Duration::from_secs(1);

/// The next step of a runner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Claim tasks of this suspicion, at most this many.
    Claim(Suspicion, usize),
    /// Claim nothing before this time, or before a run has ended.
    WaitUntil(Instant),
    /// Suspects have run for long. Let other tasks run beside them.
    Parole,
    /// Suspects have had their turn, or could not have it.
    Leave,
}

/// Decides which tasks a runner claims.
#[derive(Debug)]
pub(super) struct Quarantine {
    phase: Phase,
    patience: Duration,
    /// The time until which the other tasks have their turn.
    rest_until: Option<Instant>,
    /// The time before which this worker has no room for suspects, because other workers run some.
    room_at: Option<Instant>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Tasks without suspicion run.
    Open,
    /// Suspects wait for other runs to end.
    Draining { level: Suspicion, since: Instant },
    /// Suspects run. The other tasks wait since `since`.
    Closed { level: Suspicion, since: Instant, closed: Instant, is_over: bool },
}

impl Default for Quarantine {
    fn default() -> Self {
        Self { phase: Phase::Open, patience: PATIENCE, rest_until: None, room_at: None }
    }
}

impl Quarantine {
    /// Returns how long suspects must wait before they can have a turn. The other tasks have no
    /// turn while they have nothing to do.
    pub(super) fn wait(&self, now: Instant, is_idle: bool) -> Duration {
        let until = |at: Option<Instant>| at.map_or(Duration::ZERO, |at| at.saturating_duration_since(now));
        let rest = if is_idle { Duration::ZERO } else { until(self.rest_until) };
        rest.max(until(self.room_at))
    }

    /// Begins a turn of suspects of this level.
    pub(super) fn begin(&mut self, level: Suspicion, now: Instant) {
        self.phase = Phase::Draining { level, since: now };
        mutant!(SuspectsAmongOthers => self.close(level, now, now));
    }

    /// Lets suspects run, and nothing else.
    fn close(&mut self, level: Suspicion, since: Instant, now: Instant) {
        self.patience = PATIENCE;
        self.phase = Phase::Closed { level, since, closed: now, is_over: false };
    }

    /// Records that no further worker may run suspects now.
    pub(super) fn finds_no_room(&mut self, now: Instant) {
        self.room_at = Some(now + NO_ROOM);
    }

    /// Returns the next step, if `running` tasks run in this process.
    pub(super) fn step(&mut self, running: usize, now: Instant) -> Step {
        if let Phase::Draining { level, since } = self.phase {
            if running == 0 {
                self.close(level, since, now);
            } else if now < since + self.patience {
                return Step::WaitUntil(since + self.patience);
            } else {
                self.patience *= 2;
                self.leave(since, now);
                return Step::Leave;
            }
        }
        let Phase::Closed { level, since, closed, is_over } = self.phase else {
            return Step::Claim(Suspicion::None, usize::MAX);
        };
        let group = level.group();
        let is_over = is_over || now >= closed + TURN;
        if !is_over && running < group {
            Step::Claim(level, group - running)
        } else if running == 0 {
            self.leave(since, now);
            Step::Leave
        } else if now < closed + MAX_QUARANTINE {
            Step::WaitUntil(closed + MAX_QUARANTINE)
        } else {
            self.leave(since, now);
            Step::Parole
        }
    }

    /// Ends the turn, because no more tasks of this level can be claimed.
    pub(super) fn end_turn(&mut self) {
        if let Phase::Closed { is_over, .. } = &mut self.phase {
            *is_over = true;
        }
    }

    /// Gives the other tasks as much time as suspects have had.
    fn leave(&mut self, since: Instant, now: Instant) {
        self.phase = Phase::Open;
        self.rest_until = Some(now + now.saturating_duration_since(since));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn suspects_wait_for_what_runs_and_then_run_among_themselves() {
        let (mut quarantine, now) = (Quarantine::default(), Instant::now());
        assert_eq!(quarantine.step(9, now), Step::Claim(Suspicion::None, usize::MAX));
        quarantine.begin(Suspicion::Few, now);
        assert_eq!(quarantine.step(9, now), Step::WaitUntil(now + PATIENCE));
        assert_eq!(quarantine.step(1, now), Step::WaitUntil(now + PATIENCE));
        assert_eq!(quarantine.step(0, now), Step::Claim(Suspicion::Few, 8));
        assert_eq!(quarantine.step(5, now), Step::Claim(Suspicion::Few, 3));
        assert_eq!(quarantine.step(8, now), Step::WaitUntil(now + MAX_QUARANTINE));
        let over = now + TURN;
        assert_eq!(quarantine.step(5, over), Step::WaitUntil(now + MAX_QUARANTINE));
        assert_eq!(quarantine.step(0, over), Step::Leave);
        assert_eq!(quarantine.step(0, over), Step::Claim(Suspicion::None, usize::MAX));
    }

    #[test]
    fn the_others_have_half_of_the_time_unless_they_have_nothing_to_do() {
        let (mut quarantine, now) = (Quarantine::default(), Instant::now());
        quarantine.begin(Suspicion::Alone, now);
        assert_eq!(quarantine.step(0, now), Step::Claim(Suspicion::Alone, 1));
        let later = now + seconds(7);
        assert_eq!(quarantine.step(0, later), Step::Leave);
        assert_eq!(quarantine.wait(later, false), seconds(7));
        assert_eq!(quarantine.wait(later + seconds(7), false), Duration::ZERO);
        assert_eq!(quarantine.wait(later, true), Duration::ZERO);
    }

    #[test]
    fn long_runs_hold_up_suspects_for_a_while_and_suspects_hold_up_others_for_a_while() {
        let (mut quarantine, mut now) = (Quarantine::default(), Instant::now());
        for wait in [2, 4, 8] {
            quarantine.begin(Suspicion::Many, now);
            let end = now + seconds(wait);
            assert_eq!(quarantine.step(1, now), Step::WaitUntil(end));
            assert_eq!(quarantine.step(1, end), Step::Leave);
            assert_eq!(quarantine.wait(end, false), seconds(wait));
            now = end;
        }
        quarantine.begin(Suspicion::Many, now);
        assert_eq!(quarantine.step(0, now), Step::Claim(Suspicion::Many, 64));
        assert_eq!(quarantine.step(1, now + MAX_QUARANTINE), Step::Parole);
        assert_eq!(quarantine.step(1, now + MAX_QUARANTINE), Step::Claim(Suspicion::None, usize::MAX));
    }

    #[test]
    fn a_turn_ends_where_no_suspects_are_left() {
        let (mut quarantine, now) = (Quarantine::default(), Instant::now());
        quarantine.begin(Suspicion::Many, now);
        assert_eq!(quarantine.step(0, now), Step::Claim(Suspicion::Many, 64));
        quarantine.end_turn();
        assert!(matches!(quarantine.step(3, now), Step::WaitUntil(_)));
        assert_eq!(quarantine.step(0, now), Step::Leave);
    }

    #[test]
    fn a_worker_that_finds_no_room_waits_also_if_it_has_nothing_else_to_do() {
        let (mut quarantine, now) = (Quarantine::default(), Instant::now());
        quarantine.finds_no_room(now);
        assert_eq!(quarantine.wait(now, true), NO_ROOM);
        assert_eq!(quarantine.wait(now + NO_ROOM, true), Duration::ZERO);
    }
}

//! Arbitrary histories of a document, its task and a runner.

use std::time::Duration;

use proptest::prelude::*;

use super::{at, inside, observe, rules};
use crate::json::Json;
use crate::react::define::Retry;
use crate::react::task::{Loser, Observation, Rules, RunOutcome, State, Task};

#[derive(Clone, Debug)]
enum Act {
    /// Writes the document: a value and whether it matches, or nothing.
    Write(Option<(u32, bool)>),
    Look,
    Claim,
    /// The handler reads the document.
    Read,
    Finish(bool),
    /// The process of the claim dies.
    Die,
    Pass(u32),
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let act = prop_oneof![
        4 => prop::option::weighted(0.85, (0..3_u32, prop::bool::weighted(0.75))).prop_map(Act::Write),
        3 => Just(Act::Look),
        3 => Just(Act::Claim),
        3 => Just(Act::Read),
        3 => any::<bool>().prop_map(Act::Finish),
        1 => Just(Act::Die),
        2 => (1..80_u32).prop_map(Act::Pass),
    ];
    prop::collection::vec(act, 0..60)
}

/// A world of one document, one task, and one runner.
#[derive(Default)]
struct World {
    document: Option<(u32, bool)>,
    /// The number of writes of the document; below, the state that a handler last succeeded with.
    writes: u32,
    handled: Option<(u32, u32)>,
    task: Option<Task>,
    claim: Option<(u64, Option<Json>, Option<u32>)>,
    second: i64,
}

impl World {
    fn rules() -> Rules {
        Rules { retry: Retry::fixed(Duration::from_secs(1)).jitter(0.0), ..rules() }
    }

    fn seen(&self) -> Observation {
        match self.document {
            None => Observation::Absent,
            Some((_, false)) => Observation::Outside,
            Some((value, true)) => inside(value),
        }
    }

    fn look(&mut self) {
        self.second += 1;
        let seen = self.seen();
        if let Some(task) = observe(self.task.clone(), seen, &Self::rules(), self.second) {
            self.task = Some(task);
        }
    }

    fn act(&mut self, act: &Act) {
        self.second += 1;
        match act {
            Act::Write(document) => {
                self.document = *document;
                self.writes += 1;
            }
            Act::Look => self.look(),
            Act::Claim => {
                // A lost claim is reaped first. Every other loser is alive.
                let loser = if self.second % 2 == 0 { Loser::Dead } else { Loser::Alive };
                let moment = at(self.second);
                let reap = |task: Task| task.reap(loser, &Self::rules(), moment);
                self.task = self.task.clone().and_then(reap).or(self.task.take());
                let claimed = self.task.clone().and_then(|task| task.claim("w", &Self::rules(), moment));
                if let Some(claimed) = claimed {
                    self.claim = Some((claimed.epoch, Some(claimed.watched.clone()), None));
                    self.task = Some(claimed);
                }
            }
            Act::Read => {
                let (seen, writes) = (self.seen(), self.writes);
                let Some((_, watched, read)) = &mut self.claim else { return };
                match (&seen, watched) {
                    (Observation::Inside(now), Some(planned)) if now == planned => *read = Some(writes),
                    // The run ends as stale, whatever the handler does.
                    (_, planned) => *planned = None,
                }
            }
            Act::Finish(succeeds) => {
                let Some((epoch, planned, read)) = self.claim.take() else { return };
                let outcome = match (planned, read) {
                    (None, _) => RunOutcome::Stale,
                    (_, None) => RunOutcome::Deferred(at(self.second).now),
                    (Some(_), Some(_)) if !succeeds => RunOutcome::Failed("no".to_owned()),
                    (Some(planned), Some(read)) => {
                        self.handled = Some((planned.to().unwrap(), read));
                        RunOutcome::Done
                    }
                };
                let task = self
                    .task
                    .clone()
                    .and_then(|task| task.finish(epoch, outcome, &Self::rules(), at(self.second)));
                self.task = task.or(self.task.take());
            }
            Act::Die => self.claim = None,
            Act::Pass(seconds) => self.second += i64::from(*seconds),
        }
    }
}

proptest! {
    /// Promise 7: if a document no longer changes, and was observed after its last change, its last
    /// state is handled.
    #[test]
    fn the_last_state_is_handled(acts in acts()) {
        let mut world = World::default();
        for act in &acts {
            world.act(act);
        }
        world.claim = None;
        world.look();
        for _ in 0..20 {
            if world.task.as_ref().is_some_and(|task| task.check_at.is_some()) {
                world.look();
            }
            for act in [Act::Pass(100), Act::Claim, Act::Read, Act::Finish(true)] {
                world.act(&act);
            }
        }
        let task = world.task.as_ref();
        prop_assert!(task.is_none_or(|task| !matches!(task.state, State::Pending | State::Running | State::Changed)));
        if let Some((value, true)) = world.document {
            prop_assert_eq!(task.map(|task| task.state), Some(State::Done));
            prop_assert_eq!(world.handled.map(|(handled, _)| handled), Some(value));
        }
    }

    /// A task's numbers only grow, and an ended task stays ended until something happens.
    #[test]
    fn epochs_and_generations_only_grow(acts in acts()) {
        let mut world = World::default();
        let mut before = (0, 0);
        for act in &acts {
            world.act(act);
            if let Some(task) = &world.task {
                let now = (task.epoch, task.generation);
                prop_assert!(now.0 >= before.0 && now.1 >= before.1);
                prop_assert!(task.history.len() <= 3);
                let has_due = matches!(task.state, State::Pending | State::Running);
                prop_assert!(!has_due || task.due.is_some(), "{task:?}");
                before = now;
            }
        }
    }
}

//! The attacks on processes and servers, derived from the seed alone.

use leftfold_sim::dice::Dice;

use crate::role::Role;
use crate::store::{Kind, Place};

/// The number of kills on one store before the next round uses a new one. The log stays short, so
/// it can be checked all the time.
pub(crate) const KILLS_PER_ROUND: usize = 60;

/// An attack on a process or a server.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Attack {
    /// Kill a process at a place.
    KillAt(&'static Place),
    /// Kill a process at a random moment.
    Kill,
    /// Stop a process for longer than its lease until it is replaced, and kill it before it goes
    /// on.
    KillStopped,
    /// Stop a process for longer than its lease until it is replaced, then resume it. It stops with
    /// a batch ready to be written, or at a random moment.
    Zombie { with_batch: bool },
    /// Kill the primary server, at a random moment or when a process has just been released to
    /// commit.
    KillServer { at_commit: bool },
    /// Attack a planner or a runner of reactions.
    Reactor(ReactorAttack),
}

/// An attack on a planner or a runner of reactions.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ReactorAttack {
    /// Kill a process at a place.
    KillAt(&'static Place),
    /// Kill a process at a random moment.
    Kill,
    /// Stop a planner that has read changes and planned nothing until another has its leases, then
    /// resume it.
    StopPlanner,
    /// Stop a runner that is about to have an effect until others have run its tasks, then resume
    /// it.
    StopRunner,
    /// Write a document that kills the process that handles it, until it is given up. Others must
    /// still be handled.
    Poison,
    /// Write or change a document with a large watched value.
    Enlarge,
    /// Write a document that can't be read.
    Garble,
    /// Replace that document with a readable one.
    Mend,
    /// Kill a planner and a runner, and measure the time until others take over.
    TakeOver,
}

impl Attack {
    fn is_kill(self) -> bool {
        !matches!(self, Self::Zombie { .. } | Self::Reactor(_))
    }
}

/// Plans the attacks, round by round: kills at each place in turn, kills at random moments, and
/// zombies in between. With servers, one kill of four hits a server, and the next hits a process
/// while the server is away.
pub(crate) fn plan(store: Kind, kills: u64, dice: &Dice) -> Vec<Vec<Attack>> {
    let mut rounds = vec![Vec::new()];
    let mut places: Vec<&'static Place> = Vec::new();
    let (folds, reacts) = (only(store, |role| !role.reacts()), only(store, Role::reacts));
    let mut react_places = Vec::new();
    let mut in_round = 0;
    for kill in 0..kills {
        if in_round == KILLS_PER_ROUND {
            in_round = 0;
            rounds.push(Vec::new());
        }
        let attack = match kill % 12 {
            step @ (2 | 6 | 10) if store.has_servers() => Attack::KillServer { at_commit: step != 6 },
            3 | 7 => Attack::Kill,
            11 => Attack::KillStopped,
            _ => {
                if places.is_empty() {
                    places = shuffled(&folds, dice);
                }
                places.pop().map_or(Attack::Kill, Attack::KillAt)
            }
        };
        in_round += usize::from(attack.is_kill());
        if let Some(round) = rounds.last_mut() {
            round.push(attack);
            if kill % 4 == 1 {
                round.push(Attack::Zombie { with_batch: kill % 12 != 1 });
            }
            if kill % 2 == 0 {
                if react_places.is_empty() {
                    react_places = shuffled(&reacts, dice);
                }
                round.push(Attack::Reactor(match kill / 2 % 15 {
                    3 | 10 => ReactorAttack::Kill,
                    5 => ReactorAttack::StopPlanner,
                    8 => ReactorAttack::StopRunner,
                    _ => react_places.pop().map_or(ReactorAttack::Kill, ReactorAttack::KillAt),
                }));
            }
        }
    }
    for round in &mut rounds {
        let count = round.len();
        // Insert from the last to the first, so that no insertion shifts the place of another.
        round.push(Attack::Reactor(ReactorAttack::TakeOver));
        let attacks = [
            (count * 4 / 5, ReactorAttack::Mend),
            (count * 2 / 3, ReactorAttack::Enlarge),
            (count / 2, ReactorAttack::Poison),
        ];
        let early = [
            (count / 3, ReactorAttack::Garble),
            (count / 4, ReactorAttack::Enlarge),
            (count / 5, ReactorAttack::Enlarge),
        ];
        for (at, attack) in attacks.into_iter().chain(early) {
            let is_possible =
                store.has_unreadable() || !matches!(attack, ReactorAttack::Garble | ReactorAttack::Mend);
            if is_possible {
                round.insert(at, Attack::Reactor(attack));
            }
        }
    }
    rounds
}

fn only(store: Kind, fits: impl Fn(Role) -> bool) -> Vec<&'static Place> {
    store.places().iter().filter(|place| fits(place.role)).collect()
}

fn shuffled(places: &[&'static Place], dice: &Dice) -> Vec<&'static Place> {
    let mut drawn = places.to_vec();
    dice.shuffle(&mut drawn);
    drawn
}

#[cfg(test)]
mod tests {
    use std::mem::discriminant;

    use super::*;

    #[test]
    fn sixty_kills_visit_every_place_and_a_thousand_are_spread_over_rounds() {
        for store in [Kind::Sqlite, Kind::Mongodb] {
            let attacks = plan(store, 60, &Dice::new(1)).concat();
            for place in store.places() {
                let here = |attack: &&Attack| match attack {
                    Attack::KillAt(at) | Attack::Reactor(ReactorAttack::KillAt(at)) => at.name == place.name,
                    _ => false,
                };
                assert!(attacks.iter().filter(here).count() >= 1, "{}", place.name);
            }
            assert_eq!(attacks.iter().filter(|attack| attack.is_kill()).count(), 60);
            let zombies = attacks.iter().filter(|attack| matches!(attack, Attack::Zombie { .. })).count();
            assert!(zombies >= 12);
            let is_there = |wanted: ReactorAttack| {
                let is_same = |attack: &Attack| match attack {
                    Attack::Reactor(planned) => discriminant(planned) == discriminant(&wanted),
                    _ => false,
                };
                attacks.iter().any(is_same)
            };
            for wanted in [
                ReactorAttack::Kill,
                ReactorAttack::Poison,
                ReactorAttack::TakeOver,
                ReactorAttack::StopPlanner,
                ReactorAttack::StopRunner,
                ReactorAttack::Enlarge,
            ] {
                assert!(is_there(wanted), "{wanted:?}");
            }
            for wanted in [ReactorAttack::Garble, ReactorAttack::Mend] {
                assert_eq!(is_there(wanted), store == Kind::Mongodb, "{wanted:?}");
            }
            let servers = attacks.iter().filter(|attack| matches!(attack, Attack::KillServer { .. })).count();
            assert_eq!(servers, if store.has_servers() { 15 } else { 0 });

            let rounds = plan(store, 1_000, &Dice::new(1));
            assert_eq!(rounds.len(), 17);
            assert_eq!(rounds.concat().iter().filter(|attack| attack.is_kill()).count(), 1_000);
        }
    }
}

//! Generations: a collection is rebuilt beside the one that readers see, and then replaces it at
//! once.

use serde::{Deserialize, Serialize};

/// One build of a collection from its first event, with its own records and its own checkpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Generation {
    /// The number of the generation. Numbers are never reused; the first generation has 0.
    pub number: u32,
    /// The [fingerprint](crate::Projection::fingerprint) of the code that built it, if known.
    pub version: Option<String>,
}

/// A switch under way: another generation is about to become live. The worker that folds completes
/// it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Switching {
    /// The generation that becomes live.
    pub to: u32,
    /// The number under which the checkpoint of the live generation is frozen. It is unique to this
    /// switch.
    pub ticket: u64,
}

/// The generations of a collection, changed only by compare-and-swap. Each method that makes a
/// change returns the next value to store, or `None` if there is nothing to change.
///
/// ```
/// use leftfold::documents::Generations;
///
/// let first = Generations::default().recorded("1").unwrap();
/// let building = first.building("2").unwrap();
/// let number = building.building.as_ref().unwrap().number;
/// let switched = building.switching_to(number).unwrap().switched().unwrap();
/// assert_eq!((switched.live.number, switched.kept.as_ref().unwrap().number), (1, 0));
/// assert!(switched.is_outdated("1"), "code of the last version does not fold what newer code has made");
/// let undone = switched.switching_to(0).unwrap().switched().unwrap();
/// assert_eq!((undone.live.number, undone.kept.unwrap().number), (0, 1));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Generations {
    /// The revision, incremented by each change.
    pub revision: u64,
    /// The generation that readers see.
    pub live: Generation,
    /// The generation that is being built beside it.
    pub building: Option<Generation>,
    /// The generation that was live before, kept for an undo.
    pub kept: Option<Generation>,
    /// The switch that is under way.
    pub switching: Option<Switching>,
    /// The number of generations created after the first.
    pub made: u32,
    /// Generations to delete.
    pub dropping: Vec<u32>,
    /// Versions of code whose documents a rebuild has replaced. A process that still runs such code
    /// stands by.
    pub replaced: Vec<String>,
}

impl Generations {
    /// The number of replaced versions to remember.
    const REPLACED: usize = 32;

    /// Records the version of the code that built the live generation, if it is not known yet.
    #[must_use]
    pub fn recorded(&self, version: &str) -> Option<Self> {
        if self.live.version.is_some() {
            return None;
        }
        let mut next = self.next();
        next.live.version = Some(version.to_owned());
        Some(next)
    }

    /// Begins a new build by code of this version. An unfinished build by another version is
    /// abandoned.
    #[must_use]
    pub fn building(&self, version: &str) -> Option<Self> {
        let same = |building: &Generation| building.version.as_deref() == Some(version);
        if self.switching.is_some() || self.building.as_ref().is_some_and(same) {
            return None;
        }
        let mut next = self.next();
        next.dropping.extend(next.building.take().map(|given_up| given_up.number));
        next.made += 1;
        next.building = Some(Generation { number: next.made, version: Some(version.to_owned()) });
        Some(next)
    }

    /// Begins the switch to the generation being built or to the kept one.
    #[must_use]
    pub fn switching_to(&self, number: u32) -> Option<Self> {
        let is_there = [&self.building, &self.kept].into_iter().flatten().any(|one| one.number == number);
        if self.switching.is_some() || !is_there {
            return None;
        }
        let mut next = self.next();
        next.switching = Some(Switching { to: number, ticket: next.revision });
        Some(next)
    }

    /// Completes the switch that is under way.
    #[must_use]
    pub fn switched(&self) -> Option<Self> {
        let to = self.switching.as_ref()?.to;
        let mut next = self.next();
        next.switching = None;
        let before = if next.building.as_ref().is_some_and(|building| building.number == to) {
            let live = next.building.take()?;
            let before = std::mem::replace(&mut next.live, live);
            next.dropping.extend(next.kept.take().map(|kept| kept.number));
            next.replaced.extend(before.version.clone());
            next.replaced.retain(|version| Some(version) != next.live.version.as_ref());
            let surplus = next.replaced.len().saturating_sub(Self::REPLACED);
            next.replaced.drain(..surplus);
            before
        } else {
            // This is an undo: from here on any code may fold the collection.
            next.replaced.clear();
            let live = next.kept.take()?;
            std::mem::replace(&mut next.live, live)
        };
        next.kept = Some(before);
        Some(next)
    }

    /// Withdraws the switch with this ticket. The generation it would have switched to stays.
    #[must_use]
    pub fn withdrawn(&self, ticket: u64) -> Option<Self> {
        self.switching.as_ref().filter(|switching| switching.ticket == ticket)?;
        Some(Self { switching: None, ..self.next() })
    }

    /// Abandons the build under way, and any switch under way.
    #[must_use]
    pub fn cancelled(&self) -> Option<Self> {
        if self.building.is_none() && self.switching.is_none() {
            return None;
        }
        let mut next = self.next();
        next.switching = None;
        next.dropping.extend(next.building.take().map(|given_up| given_up.number));
        Some(next)
    }

    /// Marks the generation that was kept for an undo for deletion.
    #[must_use]
    pub fn without_kept(&self) -> Option<Self> {
        let kept = self.kept.as_ref()?.number;
        if self.switching.as_ref().is_some_and(|switching| switching.to == kept) {
            return None;
        }
        let mut next = self.next();
        next.kept = None;
        next.dropping.push(kept);
        Some(next)
    }

    /// Records that a generation was deleted.
    #[must_use]
    pub fn dropped(&self, number: u32) -> Option<Self> {
        let mut next = self.next();
        next.dropping.retain(|dropping| *dropping != number);
        (next.dropping.len() < self.dropping.len()).then_some(next)
    }

    /// Returns whether a rebuild has replaced the documents of code of this version.
    pub fn is_outdated(&self, version: &str) -> bool {
        self.replaced.iter().any(|replaced| replaced == version)
    }

    /// Returns whether code of another version built the live generation.
    pub fn differs(&self, version: &str) -> bool {
        self.live.version.as_deref().is_some_and(|made_with| made_with != version)
    }

    /// Returns the version of the code that builds, or built, a generation.
    pub fn version_of(&self, number: u32) -> Option<&str> {
        let all = [self.building.as_ref(), self.kept.as_ref(), Some(&self.live)];
        all.into_iter().flatten().find(|one| one.number == number)?.version.as_deref()
    }

    /// Returns whether a generation with this number exists.
    pub fn has(&self, number: u32) -> bool {
        let others = [&self.building, &self.kept].into_iter().flatten();
        others.chain([&self.live]).any(|one| one.number == number)
    }

    fn next(&self) -> Self {
        Self { revision: self.revision + 1, ..self.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rebuilt() -> Generations {
        let first = Generations::default().recorded("a").unwrap();
        first.building("b").unwrap().switching_to(1).unwrap().switched().unwrap()
    }

    #[test]
    fn a_build_is_taken_up_by_the_code_that_began_it_and_given_up_by_other_code() {
        let building = Generations::default().building("a").unwrap();
        assert_eq!(building.building("a"), None);
        let other = building.building("b").unwrap();
        assert_eq!((other.building.unwrap().number, other.dropping), (2, vec![1]));
    }

    #[test]
    fn the_next_rebuild_removes_what_was_kept() {
        let next = rebuilt().building("c").unwrap().switching_to(2).unwrap().switched().unwrap();
        assert_eq!((next.live.number, next.kept.as_ref().unwrap().number), (2, 1));
        assert_eq!((&next.dropping, next.dropped(0).unwrap().dropping), (&vec![0], vec![]));
        assert_eq!(next.replaced, ["a", "b"]);
    }

    #[test]
    fn code_is_not_replaced_by_itself() {
        let again = rebuilt().building("b").unwrap().switching_to(2).unwrap().switched().unwrap();
        assert_eq!(again.replaced, ["a"]);
        let back = again.building("a").unwrap().switching_to(3).unwrap().switched().unwrap();
        assert_eq!(back.replaced, ["b"], "whoever rebuilds with old code wants it so");
    }

    #[test]
    fn a_switch_has_a_ticket_of_its_own_and_keeps_others_from_being_begun() {
        let first = rebuilt().switching_to(0).unwrap();
        assert_eq!((first.building("c"), first.switching_to(0), first.without_kept()), (None, None, None));
        let cancelled = first.cancelled().unwrap();
        let second = cancelled.switching_to(0).unwrap();
        assert!(second.switching.unwrap().ticket > first.switching.unwrap().ticket);
        assert_eq!(cancelled.kept.unwrap().number, 0, "what was kept stays");
    }
}

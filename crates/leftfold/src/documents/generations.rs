//! Generations: a collection is rebuilt beside the one that readers see, and takes its place at once.

use serde::{Deserialize, Serialize};

/// One making of a collection from its first event on, with its own records and its own checkpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Generation {
    /// Numbers are never used again; the first generation has 0.
    pub number: u32,
    /// The [fingerprint](crate::Projection::fingerprint) of the code it was made with, if that is
    /// known.
    pub version: Option<String>,
}

/// Another generation is about to become live: whoever folds completes that.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Switching {
    /// The generation that becomes live.
    pub to: u32,
    /// The checkpoint of the one that is live is frozen under this number, which no other switch has or had.
    pub ticket: u64,
}

/// Which generations a collection has. Changed by compare-and-swap alone; each change here is what is to be stored next, or
/// `None` if nothing is to be changed.
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
    /// One more after each change.
    pub revision: u64,
    /// The one that readers see.
    pub live: Generation,
    /// The one that is being built beside it.
    pub building: Option<Generation>,
    /// The one that was live before, for an undo.
    pub kept: Option<Generation>,
    /// The switch that is under way.
    pub switching: Option<Switching>,
    /// How many there were beside the first.
    pub made: u32,
    /// Generations that are to be removed.
    pub dropping: Vec<u32>,
    /// Versions of code whose documents were replaced by a rebuild: where such code is still running, it stands by.
    pub replaced: Vec<String>,
}

impl Generations {
    /// How many replaced versions are remembered.
    const REPLACED: usize = 32;

    /// The version of the code that made the live one is known from now on.
    #[must_use]
    pub fn recorded(&self, version: &str) -> Option<Self> {
        if self.live.version.is_some() {
            return None;
        }
        let mut next = self.next();
        next.live.version = Some(version.to_owned());
        Some(next)
    }

    /// Another one is built, by code of this version. One that code of another version has begun is given up.
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

    /// The one that is being built, or the one that was kept, is to become live.
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

    /// The switch that is under way is done.
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
            // It is undone: from here on any code may fold it.
            next.replaced.clear();
            let live = next.kept.take()?;
            std::mem::replace(&mut next.live, live)
        };
        next.kept = Some(before);
        Some(next)
    }

    /// The switch that is under way under this ticket is called off; what it was to switch to stays.
    #[must_use]
    pub fn withdrawn(&self, ticket: u64) -> Option<Self> {
        self.switching.as_ref().filter(|switching| switching.ticket == ticket)?;
        Some(Self { switching: None, ..self.next() })
    }

    /// What is being built is given up, and the switch to whatever was to become live.
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

    /// The one that was kept for an undo is to be removed.
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

    /// A generation was removed.
    #[must_use]
    pub fn dropped(&self, number: u32) -> Option<Self> {
        let mut next = self.next();
        next.dropping.retain(|dropping| *dropping != number);
        (next.dropping.len() < self.dropping.len()).then_some(next)
    }

    /// Whether a rebuild has replaced what code of this version made.
    pub fn is_outdated(&self, version: &str) -> bool {
        self.replaced.iter().any(|replaced| replaced == version)
    }

    /// Whether code of another version has made what is live.
    pub fn differs(&self, version: &str) -> bool {
        self.live.version.as_deref().is_some_and(|made_with| made_with != version)
    }

    /// The version of the code that makes, or made, a generation.
    pub fn version_of(&self, number: u32) -> Option<&str> {
        let all = [self.building.as_ref(), self.kept.as_ref(), Some(&self.live)];
        all.into_iter().flatten().find(|one| one.number == number)?.version.as_deref()
    }

    /// Whether there is a generation of this number.
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

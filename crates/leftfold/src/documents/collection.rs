//! Names of collections.

use std::fmt;

use compact_str::CompactString;
use serde::{Deserialize, Serialize};

use crate::error::{Invalid, Result};

/// The name of a collection and of the projection that fills it.
///
/// A letter, then letters, digits or `_`, at most 63 in total: it becomes part of table names.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "CompactString", into = "CompactString")]
pub struct Collection(CompactString);

impl Collection {
    const STREAMS: &'static str = "~streams";
    const MARK: char = '~';

    /// Validates the name.
    pub fn new(name: impl AsRef<str>) -> Result<Self, Invalid> {
        let name = name.as_ref();
        let fits = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if !name.starts_with(|c: char| c.is_ascii_alphabetic()) || !name.chars().all(fits) || name.len() > 63
        {
            return Err(Invalid::new("collection", name, "a letter, then letters, digits or _, 63 at most"));
        }
        Ok(Self(CompactString::from(name)))
    }

    /// Returns the hidden collection that records the parked streams of this one.
    #[must_use]
    pub fn streams(&self) -> Self {
        Self(compact_str::format_compact!("{}{}", self.0, Self::STREAMS))
    }

    /// Returns the name of one generation: its own records, streams and checkpoint, whichever
    /// generation is live.
    #[must_use]
    pub fn generation(&self, number: u32) -> Self {
        let (base, _, streams) = self.parts();
        let streams = if streams { Self::STREAMS } else { "" };
        Self(compact_str::format_compact!("{base}{}{number}{streams}", Self::MARK))
    }

    /// Returns the name alone, which means the live generation.
    #[must_use]
    pub fn base(&self) -> Self {
        Self(CompactString::from(self.parts().0))
    }

    /// Returns whether this name includes a generation, so that callers need not look up the live
    /// one.
    pub fn names_generation(&self) -> bool {
        self.parts().1.is_some()
    }

    /// For stores: returns the name under which the records are stored while generation `live` is
    /// live. The first generation, number 0, is stored under the name alone.
    #[must_use]
    pub fn stored(&self, live: u32) -> Self {
        let (base, number, streams) = self.parts();
        let streams = if streams { Self::STREAMS } else { "" };
        match number.unwrap_or(live) {
            0 => Self(compact_str::format_compact!("{base}{streams}")),
            number => Self(compact_str::format_compact!("{base}{}{number}{streams}", Self::MARK)),
        }
    }

    /// For stores: parses a name that [`stored`](Self::stored) returned.
    pub fn from_stored(name: &str) -> Result<Self, Invalid> {
        let expected =
            "a collection's name, optionally followed by ~ and the number of a generation, and by ~streams";
        let rest = name.strip_suffix(Self::STREAMS).unwrap_or(name);
        let (base, number) = rest.split_once(Self::MARK).unwrap_or((rest, "0"));
        Self::new(base)?;
        match number.parse::<u32>() {
            Ok(_) => Ok(Self(CompactString::from(name))),
            Err(_) => Err(Invalid::new("collection", name, expected)),
        }
    }

    /// Splits the name into the base name, the generation if one is named, and `true` if it is the
    /// hidden collection of streams.
    fn parts(&self) -> (&str, Option<u32>, bool) {
        let rest = self.0.strip_suffix(Self::STREAMS);
        let (rest, streams) = rest.map_or((self.0.as_str(), false), |rest| (rest, true));
        match rest.split_once(Self::MARK) {
            Some((base, number)) => (base, number.parse().ok(), streams),
            None => (rest, None, streams),
        }
    }

    /// Returns whether the collection is hidden from readers.
    pub fn is_hidden(&self) -> bool {
        self.0.contains(Self::MARK)
    }

    /// For a hidden collection of [streams](Self::streams), returns the name of the collection it
    /// belongs to.
    pub fn belongs_to(&self) -> Option<&str> {
        self.0.strip_suffix(Self::STREAMS)
    }

    /// Returns the name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Collection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl fmt::Debug for Collection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl TryFrom<CompactString> for Collection {
    type Error = Invalid;

    fn try_from(name: CompactString) -> Result<Self, Invalid> {
        Self::new(name)
    }
}

impl From<Collection> for CompactString {
    fn from(collection: Collection) -> Self {
        collection.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_alone_is_the_generation_that_is_live() {
        let carts = Collection::new("carts").unwrap();
        let names = |collection: &Collection| [0, 3].map(|live| collection.stored(live).to_string());
        assert_eq!(names(&carts), ["carts", "carts~3"]);
        assert_eq!(names(&carts.streams()), ["carts~streams", "carts~3~streams"]);
        assert_eq!(names(&carts.generation(0)), ["carts", "carts"]);
        assert_eq!(names(&carts.generation(2).streams()), ["carts~2~streams", "carts~2~streams"]);
        assert_eq!(carts.streams().generation(2), carts.generation(2).streams());
        for stored in ["carts", "carts~streams", "carts~3", "carts~3~streams"] {
            let stored = Collection::from_stored(stored).unwrap();
            assert_eq!((stored.base(), stored.stored(0)), (carts.clone(), stored.clone()));
        }
        for wrong in ["", "~3", "carts~", "carts~x", "carts~3~4", "carts~streams~3"] {
            assert!(Collection::from_stored(wrong).is_err(), "{wrong}");
        }
        assert!(Collection::new("carts~3").is_err());
    }
}

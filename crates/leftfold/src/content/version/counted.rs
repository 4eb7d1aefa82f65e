//! The part of a document that counts for its version.

use crate::error::Invalid;
use crate::react::{Paths, Value};

/// The part of a document that counts for its version.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Counted {
    /// The whole document.
    #[default]
    All,
    /// Only the values at these paths.
    Only(Paths),
    /// Everything except the values at these paths.
    Except(Paths),
}

impl Counted {
    /// Counts only the values at these paths.
    pub fn only(paths: impl IntoIterator<Item = impl Into<String>>) -> Result<Self, Invalid> {
        Ok(Self::Only(Paths::new(paths)?))
    }

    /// Counts everything except the values at these paths.
    pub fn except(paths: impl IntoIterator<Item = impl Into<String>>) -> Result<Self, Invalid> {
        Ok(Self::Except(Paths::new(paths)?))
    }

    pub(super) fn part_of(&self, document: Value) -> Value {
        match self {
            Self::All => document,
            Self::Only(paths) => paths.values(&document),
            Self::Except(paths) => paths.others(document),
        }
    }
}

//! The suspicion that a task kills the processes that run it.

use serde::{Deserialize, Serialize};

use crate::mutant;

/// The suspicion that a task kills the processes that run it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Suspicion {
    /// No suspicion: the task runs among all tasks.
    #[default]
    None,
    /// The process died once: the task runs among at most 64 suspects.
    Many,
    /// The process died again: the task runs among at most 8 suspects.
    Few,
    /// The process died once more: the task runs alone.
    Alone,
}

impl Suspicion {
    /// The levels of suspects, the weakest first.
    pub const SUSPECTS: [Self; 3] = [Self::Many, Self::Few, Self::Alone];

    /// Returns a number that grows with the suspicion, 0 for none: for stores.
    pub fn level(self) -> u8 {
        match self {
            Self::None => 0,
            Self::Many => 1,
            Self::Few => 2,
            Self::Alone => 3,
        }
    }

    /// Returns how many tasks of this level may run in one process at the same time.
    pub(crate) fn group(self) -> usize {
        mutant!(NeverAlone => return 8);
        match self {
            Self::None => usize::MAX,
            Self::Many => 64,
            Self::Few => 8,
            Self::Alone => 1,
        }
    }

    pub(super) fn raised(self) -> Self {
        match self {
            Self::None => Self::Many,
            Self::Many => Self::Few,
            Self::Few | Self::Alone => Self::Alone,
        }
    }

    pub(super) fn lowered(self) -> Self {
        match self {
            Self::None | Self::Many => Self::None,
            Self::Few => Self::Many,
            Self::Alone => Self::Few,
        }
    }

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
    pub(super) fn is_none(&self) -> bool {
        *self == Self::None
    }
}

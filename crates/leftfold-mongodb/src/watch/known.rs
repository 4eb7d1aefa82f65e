//! The latest known commits.

use std::collections::{HashMap, VecDeque};

use leftfold::{Collection, Mark, Partition};

/// The known commits. Other processes may be further.
#[derive(Debug, Default)]
pub(crate) struct Known {
    pub(super) heads: Mark,
    pub(super) checkpoints: HashMap<Collection, KnownCheckpoint>,
    pub(super) partitions: u16,
    /// The number of wake-ups of runners.
    pub(super) wakes: u64,
    /// The number of times that the live generations may have changed.
    pub(super) switches: u64,
    /// The live generation of each collection, as last read.
    pub(super) live: Vec<(String, i64)>,
    /// The scope that the change stream covers: it reports every step of other processes there.
    pub(super) streamed: Option<Scope>,
}

/// The subject of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Scope {
    /// Wake-ups of runners.
    Wakes,
    /// Wake-ups, and commits of events and documents.
    All,
}

/// The known state of a checkpoint.
#[derive(Debug, Default)]
pub(super) struct KnownCheckpoint {
    pub(super) mark: Mark,
    /// The number of observed changes.
    pub(super) changes: u64,
    /// The number of times that this process has published it.
    pub(super) published: u64,
    /// The marks that this process has published and the change stream has not reported yet.
    pub(super) echoes: VecDeque<Mark>,
}

impl Known {
    /// Returns whether some partition's head is beyond the mark.
    pub(crate) fn is_beyond(&self, mark: &Mark) -> bool {
        let is_beyond = |partition| self.heads.position(partition) > mark.position(partition);
        (0..self.partitions).map(Partition).any(is_beyond)
    }

    /// Returns the number of wake-ups of runners, at least.
    pub(crate) fn wakes(&self) -> u64 {
        self.wakes
    }

    /// Returns the number of times that the live generations may have changed.
    pub(crate) fn switches(&self) -> u64 {
        self.switches
    }

    /// Returns whether the change stream covers the scope, so that every further step arrives by
    /// itself.
    pub(crate) fn covers(&self, scope: Scope) -> bool {
        self.streamed >= Some(scope)
    }

    /// Returns the known mark of a checkpoint, and the number of its observed changes.
    pub(crate) fn checkpoint(&self, projection: &Collection) -> (Mark, u64) {
        self.checkpoints
            .get(projection)
            .map_or_else(Default::default, |known| (known.mark.clone(), known.changes))
    }
}

//! The kinds of stores, and the places at which their processes can be killed.

use clap::ValueEnum;
use serde::Serialize;

use super::{mongodb, sqlite};
use crate::points;
use crate::role::Role;

/// The kind of store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Kind {
    #[default]
    Sqlite,
    Mongodb,
}

/// A place at which a process can be killed.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) name: &'static str,
    pub(crate) role: Role,
    /// The points that the process passes on its way, in order. The place is the last point.
    pub(crate) passes: &'static [&'static str],
}

impl Kind {
    /// Returns the name used on the command line.
    pub(crate) fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }

    /// Returns the places at which processes are killed.
    pub(crate) fn places(self) -> &'static [Place] {
        match self {
            Self::Sqlite => sqlite::PLACES,
            Self::Mongodb => mongodb::PLACES,
        }
    }

    /// Returns the place where a worker has a batch ready and holds no lock. A worker stopped there
    /// goes on with old data.
    pub(crate) fn before_batch(self) -> &'static Place {
        &self.places()[0]
    }

    /// Returns the places where workers, producers, feeders and handlers are about to commit.
    pub(crate) fn commits(self) -> Vec<&'static Place> {
        let commits = |place: &&Place| {
            place.passes.last().is_some_and(|last| last.ends_with("::commit") || *last == points::COMPLETED)
        };
        let places = self.places().iter().filter(commits);
        places.filter(|place| place.role != Role::Operator).collect()
    }

    /// Returns the place where a planner has read changes and planned nothing.
    pub(crate) fn before_plan(self) -> &'static Place {
        match self {
            Self::Sqlite => &sqlite::BEFORE_PLAN,
            Self::Mongodb => &mongodb::BEFORE_PLAN,
        }
    }

    /// Returns whether the store has servers that can be killed.
    pub(crate) fn has_servers(self) -> bool {
        match self {
            Self::Sqlite => false,
            Self::Mongodb => true,
        }
    }

    /// Returns whether the store can contain unreadable documents.
    pub(crate) fn has_unreadable(self) -> bool {
        match self {
            Self::Sqlite => false,
            Self::Mongodb => true,
        }
    }

    /// Returns all points.
    pub(crate) fn points(self) -> impl Iterator<Item = &'static str> {
        let mut points: Vec<_> = self.places().iter().flat_map(|place| place.passes).copied().collect();
        points.sort_unstable();
        points.dedup();
        points.into_iter()
    }
}

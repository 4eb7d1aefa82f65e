//! What the processes do.

use serde::Serialize;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) enum Role {
    /// Folds.
    Worker,
    /// Appends.
    Producer,
    /// Brings deliveries.
    Feeder,
    /// Mends.
    Operator,
    /// Plans reactions.
    Planner,
    /// Runs reactions.
    Runner,
    /// Does both.
    Reactor,
}

impl Role {
    /// The subcommand, and the first part of the names of those who do it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Worker => "worker",
            Self::Producer => "producer",
            Self::Feeder => "feeder",
            Self::Operator => "operator",
            Self::Planner => "planner",
            Self::Runner => "runner",
            Self::Reactor => "reactor",
        }
    }

    /// Whether it is about reactions.
    pub(crate) fn reacts(self) -> bool {
        matches!(self, Self::Planner | Self::Runner | Self::Reactor)
    }

    /// Whether it can be killed at places of another one.
    pub(crate) fn does(self, other: Self) -> bool {
        self == other || self == Self::Reactor && other.reacts()
    }
}

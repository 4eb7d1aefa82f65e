//! The roles of the processes.

use serde::Serialize;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) enum Role {
    /// Folds events.
    Worker,
    /// Appends events.
    Producer,
    /// Delivers events.
    Feeder,
    /// Retries and refolds.
    Operator,
    /// Plans reactions.
    Planner,
    /// Runs reactions.
    Runner,
    /// Plans and runs reactions.
    Reactor,
}

impl Role {
    /// Returns the subcommand, which is also the prefix of the members' names.
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

    /// Returns whether the role plans or runs reactions.
    pub(crate) fn reacts(self) -> bool {
        matches!(self, Self::Planner | Self::Runner | Self::Reactor)
    }

    /// Returns whether a process of this role reaches the places of another role.
    pub(crate) fn does(self, other: Self) -> bool {
        self == other || self == Self::Reactor && other.reacts()
    }
}

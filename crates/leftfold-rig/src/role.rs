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
}

impl Role {
    /// The subcommand, and the first part of the names of those who do it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Worker => "worker",
            Self::Producer => "producer",
            Self::Feeder => "feeder",
            Self::Operator => "operator",
        }
    }
}

//! The error of a server that does not start or fails a request of a test.

use std::fmt::Display;

/// A failed operation and the reason.
#[derive(Debug, thiserror::Error)]
#[error("{doing}: {why}")]
pub struct Error {
    doing: String,
    why: String,
}

impl Error {
    /// Creates an error. `doing` names the operation: "starting mongod at 127.0.0.1:4711".
    pub(crate) fn new(doing: impl Display, why: impl Display) -> Self {
        Self { doing: doing.to_string(), why: why.to_string() }
    }

    /// Adds advice on how to fix the problem.
    pub(crate) fn advising(self, what_to_do: impl Display) -> Self {
        Self { why: format!("{}; {what_to_do}", self.why), ..self }
    }
}

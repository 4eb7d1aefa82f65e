//! Why a server could not be had, or did not do what it was told.

use std::fmt::Display;

/// What was being done, and why it failed.
#[derive(Debug, thiserror::Error)]
#[error("{doing}: {why}")]
pub struct Error {
    doing: String,
    why: String,
}

impl Error {
    /// `doing` says what was being done: "starting mongod at 127.0.0.1:4711".
    pub(crate) fn new(doing: impl Display, why: impl Display) -> Self {
        Self { doing: doing.to_string(), why: why.to_string() }
    }

    /// Adds what to do about it.
    pub(crate) fn advising(self, what_to_do: impl Display) -> Self {
        Self { why: format!("{}; {what_to_do}", self.why), ..self }
    }
}

//! Errors, with messages that say what failed, on what, and what to do.

use std::error::Error as StdError;
use std::fmt;

/// A result with Leftfold's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A value that can't be accepted: its purpose, the value itself, and the expectation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invalid {
    what: &'static str,
    value: String,
    expected: String,
}

impl Invalid {
    /// Creates the error. `what` names the field, `value` is shown shortened, and `expected` says
    /// what would be valid.
    pub fn new(what: &'static str, value: &str, expected: impl Into<String>) -> Self {
        const SHOWN: usize = 60;
        let mut shown: String = value.chars().take(SHOWN).collect();
        if shown.len() < value.len() {
            shown.push('…');
        }
        Self { what, value: shown, expected: expected.into() }
    }
}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "invalid {} {:?}: expected {}", self.what, self.value, self.expected)
    }
}

impl StdError for Invalid {}

/// The kind of an [`Error`], for callers that must decide what to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// The input is invalid. Retrying does not help.
    Invalid,
    /// Another writer changed it first. Nothing was written.
    Conflict,
    /// The store can't be reached or is busy. Nothing was written; retry.
    Unavailable,
    /// Other writers keep changing the same thing. Nothing was written; retry.
    Contended,
    /// The outcome of the write is unknown. Repeat it: that is harmless.
    Unknown,
    /// The store is full. Nothing was written.
    Full,
    /// The stored data can't be read by this version: it is damaged, foreign, or of a newer format.
    Format,
    /// The operation was stopped before it could finish.
    Stopped,
    /// Any other error of the store.
    Store,
}

/// An error of Leftfold or of the underlying store.
#[derive(Debug)]
pub struct Error {
    kind: Kind,
    message: String,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

impl Error {
    /// Creates an error of this kind. The message says what failed, on what, and what to do.
    pub fn new(kind: Kind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), source: None }
    }

    /// Adds the cause.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// Returns the kind of failure.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Returns whether a later retry may help.
    pub fn is_transient(&self) -> bool {
        matches!(self.kind, Kind::Unavailable | Kind::Contended | Kind::Unknown | Kind::Full)
    }

    /// Returns whether another writer changed it first.
    pub fn is_conflict(&self) -> bool {
        self.kind == Kind::Conflict
    }

    /// Returns whether the outcome of the write is unknown.
    pub fn is_unknown(&self) -> bool {
        self.kind == Kind::Unknown
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        match &self.source {
            Some(source) => write!(f, ": {source}"),
            None => Ok(()),
        }
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.source.as_ref().and_then(|source| source.source())
    }
}

impl From<leftfold_filter::Error> for Invalid {
    fn from(error: leftfold_filter::Error) -> Self {
        Self::new(error.kind(), error.text(), error.expected())
    }
}

impl From<leftfold_filter::Error> for Error {
    fn from(error: leftfold_filter::Error) -> Self {
        Invalid::from(error).into()
    }
}

impl From<Invalid> for Error {
    fn from(invalid: Invalid) -> Self {
        Self::new(Kind::Invalid, invalid.to_string())
    }
}

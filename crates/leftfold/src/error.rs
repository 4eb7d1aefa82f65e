//! What can go wrong, in words that say what was being done and what to do about it.

use std::error::Error as StdError;
use std::fmt;

/// A result with Leftfold's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A value that can't be accepted: what it was meant for, what it is, and what was expected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invalid {
    what: &'static str,
    value: String,
    expected: String,
}

impl Invalid {
    /// `what` names the field, `value` is shown shortened, `expected` says what would be right.
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

/// What kind of failure an [`Error`] is, for those who must decide what to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// The input can't be accepted. Repeating it will not help.
    Invalid,
    /// Somebody else changed it first. Nothing was written.
    Conflict,
    /// The store can't be reached or is busy. Nothing was written; try again.
    Unavailable,
    /// Others keep changing the same thing. Nothing was written; try again.
    Contended,
    /// Whether the write happened can't be told. Repeat it: that is harmless.
    Unknown,
    /// No room is left. Nothing was written.
    Full,
    /// What is stored is not what this program reads: damaged, foreign, or of a newer format.
    Format,
    /// It was stopped before it could finish.
    Stopped,
    /// Anything else the store reported.
    Store,
}

/// A failure of Leftfold or of the store below it.
#[derive(Debug)]
pub struct Error {
    kind: Kind,
    message: String,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

impl Error {
    /// An error of this kind. The message says what was being done, with what, and what to do about it.
    pub fn new(kind: Kind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), source: None }
    }

    /// Adds what caused it.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// What kind of failure it is.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Whether trying again later may help.
    pub fn is_transient(&self) -> bool {
        matches!(self.kind, Kind::Unavailable | Kind::Contended | Kind::Unknown | Kind::Full)
    }

    /// Whether somebody else changed it first.
    pub fn is_conflict(&self) -> bool {
        self.kind == Kind::Conflict
    }

    /// Whether it can't be told if the write happened.
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

impl From<Invalid> for Error {
    fn from(invalid: Invalid) -> Self {
        Self::new(Kind::Invalid, invalid.to_string())
    }
}

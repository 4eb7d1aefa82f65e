//! The error of a text or value that can't be used.

use std::fmt;

/// The error of a filter, a path or a value that can't be used: its kind, its text, and the
/// expectation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    kind: &'static str,
    text: String,
    expected: String,
}

impl Error {
    /// The maximum number of characters that are kept of the text.
    const SHOWN: usize = 60;

    pub(crate) fn new(kind: &'static str, text: &str, expected: impl Into<String>) -> Self {
        let mut shown: String = text.chars().take(Self::SHOWN).collect();
        if shown.len() < text.len() {
            shown.push('…');
        }
        Self { kind, text: shown, expected: expected.into() }
    }

    /// Returns the kind of input that was rejected, such as `filter`.
    pub fn kind(&self) -> &'static str {
        self.kind
    }

    /// Returns the rejected text; a long one is shortened.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns a description of a valid input.
    pub fn expected(&self) -> &str {
        &self.expected
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "invalid {} {:?}: expected {}", self.kind, self.text, self.expected)
    }
}

impl std::error::Error for Error {}

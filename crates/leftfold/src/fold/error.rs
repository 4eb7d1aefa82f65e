//! The error of a fold.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::error::Invalid;

/// The reason why an event could not be folded. It parks the document, after the retries that the
/// policy allows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    message: String,
    transient: bool,
}

impl Error {
    /// Creates an error that retrying does not fix.
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: shortened(message.into()), transient: false }
    }

    /// Creates an error that a retry may fix.
    pub fn transient(message: impl Into<String>) -> Self {
        Self { message: shortened(message.into()), transient: true }
    }

    /// Runs code of a projection. A panic counts as a failure.
    pub(crate) fn catch<T>(what: &str, run: impl FnOnce() -> Result<T, Self>) -> Result<T, Self> {
        catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| {
            let said = panic.downcast_ref::<&str>().map(ToString::to_string);
            let said = said.or_else(|| panic.downcast_ref::<String>().cloned());
            Err(Self::new(format!("{what} panicked: {}", said.as_deref().unwrap_or("no message"))))
        })
    }

    /// Returns whether a retry may help.
    pub fn is_transient(&self) -> bool {
        self.transient
    }
}

/// Shortens a message. Errors are stored with their documents, and some quote a value of any
/// length.
fn shortened(mut message: String) -> String {
    const MOST: usize = 2_000;
    if message.len() > MOST {
        message.truncate(message.floor_char_boundary(MOST));
        message.push('…');
    }
    message
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}

impl From<&str> for Error {
    fn from(message: &str) -> Self {
        Self::new(message)
    }
}

impl From<String> for Error {
    fn from(message: String) -> Self {
        Self::new(message)
    }
}

impl From<Invalid> for Error {
    fn from(invalid: Invalid) -> Self {
        Self::new(invalid.to_string())
    }
}

//! Errors of handlers.

use std::error::Error as StdError;
use std::fmt;

use crate::error::{Error, Invalid};

/// The error of a handler. `?` converts any error into one.
pub struct HandlerError(Box<dyn StdError + Send + Sync>);

impl<E: Into<Box<dyn StdError + Send + Sync>>> From<E> for HandlerError {
    fn from(error: E) -> Self {
        Self(error.into())
    }
}

impl HandlerError {
    /// Returns the underlying error.
    pub fn cause(&self) -> &(dyn StdError + 'static) {
        &*self.0
    }
}

impl fmt::Debug for HandlerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for HandlerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)?;
        let mut source = self.0.source();
        while let Some(cause) = source {
            write!(f, ": {cause}")?;
            source = cause.source();
        }
        Ok(())
    }
}

/// The reason why there is no document to handle.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NotCurrent {
    /// The document is not what the task was planned for: it was deleted, no longer matches, or
    /// changed. Return this from the handler: the task ends as stale, and is planned again if there
    /// is something to handle.
    #[error("the document is not, or no longer, what the task was planned for")]
    Stale,
    /// The document can't be decoded as the handler's type.
    #[error("the document can't be decoded as the handler's type: {0}")]
    Undecodable(Invalid),
    /// The store could not read the document.
    #[error(transparent)]
    Store(#[from] Error),
}

//! The end of a command: an exit status, or a failure with advice.

use std::fmt;
use std::io;
use std::process::ExitCode;

use leftfold::sequence::NotLogged;
use leftfold::{AppendError, Invalid, Kind, ReadError};

use crate::location::without_secrets;

/// The exit status of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// The command succeeded.
    Done = 0,
    /// A check failed.
    No = 1,
    /// The usage is invalid: an argument, the configuration, a collection, an id or a bookmark.
    Usage = 2,
    /// The store can't be opened, or failed.
    Store = 3,
    /// A signal interrupted the command.
    Interrupted = 130,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// The reason why a command failed. The message contains no secrets.
#[derive(Debug)]
pub struct Failure {
    /// The exit status.
    pub exit: Exit,
    /// `true` if the reader of the output is gone, so that nothing can be reported.
    pub quiet: bool,
    message: String,
}

impl Failure {
    /// Creates a failure with this message, from which the secrets of URLs are removed.
    pub fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self { exit, quiet: false, message: without_secrets(&message.into()) }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl From<leftfold::Error> for Failure {
    fn from(error: leftfold::Error) -> Self {
        let exit = if error.kind() == Kind::Invalid { Exit::Usage } else { Exit::Store };
        Self::new(exit, error.to_string())
    }
}

impl From<Invalid> for Failure {
    fn from(invalid: Invalid) -> Self {
        Self::new(Exit::Usage, invalid.to_string())
    }
}

impl From<AppendError> for Failure {
    fn from(error: AppendError) -> Self {
        Self::new(Exit::Store, format!("appending: {error}"))
    }
}

impl From<ReadError> for Failure {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Store(error) => error.into(),
            ReadError::Unknown { .. } => Self::new(Exit::Usage, error.to_string()),
            _ => Self::new(Exit::No, error.to_string()),
        }
    }
}

impl From<NotLogged> for Failure {
    fn from(error: NotLogged) -> Self {
        match error {
            NotLogged::Store(error) => error.into(),
            _ => Self::new(Exit::No, error.to_string()),
        }
    }
}

/// Converts an error of writing to standard output.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        let quiet = error.kind() == io::ErrorKind::BrokenPipe;
        Self { quiet, ..Self::new(Exit::Store, format!("writing to standard output: {error}")) }
    }
}

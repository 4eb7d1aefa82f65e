//! The error of a script.

use std::fmt;

/// The error of a script that does not compile, or of a function that failed: the message and the
/// place in the script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScriptFault {
    pub(crate) message: String,
    pub(crate) is_limit: bool,
}

impl ScriptFault {
    pub(crate) fn new(message: String) -> Self {
        Self { message, is_limit: false }
    }

    pub(crate) fn limit(message: String) -> Self {
        Self { message, is_limit: true }
    }
}

impl fmt::Display for ScriptFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for ScriptFault {}

//! Usage errors.

use std::io::{self, Write as _};
use std::process::ExitCode;

use crate::exit::Exit;
use crate::location::without_secrets;

/// Prints a usage error without secrets, or the requested help or version. Returns the exit status.
pub fn usage_error(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() || !error.to_string().contains("://") {
        let _ = error.print();
        return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(Exit::Usage as u8));
    }
    // The message repeats the arguments, which may contain a password.
    let _ = write!(io::stderr(), "{}", without_secrets(&error.to_string()));
    Exit::Usage.into()
}

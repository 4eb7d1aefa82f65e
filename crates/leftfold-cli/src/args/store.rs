//! The arguments that select the store and the configuration file. Every command accepts them.

use std::path::PathBuf;

use clap::Args;
use clap::builder::{OsStringValueParser, TypedValueParser as _};
use leftfold_terminal::{AnyLocation, Exit, Failure};

/// The variable that names the store if neither `--store` nor `--config` is given. Other users of
/// the machine can't see it.
const STORE: &str = "LEFTFOLD_STORE";

#[derive(Clone, Debug, Args)]
pub(crate) struct StoreArgs {
    #[arg(long = "store", global = true, value_name = "FILE|URL",
        help = "Use this SQLite file or mongodb:// database; the variable LEFTFOLD_STORE if left out",
        value_parser = OsStringValueParser::new().map(AnyLocation::from))]
    pub(crate) location: Option<AnyLocation>,
    /// Use this configuration file; leftfold.toml if it exists and no store is named
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}

impl StoreArgs {
    /// Returns the store that the environment names, if any.
    pub(crate) fn from_environment() -> Option<AnyLocation> {
        std::env::var_os(STORE).filter(|named| !named.is_empty()).map(AnyLocation::from)
    }

    /// Refuses `--store` for a command that uses the store of the configuration file.
    pub(crate) fn refuse_store(&self, command: &str) -> Result<(), Failure> {
        match &self.location {
            None => Ok(()),
            Some(_) => Err(unused(command, "--store")),
        }
    }

    /// Refuses both arguments, for a command that uses neither.
    pub(crate) fn refuse_both(&self, command: &str) -> Result<(), Failure> {
        self.refuse_store(command)?;
        match &self.config {
            None => Ok(()),
            Some(_) => Err(unused(command, "--config")),
        }
    }
}

fn unused(command: &str, argument: &str) -> Failure {
    Failure::new(Exit::Usage, format!("`leftfold {command}` has no use for {argument}; leave it out"))
}

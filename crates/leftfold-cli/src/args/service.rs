//! The arguments of the commands for leftfold.toml and the daemon.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use leftfold_server::Scope;

#[derive(Debug, Args)]
pub(crate) struct InitArgs {
    /// The directory; the current one if left out
    #[arg(default_value = ".")]
    pub(crate) directory: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    /// Allow remote listeners without TLS or tokens: then every client may do everything
    #[arg(long)]
    pub(crate) insecure: bool,
}

#[derive(Debug, Args)]
pub(crate) struct TestArgs {
    /// Run only the specifications of this projection
    pub(crate) projection: Option<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Token {
    /// Create a token: print it once, with the lines for leftfold.toml
    New(NewTokenArgs),
}

#[derive(Debug, Args)]
pub(crate) struct NewTokenArgs {
    /// The name of the token
    pub(crate) name: String,
    /// Grant these scopes: ingest, read, operate; all if left out
    #[arg(long = "scope", value_name = "SCOPE", value_delimiter = ',')]
    pub(crate) scopes: Vec<Scope>,
}

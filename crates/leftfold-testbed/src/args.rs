//! The command-line arguments.

use clap::{Args, Parser, Subcommand};

const EXIT_STATUS: &str = "\
Exit status:
  0    done
  2    the arguments are invalid
  3    it failed; the reason is on standard error
  130  interrupted before it was done";

/// Start private servers for manual tests, each in a temporary directory and on a free loopback
/// port
///
/// The servers stop with this program.
#[derive(Debug, Parser)]
#[command(name = "leftfold-testbed", version, after_help = EXIT_STATUS, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) action: Action,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Action {
    /// Install the programs that the tests need
    Fetch,
    /// Start MongoDB, print its URL and wait for Ctrl-C
    #[command(name = "mongodb")]
    MongoDb(MongoDb),
}

#[derive(Debug, Args)]
pub(crate) struct MongoDb {
    /// Start a replica set with this many members
    #[arg(long, value_name = "1|3", default_value_t = 1, value_parser = members)]
    pub(crate) members: usize,
    /// Start one server without a replica set and without transactions
    #[arg(long, conflicts_with = "members")]
    pub(crate) standalone: bool,
    /// Print the URL and the members as one JSON value
    #[arg(long)]
    pub(crate) json: bool,
}

fn members(text: &str) -> Result<usize, &'static str> {
    match text {
        "1" => Ok(1),
        "3" => Ok(3),
        _ => Err("use 1, or 3 for a replica set that survives the loss of a member"),
    }
}

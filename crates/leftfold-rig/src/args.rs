//! What can be said on the command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::store::Kind;

const EXIT_STATUS: &str = "\
Exit status:
  0    everything held
  1    something did not hold: what, and where the store is, is said on standard error
  2    the command can't be understood, or the program was built without failpoints
  3    the run could not be carried out
  130  interrupted";

/// Runs Leftfold's workers as processes on a real store, kills and stops them at the worst moments, and checks that
/// nothing is lost, doubled or swapped.
#[derive(Debug, Parser)]
#[command(name = "leftfold-rig", version, after_help = EXIT_STATUS, max_term_width = 100)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) rig: Rig,
    #[command(subcommand)]
    pub(crate) part: Option<Part>,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct Rig {
    /// How many processes and servers to kill; processes with reactions are killed beside, one for every two of them
    #[arg(long, value_name = "N", default_value_t = 60)]
    pub(crate) kills: u64,
    /// Chooses the events, whom to kill and where; random if not given
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,
    /// How many worker processes fold
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u64).range(2..=16))]
    pub(crate) workers: u64,
    /// The store to put to the test
    #[arg(long, value_enum, default_value_t)]
    pub(crate) store: Kind,
    /// Print the summary as one JSON value on standard output
    #[arg(long)]
    pub(crate) json: bool,
}

/// What the rig starts, kills and starts again.
#[derive(Debug, Subcommand)]
pub(crate) enum Part {
    /// Folds
    #[command(hide = true)]
    Worker(Process),
    /// Appends
    #[command(hide = true)]
    Producer(Process),
    /// Brings deliveries
    #[command(hide = true)]
    Feeder(Process),
    /// Retries what is parked, and folds documents anew
    #[command(hide = true)]
    Operator(Process),
    /// Plans reactions
    #[command(hide = true)]
    Planner(Process),
    /// Runs reactions
    #[command(hide = true)]
    Runner(Process),
    /// Plans and runs reactions
    #[command(hide = true)]
    Reactor(Process),
}

impl Part {
    pub(crate) fn process(&self) -> &Process {
        match self {
            Self::Worker(process)
            | Self::Producer(process)
            | Self::Feeder(process)
            | Self::Operator(process)
            | Self::Planner(process)
            | Self::Runner(process)
            | Self::Reactor(process) => process,
        }
    }
}

#[derive(Clone, Debug, Args)]
pub(crate) struct Process {
    #[arg(long, value_enum)]
    pub(crate) store: Kind,
    /// Where the store is
    #[arg(long)]
    pub(crate) place: String,
    /// The directory of what is kept beside the store
    #[arg(long)]
    pub(crate) beside: PathBuf,
    #[arg(long)]
    pub(crate) name: String,
    #[arg(long)]
    pub(crate) seed: u64,
    /// The first append, or batch of deliveries, that is not known to be done
    #[arg(long, default_value_t = 0)]
    pub(crate) from: u64,
    /// It has the code that can fold and decode everything
    #[arg(long)]
    pub(crate) mended: bool,
}

//! The command-line arguments.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::store::Kind;

const EXIT_STATUS: &str = "\
Exit status:
  0    no violations
  1    violations: standard error lists them, and the place of the store
  2    invalid command, or a program built without failpoints
  3    the rig failed, so the run proves nothing
  130  interrupted";

/// Kill and stop Leftfold's processes on a real store at the worst moments, and check that nothing
/// is lost, duplicated or swapped
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
    /// Kill this many processes and servers, plus one reaction process for every two of them
    #[arg(long, value_name = "N", default_value_t = 60)]
    pub(crate) kills: u64,
    /// Seed the events and the choice of victims and places (default: random)
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,
    /// Run this many worker processes
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u64).range(2..=16))]
    pub(crate) workers: u64,
    /// Test this store
    #[arg(long, value_enum, default_value_t)]
    pub(crate) store: Kind,
    /// Print the summary as one JSON value on standard output
    #[arg(long)]
    pub(crate) json: bool,
}

/// The processes that the rig starts, kills and restarts.
#[derive(Debug, Subcommand)]
pub(crate) enum Part {
    /// Fold events
    #[command(hide = true)]
    Worker(Process),
    /// Append events
    #[command(hide = true)]
    Producer(Process),
    /// Deliver events
    #[command(hide = true)]
    Feeder(Process),
    /// Retry parked documents and streams, and refold documents
    #[command(hide = true)]
    Operator(Process),
    /// Plan reactions
    #[command(hide = true)]
    Planner(Process),
    /// Run reactions
    #[command(hide = true)]
    Runner(Process),
    /// Plan and run reactions
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
    /// Open the store at this place
    #[arg(long)]
    pub(crate) place: String,
    /// Keep other files in this directory
    #[arg(long)]
    pub(crate) directory: PathBuf,
    #[arg(long)]
    pub(crate) name: String,
    #[arg(long)]
    pub(crate) seed: u64,
    /// Start with this append or batch of deliveries, the first without a known result
    #[arg(long, default_value_t = 0)]
    pub(crate) from: u64,
    /// Run the fixed code, which can fold and decode everything
    #[arg(long)]
    pub(crate) fixed: bool,
}

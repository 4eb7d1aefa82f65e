//! The command-line arguments.

use std::time::Duration;

use clap::builder::{OsStringValueParser, TypedValueParser as _};
use clap::{ArgAction, Args, Parser, Subcommand};
use leftfold_terminal::AnyLocation;

const ABOUT: &str = "\
Fold many events while workers are killed repeatedly, then check every document.

Feeds deliver the events of a small shop to the log: some twice, some out of order, some never. Worker \
processes fold them into four read models, and some folds fail. At the end, an independent fold of the log \
is compared with every document.";

const EXIT_STATUS: &str = "\
Exit status:
  0    every document equals its fold
  1    a document differs, or something was lost
  2    invalid usage
  3    the store can't be opened, or failed
  130  interrupted";

/// The variable that names the store if `--store` does not. Other users of the machine can't see
/// it.
pub(crate) const STORE: &str = "LEFTFOLD_STORE";

#[derive(Debug, Parser)]
#[command(name = "leftfold-demo", version, about = ABOUT, after_help = EXIT_STATUS, max_term_width = 100)]
#[command(args_conflicts_with_subcommands = false, disable_help_subcommand = true)]
pub(crate) struct Cli {
    /// Print one JSON value on standard output, and nothing else there
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Keep the log and documents in this file or mongodb:// database; add to an earlier demo's
    #[arg(long, global = true, value_name = "FILE|URL", env = STORE, hide_env_values = true,
        value_parser = OsStringValueParser::new().map(AnyLocation::from))]
    pub(crate) store: Option<AnyLocation>,
    #[command(flatten)]
    pub(crate) demo: DemoArgs,
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Compare every document of an earlier demo with an independent fold of the log
    Verify,
    /// Run a worker of the demo
    #[command(hide = true)]
    Worker(WorkerArgs),
}

#[derive(Clone, Debug, Args)]
pub(crate) struct DemoArgs {
    /// Append this many events
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) events: u64,
    /// Deliver events twice, out of order or never; `--chaos=false` appends them one by one
    #[arg(long, value_name = "BOOL", default_value_t = true, action = ArgAction::Set, num_args = 0..=1,
        require_equals = true, default_missing_value = "true")]
    pub(crate) chaos: bool,
    /// Run this many feeds or writers concurrently
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u64).range(1..=64))]
    pub(crate) writers: u64,
    /// Run this many worker processes
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=16))]
    pub(crate) workers: u64,
    /// Kill a worker once in this many seconds, at a random moment; 0 for never
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = period)]
    pub(crate) kill_every: Duration,
    /// Make this share of events fail at first; a fiftieth of it fails until the code is fixed
    #[arg(long, value_name = "SHARE", default_value_t = 0.01, value_parser = share)]
    pub(crate) failing: f64,
    /// Choose events, failures and kills by this seed; random if left out
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,
}

#[derive(Debug, Args)]
pub(crate) struct WorkerArgs {
    /// Use this worker name, the same after each restart
    #[arg(long)]
    pub(crate) name: String,
    /// Make this share of events fail at first
    #[arg(long, value_parser = share)]
    pub(crate) failing: f64,
    /// Choose the failing events by this seed
    #[arg(long)]
    pub(crate) seed: u64,
}

fn share(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(share) if (0.0..=1.0).contains(&share) => Ok(share),
        _ => Err("expected a share from 0 to 1, such as 0.01".to_owned()),
    }
}

fn period(text: &str) -> Result<Duration, String> {
    const SHORTEST: Duration = Duration::from_millis(50);
    let seconds = text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    match seconds.ok_or("expected a number of seconds, such as 0.5")? {
        period if period.is_zero() || period >= SHORTEST => Ok(period),
        _ => Err("expected 0, or at least 0.05 seconds: a worker needs some time to start".to_owned()),
    }
}

//! What Leftfold costs, as ratios to plain code that is measured in the same run.
//!
//! Machines differ and are noisy, so no figure stands alone: each is taken in turns with its reference, several
//! times, and the medians are compared.

mod append;
mod catch_up;
mod growth;
mod latency;
mod raw;
mod report;
mod stores;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand, ValueEnum};

use crate::report::{Figure, Result};

#[derive(Parser)]
#[command(about = "Measures Leftfold against plain code on the same machine, in the same run")]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Folding: catch-up, one event at a time, append, latency, growth.
    Fold {
        /// The store to measure.
        #[arg(long, default_value = "sqlite")]
        store: Store,
        /// Only these measurements.
        #[arg(long, value_delimiter = ',')]
        only: Vec<Part>,
        /// How often each measurement is taken.
        #[arg(long, default_value_t = 5)]
        rounds: usize,
        /// Events of the catch-up, ten to a cart.
        #[arg(long, default_value_t = 1_000_000)]
        events: u64,
        /// Print a list of figures as JSON, and nothing else, on standard output.
        #[arg(long)]
        json: bool,
        /// Where the files are made; a temporary directory if left out.
        #[arg(long)]
        directory: Option<PathBuf>,
    },
    /// Folds a prepared file and prints how long it took and how much memory: a process of its own, so that
    /// measurements don't disturb each other.
    #[command(hide = true)]
    CatchUp { file: PathBuf },
}

#[derive(Clone, Copy, ValueEnum)]
enum Store {
    Sqlite,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    CatchUp,
    PerEvent,
    Append,
    Latency,
    Growth,
}

fn main() -> ExitCode {
    let result = match Args::parse().command {
        Command::Fold { store: Store::Sqlite, only, rounds, events, json, directory } => {
            fold(&only, rounds.max(1), events, directory).and_then(|figures| report::print(&figures, json))
        }
        Command::CatchUp { file } => catch_up::child(&file),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn fold(only: &[Part], rounds: usize, events: u64, directory: Option<PathBuf>) -> Result<Vec<Figure>> {
    let temporary = tempfile::tempdir()?;
    let directory = directory.unwrap_or_else(|| temporary.path().to_owned());
    let wanted = |part| only.is_empty() || only.contains(&part);
    let mut figures = Vec::new();
    if wanted(Part::CatchUp) || wanted(Part::PerEvent) {
        figures.extend(catch_up::measure(&directory, events, rounds, wanted(Part::PerEvent))?);
    }
    if wanted(Part::Append) {
        figures.extend(append::measure(&directory, rounds)?);
    }
    if wanted(Part::Latency) {
        figures.extend(latency::measure(&directory)?);
    }
    if wanted(Part::Growth) {
        figures.extend(growth::measure(&directory)?);
    }
    Ok(figures)
}

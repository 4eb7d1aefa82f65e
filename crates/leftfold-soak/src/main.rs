//! Runs the daemon under hostile scripts, requests, files, clocks and kills, beside an unaffected
//! bystander.
//!
//! A run starts the real daemon in a temporary directory. In the calm phase only the bystander
//! sends requests, which gives its normal latency. Then everything else starts. At the end the
//! bystander's documents must be right and its requests nearly as fast as before. The daemon's
//! memory must stay within its budget.
//!
//! ```sh
//! cargo xtask soak --minutes 10 --store sqlite
//! ```

mod arena;
mod args;
mod bystander;
mod clock;
mod daemon;
mod dice;
mod files;
mod http;
mod latency;
mod memory;
mod model;
mod operator;
mod plan;
mod report;
mod requests;
mod run;
mod scripts;
mod windows;

use std::io::Write as _;
use std::process::ExitCode;
use std::time::SystemTime;

use clap::Parser as _;

use crate::args::{Args, Store};
use crate::report::Report;

const BROKEN: u8 = 1;
const FAILED: u8 = 3;

fn main() -> ExitCode {
    let args = Args::parse();
    let seed = args.seed.unwrap_or_else(any_seed);
    let stores = args.store.map_or_else(|| Store::ALL.to_vec(), |store| vec![store]);
    let time = args.minutes / u32::try_from(stores.len()).unwrap_or(1);
    let mut status = ExitCode::SUCCESS;
    for store in stores {
        let name = store.name();
        eprintln!("seed {seed} on {name}, {} s", time.as_secs());
        let directory = match tempfile::Builder::new().prefix("leftfold-soak-").tempdir() {
            Ok(directory) => directory,
            Err(error) => {
                eprintln!("creating a temporary directory: {error}");
                return ExitCode::from(FAILED);
            }
        };
        let done = run::run(&args, store, time, seed, directory.path());
        eprintln!();
        let keeps = match done {
            Ok(report) => {
                let holds = print(&report, args.json);
                if !holds {
                    status = ExitCode::from(BROKEN);
                }
                !holds
            }
            Err(fatal) => {
                eprintln!("the run on {name} with seed {seed} failed: {fatal}");
                status = ExitCode::from(FAILED);
                true
            }
        };
        if keeps {
            eprintln!("the daemon's directory is kept: {}", directory.keep().display());
        }
    }
    status
}

/// Writes the report and returns whether all checks hold.
fn print(report: &Report, as_json: bool) -> bool {
    let text = if as_json { format!("{:#}\n", report.json()) } else { report.to_string() };
    // The exit status does not depend on whether anything reads the output.
    let _ = std::io::stdout().write_all(text.as_bytes());
    let mut holds = true;
    for check in report.checks() {
        if let Some(why) = check.broken {
            holds = false;
            eprintln!("check failed with seed {}: {}: {why}", report.seed, check.title);
        }
    }
    if !holds {
        for blamed in &report.hostile.blamed.first {
            eprintln!("a hostile request got this response: {blamed}");
        }
    }
    holds
}

fn any_seed() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::from(now.subsec_nanos()) ^ (now.as_secs() << 8)
}

//! Runs the simulation for many seeds, and reports each seed that violates an invariant.
//!
//! `cargo run --release -p leftfold-sim -- --seeds 2000`

mod many;

use std::process::ExitCode;

use clap::Parser;
use leftfold_sim::world::{self, WorldRun};

/// Run the engine in many simulated worlds, each decided by its seed, and check every document
#[derive(Parser)]
struct Args {
    /// Run this many seeds
    #[arg(long, default_value_t = 2_000)]
    seeds: u64,
    /// Start with this seed (default: random)
    #[arg(long)]
    first_seed: Option<u64>,
    /// Run only this seed
    #[arg(long)]
    seed: Option<u64>,
    /// Print each step; needs `--seed`
    #[arg(long, requires = "seed")]
    trace: bool,
    /// Run fixed stories instead of seeds, with a crash at every point in turn
    #[arg(long)]
    crashes: bool,
    /// Plant a bug by name, or each in turn with `all`; each must be caught within 20,000 seeds
    #[arg(long, value_name = "NAME")]
    bug: Option<String>,
    /// Run this many seeds at a time (default: the number of cores)
    #[arg(long)]
    threads: Option<usize>,
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(2)
        }
    }
}

fn run(args: &Args) -> Result<bool, std::io::Error> {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let threads = args.threads.unwrap_or(cores).max(1);
    if let Some(name) = &args.bug {
        #[cfg(feature = "planted")]
        if name == "all" {
            return many::bugs(args.first_seed.unwrap_or(1), threads);
        }
        plant(name)?;
    }
    if args.crashes {
        return many::crashes(threads);
    }
    let Some(seed) = args.seed else {
        let first = args.first_seed.unwrap_or_else(|| leftfold::Env::random(&leftfold::System) >> 16);
        return many::seeds(first, args.seeds, threads);
    };
    let run = world::run(seed, true)?;
    if args.trace {
        run.trace.iter().for_each(|line| eprintln!("{line}"));
    }
    Ok(report(&format!("seed {seed}"), &format!("--seed {seed} --trace"), &run))
}

#[cfg(feature = "planted")]
fn plant(name: &str) -> Result<(), std::io::Error> {
    use leftfold::planted::{Bug, plant};
    let Some(bug) = Bug::ALL.iter().find(|bug| bug.name() == name) else {
        let names: Vec<_> = Bug::ALL.iter().map(|bug| bug.name()).collect();
        let message = format!("there is no bug {name:?}; use one of: all, {}", names.join(", "));
        return Err(std::io::Error::other(message));
    };
    plant(Some(*bug));
    Ok(())
}

#[cfg(not(feature = "planted"))]
fn plant(_: &str) -> Result<(), std::io::Error> {
    Err(std::io::Error::other("this program was built without bugs; build it with --features planted"))
}

/// Prints the violations. Returns `true` if there are none.
fn report(title: &str, arguments: &str, run: &WorldRun) -> bool {
    const TAIL: usize = 15;
    if run.violations.is_empty() {
        return true;
    }
    eprintln!("{title} failed:");
    run.violations.iter().take(5).for_each(|violation| eprintln!("  {violation}"));
    eprintln!("  the end of the trace:");
    let earlier = run.trace.len().saturating_sub(TAIL);
    run.trace[earlier..].iter().for_each(|line| eprintln!("  {line}"));
    eprintln!("  to repeat it: cargo run --release -p leftfold-sim -- {arguments}");
    false
}

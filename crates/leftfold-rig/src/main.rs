//! Kills and stops Leftfold's processes on a real store, and checks that nothing is lost,
//! duplicated or swapped.
//!
//! `cargo run --release -p leftfold-rig --features failpoints -- --kills 60`
//!
//! The rig starts workers, producers, feeders, an operator and reactors as separate processes. It
//! kills them with SIGKILL, at random moments and at named places inside a commit, an append, a
//! claim and a handler's transaction. It stops others for longer than their lease, and resumes them
//! when they have been replaced.
//!
//! Throughout the run it checks that every document is the fold of its events. At the end it checks
//! that nothing is missing, and that every reaction had its effect as often as guaranteed.

mod args;
mod attack;
mod crew;
mod failure;
mod feeder;
mod ledger;
mod member;
mod messages;
mod plan;
mod points;
mod process;
mod react;
mod role;
mod round;
mod signals;
mod store;
mod tally;
mod watch;

use std::io;
use std::process::ExitCode;
use std::time::Instant;

use clap::Parser as _;
use indicatif::{ProgressBar, ProgressStyle};
use leftfold::Env as _;
use leftfold_mongodb::Mongo;
use leftfold_sim::dice::Dice;
use leftfold_sqlite::Sqlite;
use tempfile::TempDir;
use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::EnvFilter;

use crate::args::{Cli, Part, Process, Rig};
use crate::failure::Failure;
use crate::role::Role;
use crate::store::{Environment as _, Kind, TestedStore};
use crate::tally::Tally;

const COMMAND: &str = "cargo run --release -p leftfold-rig --features failpoints --";

const VIOLATED: u8 = 1;
const USAGE: u8 = 2;
const NOT_DONE: u8 = 3;
const INTERRUPTED: u8 = 130;

fn main() -> ExitCode {
    let cli = Cli::parse();
    if !points::BUILT_IN {
        eprintln!(
            "this program was built without failpoints, which it needs to kill processes; run\n  {COMMAND}"
        );
        return ExitCode::from(USAGE);
    }
    // `RUST_LOG=leftfold=debug` shows the workers' logs.
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("error"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr).init();
    let status = match &cli.part {
        Some(part) => be(part),
        None => rig(&cli.rig),
    };
    status.unwrap_or_else(|failure| {
        eprintln!("{failure}");
        ExitCode::from(match failure {
            Failure::Violated(_) => VIOLATED,
            Failure::Rig(_) => NOT_DONE,
            Failure::Interrupted => INTERRUPTED,
        })
    })
}

/// Runs this program as one of the processes.
fn be(part: &Part) -> Result<ExitCode, Failure> {
    signals::die_with_parent();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.map_err(|error| Failure::rig("starting the runtime", error))?;
    let process = part.process();
    let done = match process.store {
        Kind::Sqlite => runtime.block_on(be_on::<Sqlite>(part, process)),
        Kind::Mongodb => runtime.block_on(be_on::<Mongo>(part, process)),
    };
    runtime.shutdown_background();
    done.map(|()| ExitCode::SUCCESS)
}

async fn be_on<S: TestedStore>(part: &Part, process: &Process) -> Result<(), Failure> {
    match part {
        Part::Worker(_) => process::work::<S>(process).await,
        Part::Producer(_) => process::produce::<S>(process).await,
        Part::Feeder(_) => feeder::feed::<S>(process).await,
        Part::Operator(_) => process::operate::<S>(process).await,
        Part::Planner(_) => react::react::<S>(process, Role::Planner).await,
        Part::Runner(_) => react::react::<S>(process, Role::Runner).await,
        Part::Reactor(_) => react::react::<S>(process, Role::Reactor).await,
    }
}

/// Runs the whole rig.
fn rig(rig: &Rig) -> Result<ExitCode, Failure> {
    // Use a single thread, because the processes die with the thread that starts them.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::rig("starting the runtime", error))?;
    let seed = rig.seed.unwrap_or_else(|| leftfold::System.random() >> 16);
    let store = rig.store.name();
    let Rig { kills, workers, .. } = rig;
    eprintln!("seed {seed}: {COMMAND} --store {store} --kills {kills} --workers {workers} --seed {seed}");
    let mut tally = Tally { seed, store: rig.store, ..Tally::default() };
    let begun = Instant::now();
    let done = runtime.block_on(async {
        tokio::select! { biased;
            () = interrupted() => Err(Failure::Interrupted),
            done = async {
                match rig.store {
                    Kind::Sqlite => rounds::<Sqlite>(rig, &mut tally).await,
                    Kind::Mongodb => rounds::<Mongo>(rig, &mut tally).await,
                }
            } => done,
        }
    });
    runtime.shutdown_background();
    tally.seconds = begun.elapsed().as_secs_f64();
    report(rig, &tally, done)
}

async fn rounds<S: TestedStore>(rig: &Rig, tally: &mut Tally) -> Result<(), Failure> {
    let bar = ProgressBar::new(rig.kills);
    if let Ok(style) = ProgressStyle::with_template("{bar:40} {pos}/{len} kills, {elapsed}") {
        bar.set_style(style);
    }
    let dice = Dice::new(tally.seed);
    let environment = S::Environment::create().await?;
    for attacks in plan::plan(rig.store, rig.kills, &dice) {
        let directory = tempfile::Builder::new()
            .prefix("leftfold-rig-")
            .tempdir()
            .map_err(|error| Failure::rig("creating a temporary directory", error))?;
        let done = round::run::<S>(rig, &environment, directory.path(), &attacks, &dice, tally, &bar).await;
        tally.rounds += 1;
        match done {
            Ok(()) => clear(directory)?,
            Err(Failure::Interrupted) => return Err(Failure::Interrupted),
            Err(failure) => {
                let directory = directory.keep();
                let kept = match environment.keep(&environment.place(&directory), &directory).await {
                    Ok(()) => format!("the store is kept in {}", directory.display()),
                    Err(failure) => format!("the store could not be kept: {failure}"),
                };
                return Err(match failure {
                    Failure::Violated(violations) => {
                        Failure::Violated(violations.into_iter().chain([kept]).collect())
                    }
                    failure => Failure::Rig(format!("{failure}\n{kept}")),
                });
            }
        }
    }
    bar.finish_and_clear();
    environment.end().await
}

fn clear(directory: TempDir) -> Result<(), Failure> {
    let path = directory.path().display().to_string();
    directory.close().map_err(|error| Failure::rig(format!("removing {path}"), error))
}

/// Reports the results and the violations.
fn report(rig: &Rig, tally: &Tally, done: Result<(), Failure>) -> Result<ExitCode, Failure> {
    let violations = match done {
        Ok(()) => Vec::new(),
        Err(Failure::Violated(violations)) => violations,
        Err(failure) => return Err(failure),
    };
    tally.print();
    if rig.json {
        let written = tally.print_json(violations.is_empty(), &violations);
        written.map_err(|error| Failure::rig("writing the summary", error))?;
    }
    if !violations.is_empty() {
        eprintln!("violations (the same seed makes the same choices, but not at the same moments):");
        return Err(Failure::Violated(violations));
    }
    let missing = tally.missing();
    if rig.kills >= plan::KILLS_PER_ROUND as u64 && !missing.is_empty() {
        return Err(Failure::rig("the run proves too little", missing.join(", ")));
    }
    eprintln!("nothing was lost, duplicated or swapped");
    Ok(ExitCode::SUCCESS)
}

/// Waits for SIGTERM or Ctrl-C.
async fn interrupted() {
    match signal(SignalKind::terminate()) {
        Ok(mut terminate) => {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = tokio::signal::ctrl_c() => {}
            }
        }
        Err(_) => drop(tokio::signal::ctrl_c().await),
    }
}

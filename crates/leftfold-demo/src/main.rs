//! A demonstration: many events, delivered twice, out of order or not at all, workers that are
//! killed again and again, and folds that fail. At the end it compares every document with an
//! independent fold of the log.

mod args;
mod demo;
mod event_plan;
mod feeds;
mod flaky;
mod progress;
mod random;
mod repairs;
mod report;
mod scratch;
mod shop;
mod verify;
mod workers;
mod writers;

use std::process::ExitCode;

use clap::Parser as _;
use leftfold_terminal::{Exit, Failure, Location, Out, StoreCommand, finish, usage_error};
use tracing_subscriber::EnvFilter;

use crate::args::{Cli, Command, DemoArgs};
use crate::scratch::Scratch;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return usage_error(&error),
    };
    // `RUST_LOG=leftfold=debug` shows more.
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("error"));
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_env_filter(filter).init();
    let mut out = Out::new(cli.json);
    let answer = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => {
            let answer = runtime.block_on(run(cli, &mut out));
            runtime.shutdown_background();
            answer
        }
        Err(error) => Err(Failure::new(Exit::Store, format!("starting the runtime: {error}"))),
    };
    finish(answer, &mut out).into()
}

async fn run(cli: Cli, out: &mut Out) -> Result<Exit, Failure> {
    let Cli { store, demo, command, .. } = cli;
    match (store, command) {
        (Some(store), command) => store.run(OnStore { demo, command, out }).await,
        (None, Some(_)) => Err(Failure::new(Exit::Usage, "no store is named; name one with --store")),
        (None, None) => {
            let scratch = Scratch::new()?;
            let report = demo::run(&scratch.file, &demo).await;
            scratch.clear().await;
            report?.end(out)
        }
    }
}

/// A command on a permanent store.
struct OnStore<'o> {
    demo: DemoArgs,
    command: Option<Command>,
    out: &'o mut Out,
}

impl StoreCommand for OnStore<'_> {
    async fn run<L: Location>(self, location: &L) -> Result<Exit, Failure> {
        match self.command {
            None => {
                let mut report = demo::run(location, &self.demo).await?;
                report.store = Some(location.to_string());
                report.end(self.out)
            }
            Some(Command::Verify) => {
                let store = location.open_existing().await?;
                verify::verify(&store).await?.end(self.out)
            }
            Some(Command::Worker(worker)) => workers::work(location, &worker).await,
        }
    }
}

//! The command `leftfold`.

mod args;
mod demo;
mod exit;
mod ops;
mod output;
mod shop;

use std::io::{self, Write as _};
use std::process::ExitCode;

use clap::Parser as _;
use serde_json::json;
use tracing_subscriber::EnvFilter;

use crate::args::{Cli, Command};
use crate::exit::{Exit, Failure};
use crate::output::Out;

fn main() -> ExitCode {
    let cli = Cli::parse();
    // Logs go to standard error: `RUST_LOG=leftfold=debug leftfold …` shows more of them.
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("error"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr).init();
    let mut out = Out::new(cli.json);
    let answer = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => {
            let answer = runtime.block_on(run(cli.command, &mut out));
            runtime.shutdown_background();
            answer
        }
        Err(error) => Err(Failure::new(Exit::Store, format!("starting the runtime: {error}"))),
    };
    finish(answer, &mut out).into()
}

async fn run(command: Command, out: &mut Out) -> Result<Exit, Failure> {
    match command {
        Command::Demo(args) => demo::run(&args, out).await,
        Command::Status(args) => ops::status(&args, out).await,
        Command::Get(args) => ops::get(args, out).await,
        Command::Parked(args::Parked::List(args)) => ops::list_parked(&args, out).await,
        Command::Parked(args::Parked::Retry(args)) => ops::retry_parked(&args, out).await,
        Command::Explain(args) => ops::explain(&args, out).await,
        Command::Refold(args) => ops::refold(&args, out).await,
        Command::DemoVerify(args) => demo::verify(&args, out).await,
        Command::DemoWorker(args) => demo::work(&args).await,
    }
}

/// Says what went wrong, to people and, if nothing else was said, to machines.
fn finish(answer: Result<Exit, Failure>, out: &mut Out) -> Exit {
    let exit = match answer {
        Ok(exit) => exit,
        Err(failure) if failure.quiet => return Exit::Done,
        Err(failure) => {
            let _ = writeln!(io::stderr(), "error: {failure}");
            match out.value(&json!({ "error": failure.to_string() })) {
                Ok(()) => failure.exit,
                Err(error) => Failure::from(error).exit,
            }
        }
    };
    match out.flush().map_err(Failure::from) {
        Ok(()) => exit,
        Err(failure) if failure.quiet => exit,
        Err(failure) => {
            let _ = writeln!(io::stderr(), "error: {failure}");
            failure.exit
        }
    }
}

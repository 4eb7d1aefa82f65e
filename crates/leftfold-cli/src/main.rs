//! The command `leftfold`.

mod args;
mod daemon;
mod log;
mod ops;
mod projections;
mod run;

use std::process::ExitCode;

use clap::Parser as _;
use leftfold_terminal::{Exit, Failure, Out, finish, usage_error};

use crate::args::{Cli, Command};

fn main() -> ExitCode {
    if let Some(exit) = daemon::run_if_started_as_worker() {
        return exit;
    }
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return usage_error(&error),
    };
    if matches!(cli.command, Command::Serve(_)) {
        daemon::fix_thresholds();
    }
    let mut out = Out::new(cli.json);
    let answer = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => {
            let answer = runtime.block_on(run::run(cli, &mut out));
            runtime.shutdown_background();
            answer
        }
        Err(error) => Err(Failure::new(Exit::Store, format!("starting the runtime: {error}"))),
    };
    finish(answer, &mut out).into()
}

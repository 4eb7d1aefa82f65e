//! The command `leftfold`.

mod args;
mod daemon;
mod demo;
mod exit;
mod log;
mod models;
mod ops;
mod output;
mod place;

use std::io::{self, Write as _};
use std::process::ExitCode;

use clap::Parser as _;
use serde_json::json;

use crate::args::{Cli, Command};
use crate::daemon::Config;
use crate::exit::{Exit, Failure};
use crate::models::Models;
use crate::output::Out;
use crate::place::{Named, Place, without_secrets};

fn main() -> ExitCode {
    if let Some(exit) = daemon::run_if_started_as_worker() {
        return exit;
    }
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return refuse(&error),
    };
    if matches!(cli.command, Command::Serve(_)) {
        daemon::fix_thresholds();
    }
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

/// Prints a usage error, or the requested help or version.
fn refuse(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() || !error.to_string().contains("://") {
        let _ = error.print();
        return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(Exit::Usage as u8));
    }
    // The message repeats the arguments, which may contain a password.
    let _ = write!(io::stderr(), "{}", without_secrets(&error.to_string()));
    Exit::Usage.into()
}

async fn run(command: Command, out: &mut Out) -> Result<Exit, Failure> {
    if !matches!(command, Command::Serve(_)) {
        log::quiet()?;
    }
    let (named, models) = match command.store() {
        Some(store) => Models::choose(store).map(|(named, models)| (Some(named), models))?,
        None => (None, Models::Shop),
    };
    match (named, command) {
        (_, Command::Init(args)) => daemon::init(&args.directory, out),
        (_, Command::Token(args::Token::New(args))) => daemon::new_token(&args.name, &args.scopes, out),
        (_, Command::Test(args)) => {
            daemon::test(&Config::read(&args.file.config)?, args.projection.as_deref(), out)
        }
        (_, Command::Check(args)) => {
            let config = Config::read(&args.config)?;
            match config.place()? {
                Named::File(file) => daemon::check(&file, config, out).await,
                #[cfg(feature = "mongodb")]
                Named::MongoDb(database) => daemon::check(&database, config, out).await,
                Named::Unknown(why) => Err(Failure::new(Exit::Usage, why)),
            }
        }
        (_, Command::Doctor(store)) => ops::doctor(&store, out).await,
        (_, Command::Serve(args)) => {
            let config = Config::read(&args.file.config)?;
            let logs = log::start(&config)?;
            let served = match config.place()? {
                Named::File(file) => {
                    daemon::serve(&file, &args.file.config, config, args.insecure, out).await
                }
                #[cfg(feature = "mongodb")]
                Named::MongoDb(database) => {
                    daemon::serve(&database, &args.file.config, config, args.insecure, out).await
                }
                Named::Unknown(why) => Err(Failure::new(Exit::Usage, why)),
            };
            logs.end().await;
            served
        }
        (_, Command::Demo(args)) => match &args.store {
            None => demo::run_for_once(&args, out).await,
            Some(Named::File(file)) => demo::run(file, &args, out).await,
            #[cfg(feature = "mongodb")]
            Some(Named::MongoDb(database)) => demo::run(database, &args, out).await,
            Some(Named::Unknown(why)) => Err(Failure::new(Exit::Usage, why.clone())),
        },
        (Some(Named::File(file)), command) => run_on(&file, &models, command, out).await,
        #[cfg(feature = "mongodb")]
        (Some(Named::MongoDb(database)), command) => run_on(&database, &models, command, out).await,
        (Some(Named::Unknown(why)), _) => Err(Failure::new(Exit::Usage, why)),
        (None, _) => Err(Failure::new(Exit::Usage, "name a store with --store")),
    }
}

async fn run_on<P: Place>(
    place: &P,
    models: &Models,
    command: Command,
    out: &mut Out,
) -> Result<Exit, Failure> {
    match command {
        // These commands name no store.
        Command::Demo(_)
        | Command::Init(_)
        | Command::Serve(_)
        | Command::Check(_)
        | Command::Doctor(_)
        | Command::Test(_)
        | Command::Token(_) => Ok(Exit::Usage),
        Command::Status(args) => ops::status(place, models, &args, out).await,
        Command::Get(args) => ops::get(place, models, args, out).await,
        Command::Parked(args::Parked::List(args)) => ops::list_parked(place, models, &args, out).await,
        Command::Parked(args::Parked::Retry(args)) => ops::retry_parked(place, models, &args, out).await,
        Command::Held(args::Held::List(_)) => ops::list_held(place, out).await,
        Command::Held(args::Held::Show(args)) => ops::show_held(place, &args, out).await,
        Command::Held(args::Held::Skip(args)) => ops::skip(place, &args, out).await,
        Command::Conflicts(args::Conflicts::List(_)) => ops::list_conflicts(place, out).await,
        Command::Conflicts(args::Conflicts::Show(args)) => ops::show_conflict(place, &args, out).await,
        Command::Conflicts(args::Conflicts::Keep(args)) => ops::keep_stored(place, &args, out).await,
        Command::Conflicts(args::Conflicts::Discard(args)) => ops::discard_conflict(place, &args, out).await,
        Command::Rejected(args::Rejected::List(_)) => ops::list_rejected(place, out).await,
        Command::Rejected(args::Rejected::Show(args)) => ops::show_rejected(place, &args, out).await,
        Command::Rejected(args::Rejected::Resubmit(args)) => ops::resubmit_rejected(place, &args, out).await,
        Command::Rejected(args::Rejected::Forget(args)) => ops::forget_rejected(place, &args, out).await,
        Command::Tasks(args::Tasks::List(args)) => ops::list_tasks(place, &args, out).await,
        Command::Tasks(args::Tasks::Count(_)) => ops::count_tasks(place, out).await,
        Command::Tasks(args::Tasks::Show(args)) => ops::show_task(place, &args, out).await,
        Command::Tasks(args::Tasks::Retry(args)) => ops::retry_tasks(place, &args, out).await,
        Command::Tasks(args::Tasks::Pause(args)) => ops::pause_reaction(place, &args, true, out).await,
        Command::Tasks(args::Tasks::Resume(args)) => ops::pause_reaction(place, &args, false, out).await,
        Command::Explain(args) => ops::explain(place, models, &args, out).await,
        Command::Refold(args) => ops::refold(place, models, &args, out).await,
        Command::Rebuild(args) => ops::rebuild(place, models, &args, out).await,
        Command::Undo(args) => ops::undo(place, models, &args, out).await,
        Command::Audit(args) => ops::list_audit(place, &args, out).await,
        Command::Verify(args) => ops::verify(place, models, &args, out).await,
        Command::DemoVerify(_) => demo::verify(place, out).await,
        Command::DemoWorker(args) => demo::work(place, &args).await,
    }
}

/// Reports a failure to people and, if there is no other output, to machines.
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

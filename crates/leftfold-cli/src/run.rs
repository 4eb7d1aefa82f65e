//! Runs a command: chooses the store and the projections, then calls the command's function.

use leftfold_terminal::{Exit, Failure, Location, Out, StoreCommand};

use crate::args::{Cli, Command, Conflicts, Held, Parked, Rejected, Tasks, Token};
use crate::projections::{Projections, configuration};
use crate::{daemon, log, ops};

pub(crate) async fn run(cli: Cli, out: &mut Out) -> Result<Exit, Failure> {
    let Cli { store, command, .. } = cli;
    if !matches!(command, Command::Serve(_)) {
        log::quiet()?;
    }
    let (location, projections) = match &command {
        Command::Init(args) => {
            store.refuse_both("init")?;
            return daemon::init(&args.directory, out);
        }
        Command::Token(Token::New(args)) => {
            store.refuse_both("token")?;
            return daemon::new_token(&args.name, &args.scopes, out);
        }
        Command::Test(args) => {
            store.refuse_store("test")?;
            return daemon::test(&configuration(&store)?, args.projection.as_deref(), out);
        }
        Command::Serve(_) | Command::Check => {
            store.refuse_store(if matches!(command, Command::Check) { "check" } else { "serve" })?;
            let config = configuration(&store)?;
            (config.location()?, Projections::Configured(Box::new(config)))
        }
        _ => Projections::choose(&store)?,
    };
    location.run(OnStore { command, projections, out }).await
}

/// A command with everything that it needs besides a store.
struct OnStore<'o> {
    command: Command,
    projections: Projections,
    out: &'o mut Out,
}

impl StoreCommand for OnStore<'_> {
    async fn run<L: Location>(self, location: &L) -> Result<Exit, Failure> {
        let Self { command, projections, out } = self;
        match command {
            // These commands use no store.
            Command::Init(_) | Command::Test(_) | Command::Token(_) => Ok(Exit::Usage),
            Command::Serve(args) => {
                let config = projections.into_config("serve")?;
                let logs = log::start(&config)?;
                let served = daemon::serve(location, config, args.insecure, out).await;
                logs.end().await;
                served
            }
            Command::Check => daemon::check(location, projections.into_config("check")?, out).await,
            Command::Doctor => ops::doctor(location, &projections, out).await,
            Command::Status(args) => ops::status(location, &projections, &args, out).await,
            Command::Get(args) => ops::get(location, &projections, args, out).await,
            Command::Parked(Parked::List(args)) => ops::list_parked(location, &projections, &args, out).await,
            Command::Parked(Parked::Retry(args)) => {
                ops::retry_parked(location, &projections, &args, out).await
            }
            Command::Explain(args) => ops::explain(location, &projections, &args, out).await,
            Command::Refold(args) => ops::refold(location, &projections, &args, out).await,
            Command::Rebuild(args) => ops::rebuild(location, &projections, &args, out).await,
            Command::Undo(args) => ops::undo(location, &projections, &args, out).await,
            Command::Verify(args) => ops::verify(location, &projections, &args, out).await,
            Command::Held(args) => held(location, args, out).await,
            Command::Conflicts(args) => conflicts(location, args, out).await,
            Command::Rejected(args) => rejected(location, args, out).await,
            Command::Tasks(args) => tasks(location, args, out).await,
            Command::Audit(args) => ops::list_audit(location, &args, out).await,
        }
    }
}

async fn held(location: &impl Location, command: Held, out: &mut Out) -> Result<Exit, Failure> {
    match command {
        Held::List => ops::list_held(location, out).await,
        Held::Show(args) => ops::show_held(location, &args, out).await,
        Held::Skip(args) => ops::skip(location, &args, out).await,
    }
}

async fn conflicts(location: &impl Location, command: Conflicts, out: &mut Out) -> Result<Exit, Failure> {
    match command {
        Conflicts::List => ops::list_conflicts(location, out).await,
        Conflicts::Show(args) => ops::show_conflict(location, &args, out).await,
        Conflicts::Keep(args) => ops::keep_stored(location, &args, out).await,
        Conflicts::Discard(args) => ops::discard_conflict(location, &args, out).await,
    }
}

async fn rejected(location: &impl Location, command: Rejected, out: &mut Out) -> Result<Exit, Failure> {
    match command {
        Rejected::List => ops::list_rejected(location, out).await,
        Rejected::Show(args) => ops::show_rejected(location, &args, out).await,
        Rejected::Resubmit(args) => ops::resubmit_rejected(location, &args, out).await,
        Rejected::Forget(args) => ops::delete_rejected(location, &args, out).await,
    }
}

async fn tasks(location: &impl Location, command: Tasks, out: &mut Out) -> Result<Exit, Failure> {
    match command {
        Tasks::List(args) => ops::list_tasks(location, &args, out).await,
        Tasks::Count => ops::count_tasks(location, out).await,
        Tasks::Show(args) => ops::show_task(location, &args, out).await,
        Tasks::Retry(args) => ops::retry_tasks(location, &args, out).await,
        Tasks::Pause(args) => ops::pause_reaction(location, &args, out).await,
        Tasks::Resume(args) => ops::resume_reaction(location, &args, out).await,
    }
}

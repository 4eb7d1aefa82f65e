//! Reactions in processes that are killed: some only plan, some only run, some do both.

mod book;
mod check;
mod failed;
mod garden;
mod handlers;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use leftfold::react::{Reactor, ReactorHandle};
use tokio::time::sleep;

pub(crate) use self::book::Effect;
pub(crate) use self::check::{Done, Told, check};
pub(crate) use self::failed::{is_unreadable, may_fail, outline};
pub(crate) use self::garden::{Garden, Item, ItemKind};
pub(crate) use self::handlers::{GARBLED, HOLD, ITEM, ITEMS, LARGE, MAX_RETRY_DELAY, POISON, summary};
use crate::args::Process;
use crate::failure::Failure;
use crate::messages::{Did, Said, say};
use crate::process::{GRACE, ended, orders};
use crate::react::book::Book;
use crate::role::Role;
use crate::store::{Rigged, patiently};

/// The interval at which a process reports its counts.
const SAY_EVERY: Duration = Duration::from_millis(250);
/// The time that handlers have to finish when their process is told to end.
const DEADLINE: Duration = Duration::from_secs(2);

/// Plans, runs, or does both, until the input ends.
pub(crate) async fn react<S: Rigged>(args: &Process, role: Role) -> Result<(), Failure> {
    let mut orders = orders(args)?;
    let reacting = patiently::<S, _, _>(|| start::<S>(args, role)).await?;
    loop {
        tokio::select! { biased;
            () = ended(&mut orders) => break,
            () = sleep(SAY_EVERY) => tell(&reacting)?,
        }
    }
    let late = |_| Failure::rig(format!("stopping {}", args.name), "it did not end in time");
    tokio::time::timeout(GRACE, reacting.stop(DEADLINE)).await.map_err(late)?;
    tell(&reacting)
}

async fn start<S: Rigged>(args: &Process, role: Role) -> leftfold::Result<ReactorHandle<S>> {
    let reactor = with_all(S::at(&args.place).await?, &args.beside, &args.name)?;
    let reactor = reactor.worker(&args.name).plans(role != Role::Runner);
    let reactor = if role == Role::Planner { reactor.runs(Vec::<String>::new()) } else { reactor };
    reactor.start().await
}

/// Starts a reactor with all reactions that neither plans nor runs. It can tell whether work is
/// left.
pub(crate) async fn onlooker<S: Rigged>(store: &S, beside: &Path) -> leftfold::Result<ReactorHandle<S>> {
    let reactor = with_all(store.clone(), beside, "onlooker")?;
    reactor.plans(false).runs(Vec::<String>::new()).start().await
}

fn with_all<S: Rigged>(store: S, beside: &Path, name: &str) -> leftfold::Result<Reactor<S>> {
    let book = Arc::new(Book::open(beside, name)?);
    let reactor = Reactor::on(store).concurrency(32);
    Ok(handlers::all::<S>(&book).into_iter().fold(reactor, Reactor::reaction))
}

fn tell<S: Rigged>(reacting: &ReactorHandle<S>) -> Result<(), Failure> {
    let counts = reacting.counts();
    let did = Did {
        planned: counts.planned,
        claimed: counts.claimed,
        done: counts.done,
        stale: counts.stale,
        failed: counts.failed,
        retried: counts.retried,
        takeovers: counts.takeovers,
        lost: counts.lost,
    };
    say(&Said::Did(did)).map_err(|error| Failure::rig("saying what was done", error))
}

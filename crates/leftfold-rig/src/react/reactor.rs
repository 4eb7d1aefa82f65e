//! A process that plans or runs reactions.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use leftfold::react::{Reactor, ReactorHandle};
use tokio::time::sleep;

use super::effect_file::EffectFile;
use super::handlers;
use crate::args::Process;
use crate::failure::Failure;
use crate::messages::{Message, ReactorCounts, send};
use crate::process::{GRACE, ended, orders};
use crate::role::Role;
use crate::store::{TestedStore, patiently};

/// The interval at which a process reports its counts.
const REPORT_EVERY: Duration = Duration::from_millis(250);
/// The time that handlers have to finish when their process ends.
const DEADLINE: Duration = Duration::from_secs(2);

/// Plans, runs, or does both, until the input ends.
pub(crate) async fn react<S: TestedStore>(args: &Process, role: Role) -> Result<(), Failure> {
    let mut orders = orders(args)?;
    let handle = patiently::<S, _, _>(|| start::<S>(args, role)).await?;
    loop {
        tokio::select! { biased;
            () = ended(&mut orders) => break,
            () = sleep(REPORT_EVERY) => report(&handle)?,
        }
    }
    let late = |_| Failure::rig(format!("stopping {}", args.name), "it did not end in time");
    tokio::time::timeout(GRACE, handle.stop(DEADLINE)).await.map_err(late)?;
    report(&handle)
}

async fn start<S: TestedStore>(args: &Process, role: Role) -> leftfold::Result<ReactorHandle<S>> {
    let reactor = with_all(S::at(&args.place).await?, &args.directory, &args.name)?;
    let reactor = reactor.worker(&args.name).plans(role != Role::Runner);
    let reactor = if role == Role::Planner { reactor.runs(Vec::<String>::new()) } else { reactor };
    reactor.start().await
}

/// Starts a reactor with all reactions that neither plans nor runs. It can tell whether work is
/// left.
pub(crate) async fn onlooker<S: TestedStore>(
    store: &S,
    directory: &Path,
) -> leftfold::Result<ReactorHandle<S>> {
    let reactor = with_all(store.clone(), directory, "onlooker")?;
    reactor.plans(false).runs(Vec::<String>::new()).start().await
}

fn with_all<S: TestedStore>(store: S, directory: &Path, name: &str) -> leftfold::Result<Reactor<S>> {
    let effects = Arc::new(EffectFile::open(directory, name)?);
    let reactor = Reactor::on(store).concurrency(32);
    Ok(handlers::all::<S>(&effects).into_iter().fold(reactor, Reactor::reaction))
}

fn report<S: TestedStore>(handle: &ReactorHandle<S>) -> Result<(), Failure> {
    let counts = handle.counts();
    let counts = ReactorCounts {
        planned: counts.planned,
        claimed: counts.claimed,
        done: counts.done,
        stale: counts.stale,
        failed: counts.failed,
        retried: counts.retried,
        takeovers: counts.takeovers,
        lost: counts.lost,
    };
    send(&Message::Counts(counts)).map_err(|error| Failure::rig("reporting counts", error))
}

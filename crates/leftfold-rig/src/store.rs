//! The stores that can be put to the test. Everything that differs between them is here.

mod effects;
mod mongodb;
mod sqlite;

use std::future::Future;
use std::path::Path;
use std::time::Duration;

use clap::ValueEnum;
use leftfold::{Collection, Mark, Result, Sequences, Store};
use serde::Serialize;
use tokio::time::Instant;

use crate::crew::pause;
use crate::failure::Failure;
use crate::points;
use crate::role::Role;

pub(crate) use self::effects::Effects;

/// Which store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Kind {
    #[default]
    Sqlite,
    Mongodb,
}

/// What the rig needs to know of a store beyond what every store does.
pub(crate) trait Rigged: Store + Sequences + Effects {
    /// What its stores stand on.
    type Ground: Ground;
    /// What a snapshot is read from.
    type Frozen: Frozen;

    /// How long it may be away when a server was killed.
    const AWAY: Duration;
    /// Whether a process that stands still in the middle of a write keeps all others from writing.
    const LOCKS: bool;
    /// Whether a read sees all that others have read before it. Where servers take each other's place, the next one may
    /// not know yet how much is safe to show.
    const READS_KEEP_UP: bool;

    /// Opens, or makes, what is at this place.
    fn at(place: &str) -> impl Future<Output = Result<Self>> + Send;

    /// Who has a lease that has not ended: projections with their owners.
    fn holders(&self) -> impl Future<Output = Result<Vec<(String, String)>>> + Send;

    /// Where the checkpoints of these are, and as of when: of two answers, the one with the higher number is the later.
    fn marks(&self, projections: &[Collection]) -> impl Future<Output = Result<(u64, Vec<Mark>)>> + Send;

    /// All that is stored, as it is at one instant. What it needs goes into this directory.
    fn snapshot(&self, beside: &Path) -> impl Future<Output = Result<Self::Frozen>> + Send;

    /// Closes it, and waits until that is done.
    fn shut(self) -> impl Future<Output = ()> + Send;

    /// What the store itself finds to be damaged.
    fn damage(&self) -> impl Future<Output = Result<Option<String>>> + Send;
}

/// A store in which nothing changes any more.
pub(crate) trait Frozen: Send {
    type Store: Store;

    fn store(&self) -> &Self::Store;

    /// Of two snapshots, the one with the higher number is the later.
    fn instant(&self) -> u64;

    /// Removes it, or keeps it in the directory it was made in.
    fn end(self, keep: bool) -> impl Future<Output = Result<()>> + Send;
}

/// What all stores of a run stand on: servers, or nothing.
pub(crate) trait Ground: Sized {
    /// Makes it.
    fn lay() -> impl Future<Output = Result<Self, Failure>>;

    /// Where a new store is to be that has this directory to itself.
    fn place(&self, directory: &Path) -> String;

    /// The server on which everything depends now, when all that were killed are back.
    fn primary(&self) -> impl Future<Output = Result<usize, Failure>>;

    /// Kills a server, which comes back by itself.
    fn kill(&self, server: usize) -> impl Future<Output = Result<(), Failure>>;

    /// Waits until all servers that were killed are back.
    fn settle(&self) -> impl Future<Output = Result<(), Failure>>;

    /// Puts into its directory what is to be kept of a store, when something went wrong.
    fn keep(&self, place: &str, directory: &Path) -> impl Future<Output = Result<(), Failure>>;

    /// Ends it.
    fn end(self) -> impl Future<Output = Result<(), Failure>>;
}

/// A place where a process can be killed.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) name: &'static str,
    pub(crate) role: Role,
    /// The points it passes on its way, one after the other; it is at the last.
    pub(crate) passes: &'static [&'static str],
}

impl Kind {
    /// As it is given on the command line.
    pub(crate) fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }

    /// The places where processes are killed.
    pub(crate) fn places(self) -> &'static [Place] {
        match self {
            Self::Sqlite => sqlite::PLACES,
            Self::Mongodb => mongodb::PLACES,
        }
    }

    /// Where a worker has a batch ready and holds no lock: one that is stopped there goes on with old data.
    pub(crate) fn before_batch(self) -> &'static Place {
        &self.places()[0]
    }

    /// Where workers, producers, feeders and handlers are about to commit.
    pub(crate) fn commits(self) -> Vec<&'static Place> {
        let commits = |place: &&Place| {
            place.passes.last().is_some_and(|last| last.ends_with("::commit") || *last == points::COMPLETED)
        };
        let places = self.places().iter().filter(commits);
        places.filter(|place| place.role != Role::Operator).collect()
    }

    /// Where a planner has read changes, and has not planned anything.
    pub(crate) fn before_plan(self) -> &'static Place {
        match self {
            Self::Sqlite => &sqlite::BEFORE_PLAN,
            Self::Mongodb => &mongodb::BEFORE_PLAN,
        }
    }

    /// Whether it has servers that can be killed.
    pub(crate) fn has_servers(self) -> bool {
        match self {
            Self::Sqlite => false,
            Self::Mongodb => true,
        }
    }

    /// Returns whether it can have documents that can't be read.
    pub(crate) fn has_unreadable(self) -> bool {
        match self {
            Self::Sqlite => false,
            Self::Mongodb => true,
        }
    }

    /// All points.
    pub(crate) fn points(self) -> impl Iterator<Item = &'static str> {
        let mut points: Vec<_> = self.places().iter().flat_map(|place| place.passes).copied().collect();
        points.sort_unstable();
        points.dedup();
        points.into_iter()
    }
}

/// Asks a store again for as long as it may be away.
pub(crate) async fn patiently<S: Rigged, T, F>(ask: impl Fn() -> F) -> Result<T>
where
    F: Future<Output = Result<T>>,
{
    let begun = Instant::now();
    loop {
        match ask().await {
            Err(error) if error.is_transient() && begun.elapsed() < S::AWAY => pause().await,
            answer => return answer,
        }
    }
}

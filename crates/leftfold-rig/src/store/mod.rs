//! The stores under test. All differences between them are here.

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

/// The kind of store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Kind {
    #[default]
    Sqlite,
    Mongodb,
}

/// The operations that the rig needs beyond those of every store.
pub(crate) trait TestedStore: Store + Sequences + Effects {
    /// The servers or files below the stores.
    type Environment: Environment;
    /// The type of a snapshot.
    type Snapshot: Snapshot;

    /// The longest time that the store may be unavailable after a server was killed.
    const AWAY: Duration;
    /// `true` if a process that is stopped during a write keeps all others from writing.
    const LOCKS: bool;
    /// `true` if a read sees everything that earlier reads of others saw. After a failover, the new
    /// primary may not know yet how much is safe to show.
    const READS_KEEP_UP: bool;

    /// Opens or creates the store at this place.
    fn at(place: &str) -> impl Future<Output = Result<Self>> + Send;

    /// Returns the projections with a valid lease, with their owners.
    fn holders(&self) -> impl Future<Output = Result<Vec<(String, String)>>> + Send;

    /// Returns the checkpoints of these projections, and an instant. The higher of two instants is
    /// the later.
    fn marks(&self, projections: &[Collection]) -> impl Future<Output = Result<(u64, Vec<Mark>)>> + Send;

    /// Copies all data as of one instant. The copy may use this directory.
    fn snapshot(&self, directory: &Path) -> impl Future<Output = Result<Self::Snapshot>> + Send;

    /// Closes the store and waits until it is closed.
    fn shut(self) -> impl Future<Output = ()> + Send;

    /// Returns the damage that the store itself reports.
    fn damage(&self) -> impl Future<Output = Result<Option<String>>> + Send;
}

/// A store that no longer changes.
pub(crate) trait Snapshot: Send {
    type Store: Store;

    fn store(&self) -> &Self::Store;

    /// Returns the instant of the snapshot. The higher of two instants is the later.
    fn instant(&self) -> u64;

    /// Deletes the snapshot, or keeps it in the directory it was created in.
    fn end(self, keep: bool) -> impl Future<Output = Result<()>> + Send;
}

/// The environment of all stores of a run: servers, or nothing.
pub(crate) trait Environment: Sized {
    /// Creates the environment.
    fn create() -> impl Future<Output = Result<Self, Failure>>;

    /// Returns the place of a new store that has this directory to itself.
    fn place(&self, directory: &Path) -> String;

    /// Waits until all killed servers are back, and returns the primary.
    fn primary(&self) -> impl Future<Output = Result<usize, Failure>>;

    /// Kills a server, which then restarts by itself.
    fn kill(&self, server: usize) -> impl Future<Output = Result<(), Failure>>;

    /// Waits until all killed servers are back.
    fn settle(&self) -> impl Future<Output = Result<(), Failure>>;

    /// Saves a store's data into its directory after a failure.
    fn keep(&self, place: &str, directory: &Path) -> impl Future<Output = Result<(), Failure>>;

    /// Shuts the environment down.
    fn end(self) -> impl Future<Output = Result<(), Failure>>;
}

/// A place at which a process can be killed.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) name: &'static str,
    pub(crate) role: Role,
    /// The points that the process passes on its way, in order. The place is the last point.
    pub(crate) passes: &'static [&'static str],
}

impl Kind {
    /// Returns the name used on the command line.
    pub(crate) fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }

    /// Returns the places at which processes are killed.
    pub(crate) fn places(self) -> &'static [Place] {
        match self {
            Self::Sqlite => sqlite::PLACES,
            Self::Mongodb => mongodb::PLACES,
        }
    }

    /// Returns the place where a worker has a batch ready and holds no lock. A worker stopped there
    /// goes on with old data.
    pub(crate) fn before_batch(self) -> &'static Place {
        &self.places()[0]
    }

    /// Returns the places where workers, producers, feeders and handlers are about to commit.
    pub(crate) fn commits(self) -> Vec<&'static Place> {
        let commits = |place: &&Place| {
            place.passes.last().is_some_and(|last| last.ends_with("::commit") || *last == points::COMPLETED)
        };
        let places = self.places().iter().filter(commits);
        places.filter(|place| place.role != Role::Operator).collect()
    }

    /// Returns the place where a planner has read changes and planned nothing.
    pub(crate) fn before_plan(self) -> &'static Place {
        match self {
            Self::Sqlite => &sqlite::BEFORE_PLAN,
            Self::Mongodb => &mongodb::BEFORE_PLAN,
        }
    }

    /// Returns whether the store has servers that can be killed.
    pub(crate) fn has_servers(self) -> bool {
        match self {
            Self::Sqlite => false,
            Self::Mongodb => true,
        }
    }

    /// Returns whether the store can contain unreadable documents.
    pub(crate) fn has_unreadable(self) -> bool {
        match self {
            Self::Sqlite => false,
            Self::Mongodb => true,
        }
    }

    /// Returns all points.
    pub(crate) fn points(self) -> impl Iterator<Item = &'static str> {
        let mut points: Vec<_> = self.places().iter().flat_map(|place| place.passes).copied().collect();
        points.sort_unstable();
        points.dedup();
        points.into_iter()
    }
}

/// Retries a call for as long as the store may be unavailable.
pub(crate) async fn patiently<S: TestedStore, T, F>(ask: impl Fn() -> F) -> Result<T>
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

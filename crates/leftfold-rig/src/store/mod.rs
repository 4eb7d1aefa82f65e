//! The stores under test. All differences between them are here.

mod effects;
mod kind;
mod mongodb;
mod patience;
mod sqlite;

use std::future::Future;
use std::path::Path;
use std::time::Duration;

use leftfold::{Collection, Mark, Result, Sequences, Store};

use crate::failure::Failure;

pub(crate) use self::effects::Effects;
pub(crate) use self::kind::{Kind, Place};
pub(crate) use self::patience::patiently;

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

//! The stores that can be put to the test. Everything that differs between them is here.

mod sqlite;

use std::future::Future;

use clap::ValueEnum;
use leftfold::{Result, Store};
use serde::Serialize;

pub(crate) use self::sqlite::home;
use crate::role::Role;

/// Which store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Kind {
    #[default]
    Sqlite,
}

/// What the rig needs to know of a store beyond what every store does.
pub(crate) trait Rigged: Store {
    /// What a snapshot is read from.
    type Frozen: Frozen;

    /// Opens, or makes, what is at this place.
    fn at(place: &str) -> impl Future<Output = Result<Self>> + Send;

    /// Who has a lease that has not ended: projections with their owners.
    fn holders(&self) -> impl Future<Output = Result<Vec<(String, String)>>> + Send;

    /// All that is stored, as it is at one instant.
    fn snapshot(&self) -> impl Future<Output = Result<Self::Frozen>> + Send;

    /// Closes it, and waits until that is done.
    fn shut(self) -> impl Future<Output = ()> + Send;

    /// What the store itself finds to be damaged.
    fn damage(&self) -> impl Future<Output = Result<Option<String>>> + Send;
}

/// A store in which nothing changes any more.
pub(crate) trait Frozen: Send {
    type Store: Store;

    fn store(&self) -> &Self::Store;

    /// Removes it, or keeps it next to the store it is of.
    fn end(self, keep: bool) -> impl Future<Output = Result<()>> + Send;
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
    /// The places where processes are killed.
    pub(crate) fn places(self) -> &'static [Place] {
        match self {
            Self::Sqlite => sqlite::PLACES,
        }
    }

    /// Where a worker has a batch ready and holds no lock: one that is stopped there goes on with old data.
    pub(crate) fn before_batch(self) -> &'static Place {
        match self {
            Self::Sqlite => &sqlite::PLACES[0],
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

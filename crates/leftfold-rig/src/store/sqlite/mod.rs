//! SQLite: a temporary file.

mod effects;

use std::path::Path;
use std::time::Duration;

use leftfold::{Collection, Documents as _, Error, Kind, Mark, Result};
use leftfold_sqlite::Sqlite;
use rusqlite::{Connection, OpenFlags};
use tempfile::TempDir;

use super::{Environment, Place, Snapshot, TestedStore};
use crate::failure::Failure;
use crate::points;
use crate::role::Role::{Feeder, Operator, Planner, Producer, Runner, Worker};

const BEGIN: &str = "sqlite::begin";
const BATCH: &str = "sqlite::batch";
const MOVED: &str = "sqlite::checkpoint-moved";
const DOCUMENT: &str = "sqlite::document-written";
const DOCUMENTS: &str = "sqlite::documents-written";
const COMMIT: &str = "sqlite::commit";
const COMMITTED: &str = "sqlite::committed";
const CLAIM: &str = "sqlite::claim";
const CLAIMED: &str = "sqlite::claimed";
const EVENT: &str = "sqlite::event-inserted";
const EVENTS: &str = "sqlite::events-inserted";
const SETTLE: &str = "sqlite::settle";
const EVENTS_SETTLED: &str = "sqlite::events-settled";
const SETTLED: &str = "sqlite::settled";
const FOLLOWED: &str = "sqlite::documents-followed";
const FEED: &str = "sqlite::feed-read";
const DUE: &str = "sqlite::tasks-due";
const TASK: &str = "sqlite::task-saved";
const TASKS: &str = "sqlite::tasks-saved";
const INSIDE: &str = "sqlite::task-saved-inside";
const LEASE: &str = "sqlite::lease-taken";
const PLACE: &str = "sqlite::place-put";

/// The file name of a store in its directory.
const FILE: &str = "store.db";

/// The places. At the first one a worker has a batch ready and holds no lock.
pub(super) const PLACES: &[Place] = &[
    Place { name: "batch: before BEGIN", role: Worker, passes: &[BATCH, BEGIN] },
    Place { name: "batch: checkpoint moved, no document written", role: Worker, passes: &[MOVED] },
    Place { name: "batch: some documents written", role: Worker, passes: &[DOCUMENT] },
    Place { name: "batch: all documents written", role: Worker, passes: &[DOCUMENTS] },
    Place { name: "batch: before COMMIT", role: Worker, passes: &[DOCUMENTS, COMMIT] },
    Place { name: "batch: after COMMIT, before the response", role: Worker, passes: &[DOCUMENTS, COMMITTED] },
    Place { name: "claim: before its start", role: Worker, passes: &[CLAIM] },
    Place { name: "claim: before COMMIT", role: Worker, passes: &[CLAIMED, COMMIT] },
    Place { name: "claim: after COMMIT, before the response", role: Worker, passes: &[CLAIMED, COMMITTED] },
    Place { name: "append: before BEGIN", role: Producer, passes: &[BEGIN] },
    Place { name: "append: some events inserted", role: Producer, passes: &[EVENT] },
    Place { name: "append: before COMMIT", role: Producer, passes: &[EVENTS, COMMIT] },
    Place { name: "append: after COMMIT, before the response", role: Producer, passes: &[EVENTS, COMMITTED] },
    Place { name: "settlement: before its start", role: Feeder, passes: &[SETTLE] },
    Place { name: "settlement: events inserted, nothing held", role: Feeder, passes: &[EVENTS_SETTLED] },
    Place { name: "settlement: before COMMIT", role: Feeder, passes: &[SETTLED, COMMIT] },
    Place {
        name: "settlement: after COMMIT, before the response",
        role: Feeder,
        passes: &[SETTLED, COMMITTED],
    },
    Place { name: "repair: before COMMIT", role: Operator, passes: &[DOCUMENTS, COMMIT] },
    Place {
        name: "repair: after COMMIT, before the response",
        role: Operator,
        passes: &[DOCUMENTS, COMMITTED],
    },
    Place { name: "following: triggers created, before COMMIT", role: Planner, passes: &[FOLLOWED, COMMIT] },
    BEFORE_PLAN,
    Place { name: "plan: some tasks saved", role: Planner, passes: &[FEED, TASK] },
    Place { name: "plan: tasks saved, before COMMIT", role: Planner, passes: &[FEED, TASKS, COMMIT] },
    Place {
        name: "plan: after COMMIT, before the wake-up",
        role: Planner,
        passes: &[FEED, TASKS, COMMITTED],
    },
    Place { name: "lease: taken, before COMMIT", role: Planner, passes: &[LEASE, COMMIT] },
    Place { name: "place: stored, before COMMIT", role: Planner, passes: &[PLACE, COMMIT] },
    Place { name: "place: after COMMIT, before the response", role: Planner, passes: &[PLACE, COMMITTED] },
    Place { name: "run: some tasks claimed", role: Runner, passes: &[DUE, TASK] },
    Place { name: "run: tasks claimed, before COMMIT", role: Runner, passes: &[DUE, TASKS, COMMIT] },
    Place {
        name: "run: claims after COMMIT, before any handler",
        role: Runner,
        passes: &[DUE, TASKS, COMMITTED],
    },
    Place { name: "run: before an effect outside the store", role: Runner, passes: &[points::EFFECT] },
    Place { name: "run: after an effect outside the store", role: Runner, passes: &[points::EFFECTED] },
    Place { name: "finish: before COMMIT", role: Runner, passes: &[points::EFFECTED, TASKS, COMMIT] },
    Place { name: "finish: after COMMIT", role: Runner, passes: &[points::EFFECTED, TASKS, COMMITTED] },
    Place { name: "handler: before BEGIN", role: Runner, passes: &[points::BEGIN] },
    Place { name: "handler: task saved inside", role: Runner, passes: &[INSIDE] },
    Place { name: "handler: before COMMIT", role: Runner, passes: &[points::COMPLETED] },
    Place { name: "handler: after COMMIT", role: Runner, passes: &[points::COMMITTED] },
];

/// The place where a planner has read changes and holds no lock.
pub(super) const BEFORE_PLAN: Place =
    Place { name: "plan: changes read, nothing planned", role: Planner, passes: &[FEED] };

/// The environment of files, which is empty.
pub(crate) struct Files;

impl Environment for Files {
    async fn create() -> Result<Self, Failure> {
        Ok(Self)
    }

    fn place(&self, directory: &Path) -> String {
        directory.join(FILE).to_string_lossy().into_owned()
    }

    async fn primary(&self) -> Result<usize, Failure> {
        Err(Failure::rig("looking for a server to kill", "SQLite has none"))
    }

    async fn kill(&self, _: usize) -> Result<(), Failure> {
        Ok(())
    }

    async fn settle(&self) -> Result<(), Failure> {
        Ok(())
    }

    async fn keep(&self, _: &str, _: &Path) -> Result<(), Failure> {
        Ok(())
    }

    async fn end(self) -> Result<(), Failure> {
        Ok(())
    }
}

impl TestedStore for Sqlite {
    type Environment = Files;
    type Snapshot = Copy;

    const AWAY: Duration = Duration::ZERO;
    const LOCKS: bool = true;
    const READS_KEEP_UP: bool = true;

    async fn at(place: &str) -> Result<Self> {
        Self::open(place).await
    }

    async fn holders(&self) -> Result<Vec<(String, String)>> {
        read(self.path(), |file| {
            let sql = "SELECT projection, owner FROM leftfold_checkpoints \
                 WHERE owner IS NOT NULL AND lease_until > unixepoch('subsec')";
            let mut statement = file.prepare(sql)?;
            let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
            rows.collect()
        })
        .await
    }

    async fn marks(&self, projections: &[Collection]) -> Result<(u64, Vec<Mark>)> {
        let mut marks = Vec::new();
        for projection in projections {
            marks.push(self.checkpoint(projection).await?.mark);
        }
        Ok((0, marks))
    }

    async fn snapshot(&self, beside: &Path) -> Result<Copy> {
        let failed = |error| {
            Error::new(Kind::Store, "copying the store: could not create a directory").with_source(error)
        };
        let directory = tempfile::Builder::new().prefix("snapshot-").tempdir_in(beside).map_err(failed)?;
        let path = directory.path().join(FILE);
        let to = path.to_string_lossy().into_owned();
        read(self.path(), move |file| file.execute("VACUUM INTO ?1", [to])).await?;
        Ok(Copy { store: Self::open(path).await?, directory })
    }

    async fn shut(self) {
        self.close().await;
    }

    async fn damage(&self) -> Result<Option<String>> {
        let check = |file: &Connection| file.query_row("PRAGMA integrity_check", [], |row| row.get(0));
        let found: String = read(self.path(), check).await?;
        Ok(Some(found).filter(|found| found != "ok"))
    }
}

/// A copy of the file.
pub(crate) struct Copy {
    store: Sqlite,
    directory: TempDir,
}

impl Snapshot for Copy {
    type Store = Sqlite;

    fn store(&self) -> &Sqlite {
        &self.store
    }

    fn instant(&self) -> u64 {
        0
    }

    async fn end(self, keep: bool) -> Result<()> {
        self.store.close().await;
        if keep {
            let _ = self.directory.keep();
            return Ok(());
        }
        let failed = |error| Error::new(Kind::Store, "removing a copy of the store").with_source(error);
        self.directory.close().map_err(failed)
    }
}

/// Reads with a separate connection.
async fn read<T: Send + 'static>(
    path: &Path,
    read: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
) -> Result<T> {
    let path = path.to_owned();
    let failed = |error: Box<dyn std::error::Error + Send + Sync>| {
        Error::new(Kind::Store, format!("reading from the store with a separate connection: {error}"))
    };
    let done = tokio::task::spawn_blocking(move || {
        let file = Connection::open_with_flags(&path, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
        file.busy_timeout(Duration::from_secs(10))?;
        read(&file)
    });
    done.await.map_err(|error| failed(error.into()))?.map_err(|error| failed(error.into()))
}

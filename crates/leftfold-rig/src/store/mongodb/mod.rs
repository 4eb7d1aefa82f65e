//! MongoDB: a database in a replica set of three members. The rig kills its primary.

mod copy;
mod effects;
mod servers;

use std::path::Path;
use std::time::Duration;

use leftfold::{Collection, Error, Kind, Mark, Result};
use leftfold_mongodb::Mongo;
use mongodb::Database;
use mongodb::bson::{Document, Timestamp, doc};

use self::copy::Copy;
use self::servers::Servers;
use super::{Place, TestedStore};
use crate::points;
use crate::role::Role::{Feeder, Operator, Planner, Producer, Runner, Worker};

const BATCH: &str = "mongodb::batch";
const MOVED: &str = "mongodb::checkpoint-moved";
const INSERTED: &str = "mongodb::documents-inserted";
const WRITTEN: &str = "mongodb::documents-written";
const COMMIT: &str = "mongodb::commit";
const COMMITTED: &str = "mongodb::committed";
const CLAIM: &str = "mongodb::claim";
const CLAIMED: &str = "mongodb::claimed";
const APPEND: &str = "mongodb::append";
const HEAD: &str = "mongodb::head-moved";
const EVENTS: &str = "mongodb::events-inserted";
const SETTLE: &str = "mongodb::settle";
const EVENTS_SETTLED: &str = "mongodb::events-settled";
const SETTLED: &str = "mongodb::settled";
const FEED: &str = "mongodb::feed-read";
const DUE: &str = "mongodb::tasks-due";
const TASKS_INSERTED: &str = "mongodb::tasks-inserted";
const TASKS: &str = "mongodb::tasks-updated";
const INSIDE: &str = "mongodb::task-saved-inside";
const LEASE: &str = "mongodb::lease-taken";
const PLACE: &str = "mongodb::place-put";

/// The places. At the first one a worker has a batch ready and no transaction is open.
pub(super) const PLACES: &[Place] = &[
    Place { name: "batch: before the transaction", role: Worker, passes: &[BATCH] },
    Place { name: "batch: checkpoint moved, no document written", role: Worker, passes: &[MOVED] },
    Place { name: "batch: new documents inserted, none updated", role: Worker, passes: &[INSERTED] },
    Place { name: "batch: all documents written", role: Worker, passes: &[WRITTEN] },
    Place { name: "batch: before the commit", role: Worker, passes: &[WRITTEN, COMMIT] },
    Place {
        name: "batch: after the commit, before the response",
        role: Worker,
        passes: &[WRITTEN, COMMITTED],
    },
    Place { name: "claim: before its start", role: Worker, passes: &[CLAIM] },
    Place { name: "claim: stored, before the response", role: Worker, passes: &[CLAIMED] },
    Place { name: "append: before the transaction", role: Producer, passes: &[APPEND] },
    Place { name: "append: head moved, no event inserted", role: Producer, passes: &[HEAD] },
    Place { name: "append: events inserted", role: Producer, passes: &[EVENTS] },
    Place { name: "append: before the commit", role: Producer, passes: &[EVENTS, COMMIT] },
    Place {
        name: "append: after the commit, before the response",
        role: Producer,
        passes: &[EVENTS, COMMITTED],
    },
    Place { name: "settlement: before the transaction", role: Feeder, passes: &[SETTLE] },
    Place { name: "settlement: events inserted, nothing held", role: Feeder, passes: &[EVENTS_SETTLED] },
    Place { name: "settlement: before the commit", role: Feeder, passes: &[SETTLED, COMMIT] },
    Place {
        name: "settlement: after the commit, before the response",
        role: Feeder,
        passes: &[SETTLED, COMMITTED],
    },
    Place { name: "repair: before the commit", role: Operator, passes: &[WRITTEN, COMMIT] },
    Place {
        name: "repair: after the commit, before the response",
        role: Operator,
        passes: &[WRITTEN, COMMITTED],
    },
    BEFORE_PLAN,
    Place { name: "plan: new tasks inserted, none updated", role: Planner, passes: &[FEED, TASKS_INSERTED] },
    Place { name: "plan: tasks saved, before the wake-up", role: Planner, passes: &[FEED, TASKS] },
    Place { name: "lease: taken, before the response", role: Planner, passes: &[LEASE] },
    Place { name: "place: stored, before the response", role: Planner, passes: &[PLACE] },
    Place { name: "run: due tasks found, none claimed", role: Runner, passes: &[DUE] },
    Place { name: "run: tasks claimed, before any handler", role: Runner, passes: &[DUE, TASKS] },
    Place { name: "run: before an effect outside the store", role: Runner, passes: &[points::EFFECT] },
    Place { name: "run: after an effect outside the store", role: Runner, passes: &[points::EFFECTED] },
    Place {
        name: "finish: tasks saved, before the response",
        role: Runner,
        passes: &[points::EFFECTED, TASKS],
    },
    Place { name: "handler: before the transaction", role: Runner, passes: &[points::BEGIN] },
    Place { name: "handler: task saved inside", role: Runner, passes: &[INSIDE] },
    Place { name: "handler: before the commit", role: Runner, passes: &[points::COMPLETED] },
    Place { name: "handler: after the commit", role: Runner, passes: &[points::COMMITTED] },
];

/// The place where a planner has read changes.
pub(super) const BEFORE_PLAN: Place =
    Place { name: "plan: changes read, nothing planned", role: Planner, passes: &[FEED] };

impl TestedStore for Mongo {
    type Environment = Servers;
    type Snapshot = Copy;

    const AWAY: Duration = Duration::from_secs(20);
    const LOCKS: bool = false;
    const READS_KEEP_UP: bool = false;

    async fn at(place: &str) -> Result<Self> {
        Self::connect(place).await
    }

    async fn holders(&self) -> Result<Vec<(String, String)>> {
        let lasting = doc! { "owner": { "$exists": true }, "$expr": { "$gt": ["$until", "$$NOW"] } };
        let leases = self.database().collection::<Document>("leftfold.leases");
        let mut found = leases.find(lasting).await.map_err(away)?;
        let mut holders = Vec::new();
        while found.advance().await.map_err(away)? {
            let lease = found.deserialize_current().map_err(away)?;
            holders.push((text(&lease, "_id")?.to_owned(), text(&lease, "owner")?.to_owned()));
        }
        Ok(holders)
    }

    async fn marks(&self, projections: &[Collection]) -> Result<(u64, Vec<Mark>)> {
        let (at, checkpoints) = read(self.database(), copy::CHECKPOINTS, None).await?;
        let marks = projections
            .iter()
            .map(|projection| copy::of(&checkpoints, projection).map_or(Ok(Mark::default()), copy::mark));
        Ok((number(at), marks.collect::<Result<_>>()?))
    }

    async fn snapshot(&self, beside: &Path) -> Result<Copy> {
        Copy::of(self.database(), beside).await
    }

    async fn shut(self) {}

    async fn damage(&self) -> Result<Option<String>> {
        for name in copy::collections()? {
            let found = self.database().run_command(doc! { "validate": &name }).await.map_err(away)?;
            if !found.get_bool("valid").unwrap_or(false) {
                return Ok(Some(format!("{name}: {found}")));
            }
        }
        Ok(None)
    }
}

/// Reads all documents of a collection as of one instant: the given one, or the latest that can't
/// be rolled back.
async fn read(database: &Database, name: &str, at: Option<Timestamp>) -> Result<(Timestamp, Vec<Document>)> {
    let mut concern = doc! { "level": "snapshot" };
    concern.extend(at.map(|at| ("atClusterTime".to_owned(), at.into())));
    let all = doc! { "find": name, "sort": { "_id": 1 }, "batchSize": 1_000_000, "readConcern": concern };
    let mut response = database.run_command(all).await.map_err(away)?;
    let strange = || Error::new(Kind::Store, format!("reading {name} at an instant: unexpected response"));
    let cursor = response.get_document_mut("cursor").map_err(|_| strange())?;
    let at = cursor.get_timestamp("atClusterTime").map_err(|_| strange())?;
    if cursor.get_i64("id").is_ok_and(|more| more != 0) {
        return Err(Error::new(
            Kind::Store,
            format!("reading {name} at an instant: it is too large for one response"),
        ));
    }
    let documents = cursor.get_array_mut("firstBatch").map_err(|_| strange())?.drain(..);
    let documents = documents.map(|document| document.as_document().cloned().ok_or_else(strange));
    Ok((at, documents.collect::<Result<_>>()?))
}

/// Converts an instant to a number with the same order.
fn number(at: Timestamp) -> u64 {
    u64::from(at.time) << 32 | u64::from(at.increment)
}

/// Treats every error of the driver as an unavailable server. The caller reports an error that
/// persists.
fn away(error: mongodb::error::Error) -> Error {
    Error::new(Kind::Unavailable, "using the store with a separate connection").with_source(error)
}

fn text<'a>(document: &'a Document, field: &str) -> Result<&'a str> {
    let wrong = |error| Error::new(Kind::Format, format!("{field} of {document}: {error}"));
    document.get_str(field).map_err(wrong)
}

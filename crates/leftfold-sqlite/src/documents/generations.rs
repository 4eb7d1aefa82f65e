//! Generations of a collection: the tables that its name stands for.
//!
//! A switch is one transaction. The row with the live generation, the view, and the triggers that
//! record changes all move to the other tables together.

use leftfold::documents::Generations;
use leftfold::{Collection, Error, Result};
use rusqlite::{Connection, OptionalExtension as _, params};

use crate::connection::{Ran, Tx, Work};
use crate::documents::collections::{self, table};
use crate::encoding::text;
use crate::error::Failure;
use crate::react::feed::journal;
use crate::react::switch_followed;

/// Reads the generations of a collection.
pub(crate) fn known(file: &Connection, collection: &Collection) -> Result<Generations, Failure> {
    let sql = "SELECT known FROM leftfold_generations WHERE collection = ?1";
    let found: Option<String> =
        file.prepare_cached(sql)?.query_row([collection.base().as_str()], |row| row.get(0)).optional()?;
    let read =
        |text: String| serde_json::from_str(&text).map_err(|error| Failure::damaged(error.to_string()));
    found.map_or_else(|| Ok(Generations::default()), read)
}

/// Returns the stored collection that a name stands for: the live generation if it names none.
pub(crate) fn stored(file: &Connection, collection: &Collection) -> Result<Collection, Failure> {
    if collection.names_generation() {
        return Ok(collection.stored(0));
    }
    let sql = "SELECT live FROM leftfold_generations WHERE collection = ?1";
    let live: Option<u32> =
        file.prepare_cached(sql)?.query_row([collection.base().as_str()], |row| row.get(0)).optional()?;
    Ok(collection.stored(live.unwrap_or(0)))
}

/// Stores the generations of a collection, and switches if the live generation changes.
pub(super) struct PutWork {
    pub(super) collection: Collection,
    pub(super) seen: u64,
    pub(super) next: Generations,
}

impl Work for PutWork {
    type Answer = Result<bool>;

    const DOING: &'static str = "store the generations of a collection in";

    fn has_steps(&self) -> bool {
        true
    }

    fn run(&self, tx: &mut Tx<'_>) -> Result<Ran<Self::Answer>, Failure> {
        let Self { collection, seen, next } = self;
        let before = known(tx.connection, collection)?;
        if before.revision != *seen {
            return Ok(Ran::Keep(Ok(false)));
        }
        let sql = "INSERT INTO leftfold_generations (collection, live, known) VALUES (?1, ?2, ?3) \
            ON CONFLICT (collection) DO UPDATE SET live = excluded.live, known = excluded.known";
        let base = collection.base();
        tx.connection.prepare_cached(sql)?.execute(params![base.as_str(), next.live.number, text(next)?])?;
        if before.live.number != next.live.number {
            point!("generation-kept");
            collections::switch_view(tx.connection, &base)?;
            switch_followed(tx.connection, &base)?;
            tx.wrote_documents = true;
            tx.schema = Some(journal::schema(tx.connection)?);
        }
        point!("generation-switched");
        Ok(Ran::Keep(Ok(true)))
    }

    fn failed(error: Error) -> Self::Answer {
        Err(error)
    }
}

/// Deletes the tables and the checkpoint of a generation.
pub(super) struct DropWork(pub(super) Collection);

impl Work for DropWork {
    type Answer = Result<()>;

    const DOING: &'static str = "delete a generation of a collection in";

    fn has_steps(&self) -> bool {
        true
    }

    fn run(&self, tx: &mut Tx<'_>) -> Result<Ran<Self::Answer>, Failure> {
        let generation = stored(tx.connection, &self.0)?;
        if generation == stored(tx.connection, &self.0.base())? {
            let report = format!("{} is the live generation", self.0);
            return Err(Failure::refused("switch to another generation first", report));
        }
        for part in [&generation, &generation.streams()] {
            tx.connection.execute_batch(&format!("DROP TABLE IF EXISTS {}", table(part)))?;
        }
        let sql = "DELETE FROM leftfold_checkpoints WHERE projection = ?1";
        tx.connection.prepare_cached(sql)?.execute([generation.as_str()])?;
        Ok(Ran::Keep(Ok(())))
    }

    fn failed(error: Error) -> Self::Answer {
        Err(error)
    }
}

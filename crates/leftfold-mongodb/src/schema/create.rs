//! Creates missing collections and indexes, and checks those of an existing log.

use bson::{Document, doc};
use leftfold::{Error, Kind, Result};
use mongodb::Database;
use mongodb::error::ErrorKind;

use super::definitions::{EVENTS, HEADS, META, REJECTED, REJECTING, SKIPPED};
use super::format::{FORMAT, check_meta};
use super::indexes;
use crate::error::{Failure, is_duplicate};

/// Creates the log, or checks the existing one. Returns its number of partitions.
pub(crate) async fn create_log(db: &Database, wanted: Option<u16>, place: &str) -> Result<u16> {
    let failed = |failure: Failure| failure.to_error("create the log in", place);
    let metas = db.collection::<Document>(META);
    let mut made = false;
    loop {
        let meta = metas.find_one(doc! { "_id": "log" }).await.map_err(|error| failed(error.into()))?;
        if let Some(meta) = meta {
            let stored = check_meta(&meta, wanted, place)?;
            if !made {
                check_indexes(db, place).await?;
            }
            return Ok(stored);
        }
        create_collections(db, wanted.unwrap_or(1)).await.map_err(failed)?;
        made = true;
    }
}

/// Creates all collections and indexes of a log. The document that declares the log is written
/// last.
async fn create_collections(db: &Database, partitions: u16) -> Result<(), Failure> {
    for name in [EVENTS, HEADS, META] {
        create(db, name).await?;
    }
    db.collection::<Document>(EVENTS).create_indexes(indexes::of_the_log()).await?;
    let heads = db.collection::<Document>(HEADS);
    for partition in 0..partitions {
        let head = doc! { "$setOnInsert": { "position": 0_i64 } };
        heads.update_one(doc! { "_id": i32::from(partition) }, head).upsert(true).await?;
    }
    let rejecting = doc! { "$setOnInsert": { "changes": 0_i64 } };
    let metas = db.collection::<Document>(META);
    metas.update_one(doc! { "_id": REJECTING }, rejecting).upsert(true).await?;
    let meta = doc! { "_id": "log", "format": FORMAT, "partitions": i32::from(partitions) };
    match metas.insert_one(meta).await {
        Err(error) if !is_duplicate(&error) => Err(error.into()),
        // Another process may have been faster, with another number of partitions. The caller reads
        // the stored number next.
        _ => Ok(()),
    }
}

/// Creates the sequencer's collections and indexes if they are missing.
pub(crate) async fn create_sequences(db: &Database) -> Result<(), Failure> {
    for (collection, index) in indexes::of_sequences() {
        db.collection::<Document>(collection).create_index(index).await?;
    }
    for name in [SKIPPED, REJECTED] {
        create(db, name).await?;
    }
    Ok(())
}

/// Checks the unique indexes of the log. Without them it could hold an event twice.
async fn check_indexes(db: &Database, place: &str) -> Result<()> {
    let found = indexes::there(db, EVENTS).await;
    let found = found.map_err(|failure| failure.to_error("list the indexes in", place))?;
    for index in indexes::of_the_log() {
        if !found.iter().any(|found| indexes::is_same(found, &index)) {
            let message = format!(
                "could not open the log in {place}: its unique index on {} is missing or differs, so events could be \
                 stored twice; {}",
                index.keys,
                indexes::make_by_hand(EVENTS, &index)
            );
            return Err(Error::new(Kind::Format, message));
        }
    }
    Ok(())
}

/// Creates a collection if it does not exist.
pub(crate) async fn create(db: &Database, name: &str) -> Result<(), Failure> {
    const EXISTS: i32 = 48;
    match db.create_collection(name).await {
        Err(error) => match &*error.kind {
            ErrorKind::Command(command) if command.code == EXISTS => Ok(()),
            _ => Err(error.into()),
        },
        Ok(()) => Ok(()),
    }
}

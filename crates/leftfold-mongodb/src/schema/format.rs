//! The format of a log and its number of partitions: reading and checking them.

use bson::{Document, doc};
use leftfold::{Error, Kind, Result};
use mongodb::Database;

use super::MAX_PARTITIONS;
use super::definitions::META;
use crate::connection::no_transactions;
use crate::error::Failure;

/// The storage format. It increases when older versions can't read the data of newer ones.
pub(crate) const FORMAT: i32 = 1;

/// Fails if there is no log yet.
pub(crate) async fn check_existing(db: &Database, transactions: bool, place: &str) -> Result<()> {
    if !transactions {
        return Err(no_transactions(place));
    }
    let failed = |error: mongodb::error::Error| Failure::from(error).to_error("look for a log in", place);
    let found = db.collection::<Document>(META).find_one(doc! { "_id": "log" }).await.map_err(failed)?;
    if found.is_some() {
        return Ok(());
    }
    let message = format!(
        "could not open the log in {place}: there is none yet; check the database's name in the URL, or append an event \
         first"
    );
    Err(Error::new(Kind::Store, message))
}

/// Returns the number of partitions of the existing log. Fails if it can't be read.
pub(crate) async fn stored_partitions(db: &Database, wanted: Option<u16>, place: &str) -> Result<u16> {
    let failed = |error: mongodb::error::Error| Failure::from(error).to_error("look for a log in", place);
    let meta = db.collection::<Document>(META).find_one(doc! { "_id": "log" }).await.map_err(failed)?;
    check_meta(&meta.unwrap_or_default(), wanted, place)
}

/// Checks the format of a log and its number of partitions, and returns that number.
pub(super) fn check_meta(meta: &Document, wanted: Option<u16>, place: &str) -> Result<u16> {
    let format = meta.get_i32("format").unwrap_or(0);
    if format != FORMAT {
        let message = format!(
            "could not open the log in {place}: it has format {format}, and this version of Leftfold reads \
             format {FORMAT}; use the version of Leftfold that created it, or a newer one"
        );
        return Err(Error::new(Kind::Format, message));
    }
    let stored = meta.get_i32("partitions").ok().and_then(|number| u16::try_from(number).ok());
    let Some(stored) = stored.filter(|number| (1..=MAX_PARTITIONS).contains(number)) else {
        let failure = Failure::damaged("the number of partitions can't be read");
        return Err(failure.to_error("open the log in", place));
    };
    match wanted {
        Some(wanted) if wanted != stored => {
            let message = format!(
                "the log in {place} has {stored} partitions, not {wanted}: the number is fixed when a log is created; \
                 connect with {stored} or without a number, or copy its events into another database"
            );
            Err(Error::new(Kind::Invalid, message))
        }
        _ => Ok(stored),
    }
}

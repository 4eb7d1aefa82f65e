//! Creates Leftfold's tables, and upgrades those of older formats.
//!
//! Leftfold creates all its tables in one transaction, so a file has none or all of them, also when
//! two processes open it at the same time.

use leftfold::Kind;
use rusqlite::{Connection, OptionalExtension as _};

use super::definitions::{GENERATIONS, JOURNAL, REACTIONS, SEQUENCES, SUSPICION, WORKERS, make_tables};
use super::format::{APPLICATION_ID, FORMAT, check_format, format, is_ours, put_format};
use crate::Options;
use crate::error::Failure;

/// Creates missing tables in one transaction, before the file is switched to WAL mode.
pub(crate) fn create(connection: &mut Connection, options: &Options) -> Result<(), Failure> {
    if format(connection)?.is_none() {
        // Read this first: a writing transaction gives the file its first page.
        let pages: i64 = connection.pragma_query_value(None, "page_count", |row| row.get(0))?;
        let transaction = connection.transaction_with_behavior(rusqlite::TransactionBehavior::Exclusive)?;
        if format(&transaction)?.is_none() {
            check_names(&transaction)?;
            if pages == 0 && is_blank(&transaction)? {
                transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
                transaction.pragma_update(None, "user_version", FORMAT)?;
            }
            make_tables(&transaction)?;
            put_format(&transaction)?;
            transaction.execute(
                "INSERT INTO leftfold_meta VALUES ('partitions', ?1)",
                [options.partitions.unwrap_or(1).to_string()],
            )?;
        }
        transaction.commit()?;
    }
    upgrade(connection)
}

/// Returns whether no other program has written to the file.
fn is_blank(connection: &Connection) -> rusqlite::Result<bool> {
    let zero =
        |pragma: &str| connection.pragma_query_value(None, pragma, |row| Ok(row.get::<_, i64>(0)? == 0));
    let has_nothing = "SELECT count(*) = 0 FROM sqlite_schema";
    Ok(zero("application_id")?
        && zero("user_version")?
        && connection.query_row(has_nothing, [], |row| row.get(0))?)
}

/// Refuses a file in which an application uses names that Leftfold needs, now or later for a
/// collection.
fn check_names(connection: &Connection) -> Result<(), Failure> {
    let sql = "SELECT type, name FROM sqlite_schema WHERE lower(substr(name, 1, 9)) = 'leftfold_' LIMIT 1";
    let taken = connection
        .query_row(sql, [], |row| Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?)))
        .optional()?;
    match taken {
        None => Ok(()),
        Some((kind, name)) => {
            let report = format!(
                "it has a {kind} {name} that Leftfold did not create, and names that begin with leftfold_ are reserved"
            );
            Err(Failure::new(Kind::Format, "rename it, or open another file", report))
        }
    }
}

/// Upgrades tables of an older format, in one transaction.
fn upgrade(connection: &mut Connection) -> Result<(), Failure> {
    let found = format(connection)?;
    if found >= Some(FORMAT) {
        return check_format(found);
    }
    let transaction = connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
    let found = format(&transaction)?;
    check_format(found)?;
    let lacks = |made_in: u32| found < Some(made_in);
    if lacks(2) {
        transaction.execute_batch(SEQUENCES)?;
    }
    if lacks(3) {
        transaction.execute_batch(REACTIONS)?;
        transaction.execute_batch(JOURNAL)?;
    } else if lacks(5) {
        transaction.execute_batch(SUSPICION)?;
    }
    if lacks(4) {
        transaction.execute_batch(GENERATIONS)?;
    }
    if lacks(5) {
        transaction.execute_batch(WORKERS)?;
    }
    put_format(&transaction)?;
    if is_ours(&transaction)? {
        transaction.pragma_update(None, "user_version", FORMAT)?;
    }
    transaction.commit()?;
    Ok(())
}

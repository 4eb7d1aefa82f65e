//! Preparing a table for documents: creating it, or checking the existing one.

use leftfold::react::ExternalCollection;
use leftfold::{Error, Result};
use rusqlite::OptionalExtension as _;

use crate::connection::{Ran, Tx, Work};
use crate::error::Failure;
use crate::react::check_table;

const COLUMNS: [&str; 4] = ["id", "body", "guard", "operations"];
const OTHER_TABLE: &str = "name another collection, or rename the table: Leftfold did not write its rows";

pub(super) struct PrepareWork(pub(super) ExternalCollection);

impl Work for PrepareWork {
    type Answer = Result<()>;

    const DOING: &'static str = "prepare a collection in";

    fn has_steps(&self) -> bool {
        false
    }

    fn run(&self, tx: &mut Tx<'_>) -> Result<Ran<Self::Answer>, Failure> {
        let name = self.0.as_str();
        if name.to_ascii_lowercase().starts_with("leftfold")
            || name.to_ascii_lowercase().starts_with("sqlite_")
        {
            let report = format!("names like {name} are reserved for Leftfold's and SQLite's own tables");
            return Err(Failure::refused("give the collection another name", report));
        }
        let exists = "SELECT 1 FROM sqlite_schema WHERE name = ?1 COLLATE NOCASE AND type <> 'trigger'";
        if tx.connection.prepare_cached(exists)?.query_row([name], |_| Ok(())).optional()?.is_none() {
            let sql = format!(
                "CREATE TABLE \"{name}\" (\n  id TEXT PRIMARY KEY NOT NULL,\n  body TEXT NOT NULL,\n  guard BLOB NOT NULL,\n  \
                 operations BLOB NOT NULL DEFAULT x''\n) STRICT"
            );
            tx.connection.execute_batch(&sql)?;
            return Ok(Ran::Keep(Ok(())));
        }
        check_table(tx.connection, &self.0)?;
        let has = "SELECT 1 FROM pragma_table_info(?1) WHERE lower(name) = ?2";
        for column in COLUMNS {
            let found =
                tx.connection.prepare_cached(has)?.query_row([name, column], |_| Ok(())).optional()?;
            if found.is_none() {
                let report = format!("the table {name} has no column `{column}`");
                return Err(Failure::refused(OTHER_TABLE, report));
            }
        }
        Ok(Ran::Keep(Ok(())))
    }

    fn failed(error: Error) -> Self::Answer {
        Err(error)
    }
}

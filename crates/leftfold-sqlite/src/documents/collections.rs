//! Collections as tables: their names and definitions.
//!
//! The table of a collection is `leftfold_<name>_1`; the table of a later generation is
//! `leftfold_<name>~<number>_1`. Readers use a view with the collection's own name, which shows the
//! existing documents: `SELECT id, body ->> '$.status' FROM cart_details`.

use leftfold::{Collection, Error, Result};
use rusqlite::{Connection, OptionalExtension as _};

use crate::connection::{Ran, Tx, Work};
use crate::documents::generations;
use crate::error::Failure;

/// Returns the quoted table name of a [stored](Collection::stored) collection. Names of collections
/// contain no quotes.
pub(crate) fn table(collection: &Collection) -> String {
    format!("\"{}\"", table_name(collection))
}

fn table_name(collection: &Collection) -> String {
    format!("leftfold_{collection}_1")
}

/// Creates a collection's table and view, and the table of its hidden collection.
pub(super) struct Prepare(pub(super) Collection);

impl Work for Prepare {
    type Answer = Result<()>;

    const DOING: &'static str = "prepare a collection in";

    fn has_steps(&self) -> bool {
        true
    }

    fn run(&self, tx: &mut Tx<'_>) -> Result<Ran<Self::Answer>, Failure> {
        make(tx.connection, &self.0)?;
        Ok(Ran::Keep(Ok(())))
    }

    fn failed(error: Error) -> Self::Answer {
        Err(error)
    }
}

/// Creates the tables and the view if they are missing.
pub(crate) fn make(connection: &Connection, collection: &Collection) -> Result<(), Failure> {
    check_name(collection)?;
    let stored = generations::stored(connection, collection)?;
    make_table(connection, &stored)?;
    if collection.belongs_to().is_none() {
        make_table(connection, &stored.streams())?;
    }
    if !collection.is_hidden() {
        make_view(connection, collection)?;
    }
    Ok(())
}

fn check_name(collection: &Collection) -> Result<(), Failure> {
    let name = collection.as_str().to_ascii_lowercase();
    if name.starts_with("leftfold_") || name.starts_with("sqlite_") {
        let report = format!("names like {collection} are reserved for Leftfold's and SQLite's own tables");
        return Err(Failure::refused("give the collection another name", report));
    }
    Ok(())
}

fn make_table(connection: &Connection, collection: &Collection) -> Result<(), Failure> {
    let name = table_name(collection);
    match find(connection, &name)? {
        Some((stored, _)) if stored == name => return Ok(()),
        Some((stored, _)) => {
            let report =
                format!("{name} would be the table of {collection}, but SQLite can't tell it from {stored}");
            return Err(Failure::refused("choose names that differ in more than their case", report));
        }
        None => {}
    }
    for (_, sql) in statements(collection) {
        connection.execute_batch(&sql)?;
    }
    Ok(())
}

/// Returns the statements that create a collection's table and its indexes, with their names.
pub(crate) fn statements(collection: &Collection) -> [(String, String); 3] {
    let name = table_name(collection);
    let index = |what: &str, filter: &str| {
        let index = format!("{name}_{what}");
        let sql = format!("CREATE INDEX \"{index}\" ON \"{name}\" (id) WHERE {filter}");
        (index, sql)
    };
    let table = format!(
        "CREATE TABLE \"{name}\" (\n  id TEXT PRIMARY KEY NOT NULL,\n  body TEXT,\n  mark TEXT NOT NULL,\n  \
         parked TEXT\n) STRICT"
    );
    // The index on rows without a body makes counting the other rows cheap.
    [(name.clone(), table), index("parked", "parked IS NOT NULL"), index("absent", "body IS NULL")]
}

/// Redirects the view to the live generation. A view that another program created stays, and is
/// reported.
pub(crate) fn switch_view(connection: &Connection, collection: &Collection) -> Result<(), Failure> {
    let begins = format!("{}\"leftfold_", view_of(collection));
    if let Some((_, Some(stored))) = find(connection, collection.as_str())?
        && stored.starts_with(&begins)
    {
        connection.execute_batch(&format!("DROP VIEW \"{collection}\""))?;
    }
    make_view(connection, collection)
}

fn make_view(connection: &Connection, collection: &Collection) -> Result<(), Failure> {
    let sql = view(connection, collection)?;
    match find(connection, collection.as_str())? {
        None => Ok(connection.execute_batch(&sql)?),
        Some((_, stored)) if stored.as_deref() == Some(&sql) => Ok(()),
        Some((stored, _)) => {
            let report =
                format!("there is already a table, view or index {stored} that Leftfold did not create");
            Err(Failure::refused("rename it, or give the collection another name", report))
        }
    }
}

/// Returns the statement that creates the view of the live generation.
pub(crate) fn view(connection: &Connection, collection: &Collection) -> Result<String, Failure> {
    let table = table(&generations::stored(connection, collection)?);
    Ok(format!("{}{table} WHERE body IS NOT NULL", view_of(collection)))
}

/// Returns the statement that creates a view, up to its table.
fn view_of(collection: &Collection) -> String {
    format!("CREATE VIEW \"{collection}\" AS SELECT id, body, mark FROM ")
}

/// Returns the table, view or index with this name, as SQLite compares names, and its statement.
/// Triggers have a separate namespace.
fn find(connection: &Connection, name: &str) -> Result<Option<(String, Option<String>)>, Failure> {
    let sql = "SELECT name, sql FROM sqlite_schema WHERE name = ?1 COLLATE NOCASE AND type <> 'trigger'";
    Ok(connection.prepare_cached(sql)?.query_row([name], |row| Ok((row.get(0)?, row.get(1)?))).optional()?)
}

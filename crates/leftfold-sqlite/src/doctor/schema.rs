//! Compares the tables, indexes, views and triggers with the definitions of this version.

use std::collections::BTreeMap;

use leftfold::Collection;
use leftfold::inspect::doctor::{Area, Finding};
use rusqlite::Connection;

use crate::documents::collections::{statements, view};
use crate::documents::generations::stored;
use crate::error::Failure;
use crate::react::{are_followed, registered};
use crate::schema::make_tables;

/// Schema objects by name, each with its kind and its statement.
type Made = BTreeMap<String, (String, String)>;

/// Checks all tables, indexes, views and triggers.
pub(super) fn look(file: &Connection) -> Result<Vec<Finding>, Failure> {
    let there = made(file)?;
    let own = expected()?;
    let mut findings: Vec<_> =
        own.iter().filter_map(|(name, made)| judge(name, made, there.get(name), None)).collect();
    let mut count = own.len();
    // Collections can be read only if all of Leftfold's own tables exist.
    if findings.is_empty() {
        for collection in collections(file)? {
            let expected = of(file, &collection)?;
            count += expected.len();
            findings.extend(
                expected
                    .iter()
                    .filter_map(|(name, made)| judge(name, made, there.get(name), Some(collection.as_str()))),
            );
        }
        findings.extend(followed(file)?);
    }
    if findings.is_empty() {
        let found = format!("all {count} tables, indexes, views and triggers exist");
        findings.push(Finding::fine(Area::Schema, "tables", found));
    }
    Ok(findings)
}

/// Returns the schema objects of a file, except SQLite's own. Leaves out triggers of the
/// application, because one may have the name of a view.
fn made(file: &Connection) -> Result<Made, Failure> {
    let sql = "SELECT name, type, sql FROM sqlite_schema WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite_%' \
        AND (type <> 'trigger' OR name GLOB 'leftfold_*')";
    let mut statement = file.prepare(sql)?;
    let rows = statement.query_map([], |row| Ok((row.get(0)?, (row.get(1)?, row.get(2)?))))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// Returns the schema objects that every file has.
fn expected() -> Result<Made, Failure> {
    let empty = Connection::open_in_memory()?;
    make_tables(&empty)?;
    made(&empty)
}

/// Returns the collections of projections that have run.
pub(super) fn collections(file: &Connection) -> Result<Vec<Collection>, Failure> {
    let mut statement = file.prepare("SELECT collection FROM leftfold_generations ORDER BY collection")?;
    let names = statement.query_map([], |row| row.get(0))?.collect::<Result<Vec<String>, _>>()?;
    let read = |name| Collection::new(name).map_err(|invalid| Failure::damaged(invalid.to_string()));
    names.into_iter().map(read).collect()
}

/// Returns the schema objects of a collection.
fn of(file: &Connection, collection: &Collection) -> Result<Made, Failure> {
    let live = stored(file, collection)?;
    let tables = [statements(&live), statements(&live.streams())].into_iter().flatten();
    let kind = |sql: &str| if sql.starts_with("CREATE TABLE") { "table" } else { "index" }.to_owned();
    let mut made: Made = tables.map(|(name, sql)| (name, (kind(&sql), sql))).collect();
    made.insert(collection.to_string(), ("view".to_owned(), view(file, collection)?));
    Ok(made)
}

/// Judges an expected object. Returns `None` if it exists and is correct.
fn judge(
    name: &str,
    (kind, sql): &(String, String),
    there: Option<&(String, String)>,
    collection: Option<&str>,
) -> Option<Finding> {
    let Some((_, other)) = there else {
        let found = format!("the {kind} is missing");
        return Some(match (kind.as_str(), collection) {
            ("index", _) => {
                let advice = format!("some queries are slow without it; create it: {sql};");
                Finding::warning(Area::Schema, name, found, advice)
            }
            ("table", None) => Finding::wrong(
                Area::Schema,
                name,
                found,
                "stop all processes that use the file, and restore a backup",
            ),
            ("table", Some(collection)) => {
                let advice = format!("its documents are lost; rebuild them: `leftfold rebuild {collection}`");
                Finding::wrong(Area::Schema, name, found, advice)
            }
            ("view", _) => {
                let advice =
                    "readers can't find the documents; start the projection again, which creates the view";
                Finding::wrong(Area::Schema, name, found, advice)
            }
            _ => {
                let advice = "start the process that runs the reactions, which creates it";
                Finding::warning(Area::Schema, name, found, advice)
            }
        });
    };
    (other != sql).then(|| {
        let found =
            format!("the {kind} differs from the one that Leftfold creates: another program has changed it");
        let advice = match kind.as_str() {
            "index" => format!("drop it, and create it again: {sql};"),
            "view" => {
                "rename the object with this name, and start the projection again, which creates the view"
                    .to_owned()
            }
            _ => format!("stop all processes that use the file, and restore the definition: {sql};"),
        };
        Finding::wrong(Area::Schema, name, found, advice)
    })
}

/// Finds reactions whose documents lack triggers, so that they miss changes.
fn followed(file: &Connection) -> Result<Vec<Finding>, Failure> {
    let mut findings = Vec::new();
    for reaction in registered(file)? {
        if let Some(on) = &reaction.on
            && !are_followed(file, std::slice::from_ref(on))?
        {
            let found = format!("triggers on {on} are missing, so the reaction misses changes");
            let advice = "start the process that runs it, which creates them and compares all documents with the tasks";
            findings.push(Finding::warning(Area::Schema, &reaction.name, found, advice));
        }
    }
    Ok(findings)
}

//! Preparing a file for reactions: triggers on the documents to follow, and the journal.

use leftfold::react::{DocumentSource, ExternalCollection};
use leftfold::{Error, Result};
use rusqlite::{Connection, OptionalExtension as _};

use super::documents::TABLE_ADVICE;
use super::feed::journal;
use super::triggers::{source, stored, triggers};
use crate::connection::{Ran, Tx, Work};
use crate::documents::collections;
use crate::error::Failure;

/// Creates missing triggers, tables of projections, and the journal.
pub(super) struct FollowWork(pub(super) Vec<DocumentSource>);

impl Work for FollowWork {
    type Answer = Result<()>;

    const DOING: &'static str = "follow documents in";

    fn has_steps(&self) -> bool {
        true
    }

    fn run(&self, tx: &mut Tx<'_>) -> Result<Ran<Self::Answer>, Failure> {
        journal::make(tx.connection)?;
        for on in &self.0 {
            match on {
                DocumentSource::Projection(collection) => collections::make(tx.connection, collection)?,
                DocumentSource::External(plain) => check(tx.connection, plain)?,
            }
            let mut is_new = false;
            for (name, sql) in triggers(tx.connection, on)? {
                if stored(tx.connection, &name)?.as_ref() != Some(&sql) {
                    tx.connection.execute_batch(&format!("DROP TRIGGER IF EXISTS \"{name}\";\n{sql};"))?;
                    is_new = true;
                }
            }
            if is_new {
                journal::note_gap(tx.connection, &source(on))?;
            }
        }
        point!("documents-followed");
        tx.wrote_documents = true;
        Ok(Ran::Keep(Ok(())))
    }

    fn failed(error: Error) -> Self::Answer {
        Err(error)
    }
}

/// Refuses anything that is not a table of documents.
pub(crate) fn check(connection: &Connection, plain: &ExternalCollection) -> Result<(), Failure> {
    let refuse = |advice, report| Err(Failure::refused(advice, report));
    let name = plain.as_str();
    let sql =
        "SELECT name, type FROM sqlite_schema WHERE name = ?1 COLLATE NOCASE AND type IN ('table', 'view')";
    let found = connection
        .prepare_cached(sql)?
        .query_row([name], |row| Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?)))
        .optional()?;
    match found {
        None => return refuse(TABLE_ADVICE, format!("there is no table {name}")),
        Some((stored, _)) if stored != name => {
            return refuse("use the exact name", format!("the table {name} is called {stored}"));
        }
        Some((_, kind)) if kind == "view" => {
            let advice = "name the table behind it, or the projection if it is the view of one";
            return refuse(advice, format!("{name} is a view, and views can't be followed"));
        }
        Some(_) => {}
    }
    // This pragma includes generated columns: a body may be computed from other columns.
    let sql = "SELECT name, upper(type), pk, (SELECT sum(pk > 0) FROM pragma_table_xinfo(?1)) FROM pragma_table_xinfo(?1)";
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query([name])?;
    let (mut is_keyed, mut has_body) = (false, false);
    while let Some(row) = rows.next()? {
        let column = row.get_ref(0)?.as_str()?.to_ascii_lowercase();
        if column == "id" {
            let kind = row.get_ref(1)?.as_str()?;
            let is_text =
                !kind.contains("INT") && ["TEXT", "CHAR", "CLOB"].iter().any(|text| kind.contains(text));
            is_keyed = is_text && (row.get::<_, i64>(2)?, row.get::<_, i64>(3)?) == (1, 1);
        }
        has_body |= column == "body";
    }
    if !is_keyed {
        return refuse(TABLE_ADVICE, format!("the table {name} has no column `id TEXT PRIMARY KEY`"));
    }
    if !has_body {
        return refuse(TABLE_ADVICE, format!("the table {name} has no column `body`"));
    }
    Ok(())
}

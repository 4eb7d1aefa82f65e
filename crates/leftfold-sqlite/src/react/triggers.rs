//! Followed documents: triggers on their tables record each change in the journal.
//!
//! Only followed tables have triggers. They record only changes that readers can see: a body that
//! changes, appears or disappears. Creating missing triggers also records a gap. The planner must
//! then compare all documents, because changes may have happened without triggers.

use leftfold::Collection;
use leftfold::react::DocumentSource;
use rusqlite::{Connection, OptionalExtension as _};

use super::documents::table;
use super::feed::journal;
use crate::error::Failure;

/// Returns the journal's name for these documents.
pub(super) fn source(on: &DocumentSource) -> String {
    on.to_string()
}

/// Returns the triggers that record changes, by name, as SQLite stores them.
pub(super) fn triggers(file: &Connection, on: &DocumentSource) -> Result<[(String, String); 3], Failure> {
    let (source, table) = (source(on), table(file, on)?);
    let note = |id: &str, if_so: &str| {
        format!(
            "  INSERT INTO leftfold_changes (source, id) SELECT '{source}', {id} WHERE typeof({id}) = 'text'{if_so};"
        )
    };
    let trigger = |event: &str, when: &str, notes: &[String]| {
        let name = format!("leftfold_changes_{event} {source}");
        let notes = notes.join("\n");
        let sql = format!(
            "CREATE TRIGGER \"{name}\" AFTER {} ON {table} WHEN {when} BEGIN\n{notes}\nEND",
            event.to_uppercase()
        );
        (name, sql)
    };
    // The application's table may have a collation that hides some changes.
    let moved = "old.id COLLATE BINARY IS NOT new.id";
    Ok([
        trigger("insert", "new.body IS NOT NULL", &[note("new.id", "")]),
        trigger(
            "update",
            &format!("old.body COLLATE BINARY IS NOT new.body OR {moved}"),
            &[note("new.id", ""), note("old.id", &format!(" AND {moved}"))],
        ),
        trigger("delete", "old.body IS NOT NULL", &[note("old.id", "")]),
    ])
}

/// Returns whether all changes of these documents are recorded.
pub(crate) fn are_followed(file: &Connection, on: &[DocumentSource]) -> Result<bool, Failure> {
    if !journal::is_there(file)? {
        return Ok(false);
    }
    for on in on {
        for (name, sql) in triggers(file, on)? {
            if stored(file, &name)?.as_ref() != Some(&sql) {
                return Ok(false);
            }
        }
    }
    Ok(true)
}

/// Moves the triggers of a projection to the live generation, if it has any, and records a gap,
/// which causes a comparison.
pub(crate) fn switch_followed(connection: &Connection, collection: &Collection) -> Result<(), Failure> {
    let on = DocumentSource::Projection(collection.clone());
    let mut is_followed = false;
    for (name, sql) in triggers(connection, &on)? {
        if stored(connection, &name)?.is_some() {
            connection.execute_batch(&format!("DROP TRIGGER \"{name}\";\n{sql};"))?;
            is_followed = true;
        }
    }
    if is_followed {
        journal::note_gap(connection, &source(&on))?;
    }
    Ok(())
}

/// Returns the statement of an existing trigger.
pub(super) fn stored(file: &Connection, trigger: &str) -> Result<Option<String>, Failure> {
    let sql = "SELECT sql FROM sqlite_schema WHERE type = 'trigger' AND name = ?1";
    Ok(file.prepare_cached(sql)?.query_row([trigger], |row| row.get(0)).optional()?)
}

//! The documents of reactions: those of projections, and those of tables that other programs write.

use leftfold::react::{Body, DocumentSource, FoundDocument, FoundDocuments};
use leftfold::{DocumentId, Json};
use rusqlite::types::ValueRef;
use rusqlite::{CachedStatement, Connection, Row};

use crate::documents::{collections, generations};
use crate::error::Failure;

/// The advice for something that is not a table of documents.
pub(super) const TABLE_ADVICE: &str =
    "create the table with the columns `id TEXT PRIMARY KEY` and `body TEXT`, or name another table";

/// Returns the quoted table name. Names of collections contain no quotes.
pub(super) fn table(file: &Connection, on: &DocumentSource) -> Result<String, Failure> {
    Ok(match on {
        DocumentSource::Projection(collection) => collections::table(&generations::stored(file, collection)?),
        DocumentSource::External(collection) => format!("\"{}\"", collection.as_str()),
    })
}

/// Returns the documents that exist.
pub(super) fn find(
    file: &Connection,
    on: &DocumentSource,
    ids: Vec<DocumentId>,
    bytes: usize,
) -> Result<FoundDocuments, Failure> {
    let sql = format!("SELECT id, body FROM {} WHERE id = ?1", table(file, on)?);
    let mut statement = prepare(file, on, &sql)?;
    let mut found = FoundDocuments::default();
    for id in ids {
        if found.is_full(bytes) {
            found.left.push(id);
            continue;
        }
        // The application's table may use a collation that also finds another text.
        if let Some(row) = statement.query([id.as_str()])?.next()?
            && row.get_ref(0)?.as_str() == Ok(id.as_str())
            && let Some(body) = body(row, on)?
        {
            found.push(FoundDocument { id, body });
        }
    }
    Ok(found)
}

/// Returns the next page of document ids.
pub(super) fn page(
    file: &Connection,
    on: &DocumentSource,
    after: Option<&DocumentId>,
    most: usize,
) -> Result<Vec<DocumentId>, Failure> {
    // The query has no limit, because values that are not ids must not fill up the page.
    let sql = format!("SELECT id FROM {} WHERE id > ?1 AND body IS NOT NULL ORDER BY id", table(file, on)?);
    let mut statement = prepare(file, on, &sql)?;
    // No id is empty, so all ids sort after the empty text.
    let mut rows = statement.query([after.map_or("", DocumentId::as_str)])?;
    let mut found = Vec::new();
    while found.len() < most
        && let Some(row) = rows.next()?
    {
        found.extend(id(row.get_ref(0)?));
    }
    Ok(found)
}

/// Returns the id if a document can have it.
pub(super) fn id(value: ValueRef<'_>) -> Option<DocumentId> {
    DocumentId::new(value.as_str().ok()?).ok()
}

/// Returns the body in the second column, or the reason why it can't be read. Other programs may
/// write a body that is not JSON.
fn body(row: &Row<'_>, on: &DocumentSource) -> Result<Option<Result<Body, String>>, Failure> {
    let value = row.get_ref(1)?;
    if value == ValueRef::Null {
        return Ok(None);
    }
    Ok(Some(match (on, value.as_str()) {
        (DocumentSource::Projection(_), Ok(text)) => Ok(Json::stored(text).into()),
        (DocumentSource::External(_), Ok(text)) => match Json::parse(text) {
            Ok(json) => Ok(json.into()),
            Err(error) => Err(format!("the column `body` can't be read: {error}")),
        },
        (_, Err(error)) => Err(format!("the column `body` is not text: {error}")),
    }))
}

fn prepare<'c>(file: &'c Connection, on: &DocumentSource, sql: &str) -> Result<CachedStatement<'c>, Failure> {
    file.prepare_cached(sql).map_err(|error| match on {
        DocumentSource::External(_) if error.to_string().starts_with("no such ") => {
            Failure::refused(TABLE_ADVICE, format!("{on} can't be read: {error}"))
        }
        _ => error.into(),
    })
}

//! The documents of reactions: those of projections, and those of tables that other programs write.

use leftfold::react::{Body, DocumentSource, ExternalCollection, FoundDocument, FoundDocuments};
use leftfold::{DocumentId, Json};
use rusqlite::types::ValueRef;
use rusqlite::{CachedStatement, Connection, OptionalExtension as _, Row};

use crate::error::Failure;
use crate::{collections, generations};

const PLAIN: &str =
    "make the table, with the columns `id TEXT PRIMARY KEY` and `body TEXT`, or name another one";

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
            Err(error) => Err(format!("the column body: {error}")),
        },
        (_, Err(error)) => Err(format!("the column body is no text: {error}")),
    }))
}

fn prepare<'c>(file: &'c Connection, on: &DocumentSource, sql: &str) -> Result<CachedStatement<'c>, Failure> {
    file.prepare_cached(sql).map_err(|error| match on {
        DocumentSource::External(_) if error.to_string().starts_with("no such ") => {
            Failure::refused(PLAIN, format!("{on} can't be read: {error}"))
        }
        _ => error.into(),
    })
}

/// Refuses anything that is not a table of documents.
pub(crate) fn check(connection: &Connection, collection: &ExternalCollection) -> Result<(), Failure> {
    let refuse = |advice, report| Err(Failure::refused(advice, report));
    let name = collection.as_str();
    let sql =
        "SELECT name, type FROM sqlite_schema WHERE name = ?1 COLLATE NOCASE AND type IN ('table', 'view')";
    let found = connection
        .prepare_cached(sql)?
        .query_row([name], |row| Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?)))
        .optional()?;
    match found {
        None => return refuse(PLAIN, format!("there is no table {name}")),
        Some((stored, _)) if stored != name => {
            return refuse("name it as it is written there", format!("the table {name} is called {stored}"));
        }
        Some((_, kind)) if kind == "view" => {
            let advice = "name the table behind it, or, where it is a projection's, name the projection";
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
        return refuse(PLAIN, format!("the table {name} has no column `id TEXT PRIMARY KEY`"));
    }
    if !has_body {
        return refuse(PLAIN, format!("the table {name} has no column `body`"));
    }
    Ok(())
}

//! Reads of documents by id.

use leftfold::DocumentId;
use leftfold::content::Stored;
use leftfold::react::ExternalCollection;
use rusqlite::Connection;

use super::record::decode;
use crate::error::Failure;

/// Returns a document, if it exists.
pub(super) fn find(
    file: &Connection,
    collection: &ExternalCollection,
    id: DocumentId,
) -> Result<Option<Stored>, Failure> {
    let sql = format!("SELECT body, guard, operations FROM \"{}\" WHERE id = ?1", collection.as_str());
    let mut statement = file.prepare_cached(&sql)?;
    let mut rows = statement.query([id.as_str()])?;
    let Some(row) = rows.next()? else { return Ok(None) };
    Ok(Some(decode(id, row)?))
}

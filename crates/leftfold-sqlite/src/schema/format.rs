//! The format of a file and its number of partitions: reading and checking them.

use leftfold::Kind;
use rusqlite::{Connection, ErrorCode, OptionalExtension as _};

use super::MAX_PARTITIONS;
use crate::error::Failure;

/// The text "LFLD", in the header of files that Leftfold creates.
pub(super) const APPLICATION_ID: i64 = 0x4C46_4C44;

/// The storage format. It increases when older versions can't read the data of newer ones.
pub(crate) const FORMAT: u32 = 5;

/// Reads the file for the first time, and refuses one that Leftfold can't use. Writes nothing.
pub(crate) fn recognise(connection: &Connection) -> Result<(), Failure> {
    const NO_DATABASE: &str = "open another file, or restore a backup";
    const RECODE: &str = "open another file, or copy the contents into a new one with UTF-8";
    let encoding: String =
        connection.pragma_query_value(None, "encoding", |row| row.get(0)).map_err(|error| {
            if error.sqlite_error_code() == Some(ErrorCode::NotADatabase) {
                let report = "it is not a SQLite database, or its header is damaged";
                return Failure::new(Kind::Format, NO_DATABASE, report);
            }
            error.into()
        })?;
    // SQLite compares the bytes of texts: in UTF-16 it would not sort ids as the engine does.
    if encoding != "UTF-8" {
        let report = format!("it has the text encoding {encoding}, and Leftfold needs UTF-8");
        return Err(Failure::new(Kind::Format, RECODE, report));
    }
    check_format(format(connection)?)
}

/// Refuses a newer format.
pub(super) fn check_format(format: Option<u32>) -> Result<(), Failure> {
    match format {
        Some(newer) if newer > FORMAT => {
            let report =
                format!("it has format {newer}, and this version of Leftfold reads formats up to {FORMAT}");
            Err(Failure::new(Kind::Format, "use a newer version of Leftfold", report))
        }
        _ => Ok(()),
    }
}

/// Returns the format of Leftfold's tables, or `None` if the file has none of them.
///
/// Since format 5 it is in `leftfold_meta`. Files that Leftfold created also have it in their
/// header: older versions that know only the header then refuse a newer format.
pub(crate) fn format(connection: &Connection) -> Result<Option<u32>, Failure> {
    let in_header = if is_ours(connection)? {
        Some(connection.pragma_query_value(None, "user_version", |row| row.get(0))?)
    } else {
        None
    };
    Ok(in_header.max(format_in_meta(connection)?))
}

/// Returns whether Leftfold created the file.
pub(super) fn is_ours(connection: &Connection) -> rusqlite::Result<bool> {
    let id: i64 = connection.pragma_query_value(None, "application_id", |row| row.get(0))?;
    Ok(id == APPLICATION_ID)
}

fn format_in_meta(connection: &Connection) -> Result<Option<u32>, Failure> {
    // The application may have a table with this name and other columns.
    let sql = "SELECT count(*) = 2 FROM pragma_table_info('leftfold_meta') WHERE name IN ('key', 'value')";
    if !connection.query_row(sql, [], |row| row.get(0))? {
        return Ok(None);
    }
    let sql = "SELECT CAST(value AS TEXT) FROM leftfold_meta WHERE key = 'format'";
    let text: Option<String> = connection.query_row(sql, [], |row| row.get(0)).optional()?;
    let read = |text: String| {
        text.parse().map_err(|_| Failure::damaged(format!("leftfold_meta has the invalid format {text:?}")))
    };
    text.map(read).transpose()
}

/// Stores the format in `leftfold_meta`.
pub(super) fn put_format(connection: &Connection) -> rusqlite::Result<()> {
    let sql = "INSERT INTO leftfold_meta VALUES ('format', ?1) \
        ON CONFLICT (key) DO UPDATE SET value = excluded.value";
    connection.execute(sql, [FORMAT.to_string()]).map(drop)
}

/// Returns the number of partitions of the log.
pub(crate) fn partitions(connection: &Connection) -> Result<u16, Failure> {
    let text: Option<String> = connection
        .query_row("SELECT value FROM leftfold_meta WHERE key = 'partitions'", [], |row| row.get(0))
        .optional()?;
    text.as_deref()
        .and_then(|text| text.parse().ok())
        .filter(|number| (1..=MAX_PARTITIONS).contains(number))
        .ok_or_else(|| {
            Failure::damaged(format!("leftfold_meta has the invalid number of partitions {text:?}"))
        })
}

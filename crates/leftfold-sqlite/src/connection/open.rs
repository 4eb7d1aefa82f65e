//! Opens connections to the file.
//!
//! Only SQLite opens the file: closing it in any other way would release all locks that this
//! process holds on it.

use std::fs::OpenOptions;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use leftfold::{Error, Kind, Result};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags};

use super::identity::Identity;
use crate::Options;
use crate::error::Failure;
use crate::schema::{self, MAX_PARTITIONS, partitions, recognise};

/// The longest wait for another process that writes.
const MAX_BUSY: Duration = Duration::from_secs(10);

/// Opens the writing connection, and creates the file if there is none. Returns the number of
/// partitions, and the identity of the file.
pub(crate) fn open(path: &Path, options: &Options) -> Result<(Connection, u16, Identity)> {
    if let Some(wanted) = options.partitions
        && !(1..=MAX_PARTITIONS).contains(&wanted)
    {
        let expected = format!("1 to {MAX_PARTITIONS}");
        return Err(leftfold::Invalid::new("number of partitions", &wanted.to_string(), expected).into());
    }
    check_place(path)?;
    let failed = |failure: Failure| failure.to_error("open", path);
    create_file(path);
    let identity = Identity::of(path);
    let flags =
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut connection = Connection::open_with_flags(path, flags).map_err(|error| failed(error.into()))?;
    set_up(&mut connection).map_err(|error| failed(error.into()))?;
    if connection.is_readonly("main").map_err(|error| failed(error.into()))? {
        let message = format!(
            "could not open {} for writing; give this process the right to write to the file and its directory",
            path.display()
        );
        return Err(Error::new(Kind::Store, message));
    }
    recognise(&connection).and_then(|()| schema::create(&mut connection, options)).map_err(failed)?;
    let stored = partitions(&connection).map_err(failed)?;
    match options.partitions {
        Some(wanted) if wanted != stored => {
            let message = format!(
                "{} has {stored} partitions, not {wanted}: the number is fixed when a log is created; open it with \
                 {stored} or without a number, or copy its events into a new file",
                path.display()
            );
            return Err(Error::new(Kind::Invalid, message));
        }
        _ => {}
    }
    tune(&connection, options).map_err(failed)?;
    // The first transaction creates the write-ahead log.
    partitions(&connection).map_err(failed)?;
    identity.check().map_err(failed)?;
    Ok((connection, stored, identity))
}

/// Creates an empty file that only its owner may read. SQLite gives the same mode to the files
/// beside it. If this fails, opening the file in SQLite reports the reason.
fn create_file(path: &Path) {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    drop(options.open(path));
}

/// Opens a read-only connection. The file exists: the writer has opened it.
pub(crate) fn open_to_read(path: &Path, identity: &Identity) -> Result<Connection, Failure> {
    // SQLite would create a missing write-ahead log, which would then look like a replaced one.
    identity.check()?;
    let mut connection = Connection::open_with_flags(
        path,
        OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX,
    )?;
    set_up(&mut connection)?;
    connection.pragma_update(None, "cache_size", -4_000)?;
    // The file may have been replaced meanwhile.
    identity.check()?;
    Ok(connection)
}

/// Refuses a path that can't be a file.
fn check_place(path: &Path) -> Result<()> {
    let refuse =
        |why: String| Err(Error::new(Kind::Store, format!("could not open {}: {why}", path.display())));
    if path.is_dir() {
        return refuse("it is a directory; name a file in it".to_owned());
    }
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() && !path.exists() && !parent.is_dir() => {
            refuse(format!("there is no directory {}; create it first", parent.display()))
        }
        _ => Ok(()),
    }
}

fn set_up(connection: &mut Connection) -> rusqlite::Result<()> {
    connection.busy_handler(Some(wait_a_little()))?;
    connection.set_prepared_statement_cache_capacity(128);
    // Without this, SQLite prepares a cached statement again whenever other values are bound to it.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    connection.pragma_update(None, "temp_store", "MEMORY")
}

fn tune(connection: &Connection, options: &Options) -> Result<(), Failure> {
    // Switching a new file that another process has open fails without calling the busy handler.
    let begun = Instant::now();
    loop {
        match connection.pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get::<_, String>(0)) {
            Ok(mode) if mode == "wal" => break,
            Ok(mode) => {
                let why = format!("its file system allows only journal mode {mode}, not WAL");
                return Err(Failure::refused("move the file to a local disk", why));
            }
            Err(error)
                if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy)
                    && begun.elapsed() < MAX_BUSY =>
            {
                sleep(Duration::from_millis(1));
            }
            Err(error) => return Err(error.into()),
        }
    }
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "cache_size", -8_000)?;
    connection.pragma_update_and_check(None, "wal_autocheckpoint", 1_000, |_| Ok(()))?;
    connection.pragma_update_and_check(None, "journal_size_limit", 32 << 20, |_| Ok(()))?;
    if let Some(bytes) = options.max_bytes {
        let page_bytes: i64 = connection.pragma_query_value(None, "page_size", |row| row.get(0))?;
        let pages = i64::try_from(bytes / page_bytes.unsigned_abs().max(1)).unwrap_or(i64::MAX).max(1);
        connection.pragma_update_and_check(None, "max_page_count", pages, |_| Ok(()))?;
    }
    Ok(())
}

/// Returns a busy handler: it retries every 1 to 2 ms while another process writes, for at most 10
/// s.
fn wait_a_little() -> impl FnMut(i32) -> bool + Send + 'static {
    let mut begun = Instant::now();
    move |tries| {
        if tries == 0 {
            begun = Instant::now();
        }
        // Jitter keeps waiting processes from retrying in step.
        let jitter = std::process::id().wrapping_add(tries.unsigned_abs()).wrapping_mul(2_654_435_761) >> 22;
        sleep(Duration::from_micros(1_000 + u64::from(jitter)));
        begun.elapsed() < MAX_BUSY
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Killing a process can't test this: only a power failure loses commits that were not synced.
    #[test]
    fn a_commit_is_on_the_disk_before_it_is_acknowledged() {
        let directory = tempfile::tempdir().unwrap();
        let (connection, ..) = open(&directory.path().join("store.db"), &crate::Sqlite::options()).unwrap();
        let number = |name| connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0)).unwrap();
        assert_eq!(number("synchronous"), 2, "FULL: the log is synced with every commit");
        let mode: String = connection.pragma_query_value(None, "journal_mode", |row| row.get(0)).unwrap();
        assert_eq!(mode, "wal");
    }
}

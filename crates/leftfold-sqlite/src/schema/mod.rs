//! Opens the file, checks it, and creates Leftfold's tables.
//!
//! Leftfold creates all its tables in one transaction, so a file has none or all of them, also when
//! two processes open it at the same time. Their names begin with `leftfold_`, and `leftfold_meta`
//! stores their format, so that they can share a file with an application. Only in a file that
//! Leftfold creates does the header also store the format.
//!
//! Only SQLite opens the file: closing it in any other way would release all locks that this
//! process holds on it.

use std::fs::OpenOptions;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use leftfold::{Error, Kind, Result};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags, OptionalExtension as _};

use crate::Options;
use crate::connection::identity::Identity;
use crate::error::Failure;

/// The text "LFLD", in the header of files that Leftfold creates.
const APPLICATION_ID: i64 = 0x4C46_4C44;
/// The storage format. It increases when older versions can't read the data of newer ones.
pub(crate) const FORMAT: u32 = 5;
/// The largest number of partitions of a log.
pub(crate) const MAX_PARTITIONS: u16 = 1_024;

/// The longest wait for another process that writes.
const PATIENCE: Duration = Duration::from_secs(10);

const TABLES: &str = "
CREATE TABLE leftfold_meta (
  key TEXT PRIMARY KEY NOT NULL,
  value TEXT NOT NULL
) STRICT;
CREATE TABLE leftfold_events (
  position INTEGER PRIMARY KEY,
  stream TEXT NOT NULL,
  revision INTEGER NOT NULL,
  id TEXT NOT NULL UNIQUE,
  kind TEXT NOT NULL,
  time INTEGER NOT NULL,
  data TEXT NOT NULL,
  metadata TEXT,
  UNIQUE (stream, revision)
) STRICT;
CREATE TABLE leftfold_checkpoints (
  projection TEXT PRIMARY KEY NOT NULL,
  mark TEXT NOT NULL,
  tally TEXT NOT NULL,
  owner TEXT,
  lease_until REAL
) STRICT;
";

/// The tables that format 2 adds.
const SEQUENCES: &str = "
CREATE TABLE leftfold_sequences (
  stream TEXT PRIMARY KEY NOT NULL,
  version INTEGER NOT NULL,
  skipped INTEGER NOT NULL,
  events INTEGER NOT NULL,
  bytes INTEGER NOT NULL,
  first INTEGER NOT NULL,
  until INTEGER NOT NULL,
  highest INTEGER NOT NULL,
  since INTEGER NOT NULL,
  ask_at INTEGER NOT NULL,
  asked INTEGER NOT NULL,
  trouble TEXT
) STRICT, WITHOUT ROWID;
CREATE INDEX leftfold_sequences_since ON leftfold_sequences (since) WHERE events > 0;
CREATE TABLE leftfold_held (
  stream TEXT NOT NULL,
  revision INTEGER NOT NULL,
  previous INTEGER NOT NULL,
  since INTEGER NOT NULL,
  id TEXT NOT NULL,
  kind TEXT NOT NULL,
  time INTEGER NOT NULL,
  data TEXT NOT NULL,
  metadata TEXT,
  PRIMARY KEY (stream, revision)
) STRICT, WITHOUT ROWID;
CREATE TABLE leftfold_kept (
  partition INTEGER PRIMARY KEY,
  events INTEGER NOT NULL,
  bytes INTEGER NOT NULL,
  conflicts INTEGER NOT NULL,
  counts TEXT NOT NULL
) STRICT;
CREATE TABLE leftfold_conflicts (
  stream TEXT NOT NULL,
  revision INTEGER NOT NULL,
  fingerprint TEXT NOT NULL,
  why TEXT NOT NULL,
  since INTEGER NOT NULL,
  id TEXT NOT NULL,
  kind TEXT NOT NULL,
  time INTEGER NOT NULL,
  data TEXT NOT NULL,
  metadata TEXT,
  decided TEXT,
  PRIMARY KEY (stream, revision, fingerprint)
) STRICT, WITHOUT ROWID;
CREATE TABLE leftfold_skipped (
  stream TEXT NOT NULL,
  after INTEGER NOT NULL,
  through INTEGER NOT NULL,
  reason TEXT NOT NULL,
  at INTEGER NOT NULL
) STRICT;
CREATE INDEX leftfold_skipped_stream ON leftfold_skipped (stream);
CREATE TABLE leftfold_counters (
  counter TEXT PRIMARY KEY NOT NULL,
  last INTEGER NOT NULL
) STRICT;
CREATE TABLE leftfold_draws (
  counter TEXT NOT NULL,
  client TEXT NOT NULL,
  request INTEGER NOT NULL,
  first INTEGER NOT NULL,
  PRIMARY KEY (counter, client)
) STRICT, WITHOUT ROWID;
CREATE TABLE leftfold_rejected (
  id TEXT PRIMARY KEY NOT NULL,
  source TEXT NOT NULL,
  reason TEXT NOT NULL,
  since INTEGER NOT NULL,
  attributes TEXT NOT NULL,
  content BLOB NOT NULL
) STRICT;
";

/// The tables that format 3 adds, except the journal. `suspicion` has the position at which
/// `SUSPICION` adds it, so that the doctor finds the same text in new and older files.
const REACTIONS: &str = "
CREATE TABLE leftfold_tasks (
  reaction TEXT NOT NULL,
  document TEXT NOT NULL,
  version INTEGER NOT NULL,
  state TEXT NOT NULL,
  due INTEGER,
  check_at INTEGER,
  needs INTEGER NOT NULL,
  changed_at INTEGER NOT NULL,
  error TEXT,
  task TEXT NOT NULL, suspicion INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY (reaction, document)
) STRICT;
CREATE INDEX leftfold_tasks_due ON leftfold_tasks (reaction, suspicion, due, needs) WHERE due IS NOT NULL;
CREATE INDEX leftfold_tasks_check ON leftfold_tasks (reaction, check_at) WHERE check_at IS NOT NULL;
CREATE INDEX leftfold_tasks_state ON leftfold_tasks (reaction, state, document) WHERE state <> 'done';
CREATE TABLE leftfold_reactions (
  name TEXT PRIMARY KEY NOT NULL,
  version INTEGER NOT NULL,
  reaction TEXT NOT NULL
) STRICT;
CREATE TABLE leftfold_leases (
  name TEXT PRIMARY KEY NOT NULL,
  owner TEXT,
  until INTEGER NOT NULL,
  number INTEGER NOT NULL
) STRICT;
CREATE TABLE leftfold_places (
  feed TEXT PRIMARY KEY NOT NULL,
  place TEXT NOT NULL
) STRICT;
";

/// The table that format 4 adds.
const GENERATIONS: &str = "
CREATE TABLE leftfold_generations (
  collection TEXT PRIMARY KEY NOT NULL,
  live INTEGER NOT NULL,
  known TEXT NOT NULL
) STRICT;
";

/// The change of tasks from formats 3 and 4 to format 5.
const SUSPICION: &str = "
ALTER TABLE leftfold_tasks ADD COLUMN suspicion INTEGER NOT NULL DEFAULT 0;
DROP INDEX IF EXISTS leftfold_tasks_due;
CREATE INDEX leftfold_tasks_due ON leftfold_tasks (reaction, suspicion, due, needs) WHERE due IS NOT NULL;
";

/// The table that format 5 adds.
const WORKERS: &str = "
CREATE TABLE leftfold_workers (
  name TEXT PRIMARY KEY NOT NULL,
  until INTEGER NOT NULL
) STRICT;
";

/// The journal of changes. It is separate, because the store creates it again if it was dropped.
///
/// Its numbers have no gaps and start at its creation time, so that a place in another journal is
/// never taken for a place in this one. It deletes old entries by itself, a few at a time, in case
/// no feed ever reads it.
pub(crate) const JOURNAL: &str = "
CREATE TABLE leftfold_changes (
  seq INTEGER PRIMARY KEY AUTOINCREMENT,
  source TEXT NOT NULL,
  id TEXT
) STRICT;
INSERT INTO sqlite_sequence VALUES ('leftfold_changes', CAST(round(unixepoch('subsec') * 1e6) AS INTEGER));
CREATE TRIGGER leftfold_changes_bound AFTER INSERT ON leftfold_changes WHEN new.seq % 1024 = 0 BEGIN
  DELETE FROM leftfold_changes WHERE seq <= new.seq - 1000000;
END;
";

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
    create(path);
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
    recognise(&connection).and_then(|()| make(&mut connection, options)).map_err(failed)?;
    let stored = partitions(&connection).map_err(failed)?;
    match options.partitions {
        Some(wanted) if wanted != stored => {
            let message = format!(
                "{} has {stored} partitions, not {wanted}: their number is fixed when a log is made; open it with \
                 {stored} or without naming a number, or copy its events into a new file",
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
fn create(path: &Path) {
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
            refuse(format!("there is no directory {}; make it first", parent.display()))
        }
        _ => Ok(()),
    }
}

/// Reads the file for the first time, and refuses one that Leftfold can't use. Writes nothing.
fn recognise(connection: &Connection) -> Result<(), Failure> {
    const NO_DATABASE: &str = "name another file, or put back a backup";
    const RECODE: &str = "name another file, or copy what is in it into a new one that has UTF-8";
    let encoding: String =
        connection.pragma_query_value(None, "encoding", |row| row.get(0)).map_err(|error| {
            if error.sqlite_error_code() == Some(ErrorCode::NotADatabase) {
                let report = "it is not a SQLite database, or its beginning is damaged";
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

fn check_format(format: Option<u32>) -> Result<(), Failure> {
    match format {
        Some(newer) if newer > FORMAT => {
            let report = format!("it has format {newer}, and this program reads formats up to {FORMAT}");
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
fn is_ours(connection: &Connection) -> rusqlite::Result<bool> {
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
        text.parse().map_err(|_| Failure::damaged(format!("leftfold_meta says that it has format {text:?}")))
    };
    text.map(read).transpose()
}

/// Creates missing tables in one transaction, before the file is switched to WAL mode.
fn make(connection: &mut Connection, options: &Options) -> Result<(), Failure> {
    if format(connection)?.is_none() {
        // Read this first: a writing transaction gives the file its first page.
        let pages: i64 = connection.pragma_query_value(None, "page_count", |row| row.get(0))?;
        let transaction = connection.transaction_with_behavior(rusqlite::TransactionBehavior::Exclusive)?;
        if format(&transaction)?.is_none() {
            check_names(&transaction)?;
            if pages == 0 && is_blank(&transaction)? {
                transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
                transaction.pragma_update(None, "user_version", FORMAT)?;
            }
            make_tables(&transaction)?;
            put_format(&transaction)?;
            transaction.execute(
                "INSERT INTO leftfold_meta VALUES ('partitions', ?1)",
                [options.partitions.unwrap_or(1).to_string()],
            )?;
        }
        transaction.commit()?;
    }
    lift(connection)
}

/// Returns whether no other program has written to the file.
fn is_blank(connection: &Connection) -> rusqlite::Result<bool> {
    let zero =
        |pragma: &str| connection.pragma_query_value(None, pragma, |row| Ok(row.get::<_, i64>(0)? == 0));
    let has_nothing = "SELECT count(*) = 0 FROM sqlite_schema";
    Ok(zero("application_id")?
        && zero("user_version")?
        && connection.query_row(has_nothing, [], |row| row.get(0))?)
}

/// Refuses a file in which an application uses names that Leftfold needs, now or later for a
/// collection.
fn check_names(connection: &Connection) -> Result<(), Failure> {
    let sql = "SELECT type, name FROM sqlite_schema WHERE lower(substr(name, 1, 9)) = 'leftfold_' LIMIT 1";
    let taken = connection
        .query_row(sql, [], |row| Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?)))
        .optional()?;
    match taken {
        None => Ok(()),
        Some((kind, name)) => {
            let report = format!(
                "it has a {kind} {name} that Leftfold has not made, and names that begin with leftfold_ are Leftfold's"
            );
            Err(Failure::new(Kind::Format, "rename it, or name another file", report))
        }
    }
}

/// Creates all tables, indexes and triggers that every file has.
pub(crate) fn make_tables(connection: &Connection) -> rusqlite::Result<()> {
    [TABLES, SEQUENCES, REACTIONS, JOURNAL, GENERATIONS, WORKERS]
        .iter()
        .try_for_each(|sql| connection.execute_batch(sql))
}

/// Upgrades tables of an older format, in one transaction.
fn lift(connection: &mut Connection) -> Result<(), Failure> {
    let found = format(connection)?;
    if found >= Some(FORMAT) {
        return check_format(found);
    }
    let transaction = connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
    let found = format(&transaction)?;
    check_format(found)?;
    let lacks = |made_in: u32| found < Some(made_in);
    if lacks(2) {
        transaction.execute_batch(SEQUENCES)?;
    }
    if lacks(3) {
        transaction.execute_batch(REACTIONS)?;
        transaction.execute_batch(JOURNAL)?;
    } else if lacks(5) {
        transaction.execute_batch(SUSPICION)?;
    }
    if lacks(4) {
        transaction.execute_batch(GENERATIONS)?;
    }
    if lacks(5) {
        transaction.execute_batch(WORKERS)?;
    }
    put_format(&transaction)?;
    if is_ours(&transaction)? {
        transaction.pragma_update(None, "user_version", FORMAT)?;
    }
    transaction.commit()?;
    Ok(())
}

fn put_format(connection: &Connection) -> rusqlite::Result<()> {
    let sql = "INSERT INTO leftfold_meta VALUES ('format', ?1) \
        ON CONFLICT (key) DO UPDATE SET value = excluded.value";
    connection.execute(sql, [FORMAT.to_string()]).map(drop)
}

fn partitions(connection: &Connection) -> Result<u16, Failure> {
    let text: Option<String> = connection
        .query_row("SELECT value FROM leftfold_meta WHERE key = 'partitions'", [], |row| row.get(0))
        .optional()?;
    text.as_deref()
        .and_then(|text| text.parse().ok())
        .filter(|number| (1..=MAX_PARTITIONS).contains(number))
        .ok_or_else(|| Failure::damaged(format!("leftfold_meta says that it has {text:?} partitions")))
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
                return Err(Failure::refused("put the file on a local disk", why));
            }
            Err(error)
                if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy)
                    && begun.elapsed() < PATIENCE =>
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
        begun.elapsed() < PATIENCE
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

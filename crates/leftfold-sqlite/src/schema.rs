//! The file: how it is made, recognised and opened.
//!
//! A file that is not Leftfold's is never written to, nor even opened by SQLite: its header, read as plain
//! bytes, tells whose it is. A new file gets all its tables in one transaction, so it is either empty or
//! complete, also when two processes make it at the same time.

use std::fs::{File, OpenOptions};
use std::io::Read as _;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use leftfold::{Error, Kind, Result};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, OptionalExtension as _};

use crate::Options;
use crate::error::Failure;
use crate::identity::Identity;

/// "LFLD": tells a file of ours from all others.
pub(crate) const APPLICATION_ID: u32 = 0x4C46_4C44;
/// Raised when an older program could not read what a newer one writes.
pub(crate) const FORMAT: u32 = 4;
/// The most partitions a log can have.
pub(crate) const MAX_PARTITIONS: u16 = 1_024;

/// How long to wait for another process that writes.
const PATIENCE: Duration = Duration::from_secs(10);
const PAGE_BYTES: u64 = 4_096;

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

/// What format 2 has beside that.
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

/// What format 3 has beside that, and the journal.
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
  task TEXT NOT NULL,
  PRIMARY KEY (reaction, document)
) STRICT;
CREATE INDEX leftfold_tasks_due ON leftfold_tasks (reaction, due, needs) WHERE due IS NOT NULL;
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

/// What format 4 has beside that.
const GENERATIONS: &str = "
CREATE TABLE leftfold_generations (
  collection TEXT PRIMARY KEY NOT NULL,
  live INTEGER NOT NULL,
  known TEXT NOT NULL
) STRICT;
";

/// The journal of changes, apart from the rest as it is made anew where somebody has dropped it.
///
/// Its numbers have no gaps, and begin with the time at which it was made: so a place in another one is never taken for a place in this.
/// It bounds itself, a few entries at a time, in case nobody ever comes to read it.
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

/// Opens the connection that writes, making the file if there is none. Answers with the number of partitions, and with which file it is.
pub(crate) fn open(path: &Path, options: &Options) -> Result<(Connection, u16, Identity)> {
    if let Some(wanted) = options.partitions
        && !(1..=MAX_PARTITIONS).contains(&wanted)
    {
        let expected = format!("1 to {MAX_PARTITIONS}");
        return Err(leftfold::Invalid::new("number of partitions", &wanted.to_string(), expected).into());
    }
    look(path)?;
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
    make(&mut connection, options).map_err(failed)?;
    check_format(&connection, path)?;
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
    // From the first transaction on there is a log beside the file.
    partitions(&connection).map_err(failed)?;
    identity.check().map_err(failed)?;
    Ok((connection, stored, identity))
}

/// Makes an empty file that nobody but its owner may read. SQLite gives the files that it makes beside it the same mode. Where this fails, SQLite
/// says why.
fn create(path: &Path) {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    drop(options.open(path));
}

/// Opens a connection that only reads. The file is there: the writer has opened it.
pub(crate) fn open_to_read(path: &Path, identity: &Identity) -> Result<Connection, Failure> {
    let mut connection = Connection::open_with_flags(
        path,
        OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX,
    )?;
    set_up(&mut connection)?;
    connection.pragma_update(None, "cache_size", -4_000)?;
    // Another file may be there by now.
    identity.check()?;
    Ok(connection)
}

/// Reads the header of what is there, without SQLite, and refuses what is not ours.
fn look(path: &Path) -> Result<()> {
    let shown = path.display();
    let refuse = |kind, why: String| Err(Error::new(kind, format!("could not open {shown}: {why}")));
    let io = |error: std::io::Error| {
        let message = format!("could not open {shown}; check that this process may read and write it");
        Error::new(Kind::Store, message).with_source(error)
    };
    match path.metadata() {
        Ok(found) if found.is_dir() => {
            return refuse(Kind::Store, "it is a directory; name a file in it".to_owned());
        }
        Ok(found) if found.len() == 0 => return Ok(()),
        Ok(_) => {}
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return match path.parent() {
                Some(parent) if !parent.as_os_str().is_empty() && !parent.is_dir() => {
                    let why = format!("there is no directory {}; make it first", parent.display());
                    refuse(Kind::Store, why)
                }
                _ => Ok(()),
            };
        }
        Err(error) => return Err(io(error)),
    }
    let mut header = Vec::with_capacity(100);
    File::open(path).and_then(|file| file.take(100).read_to_end(&mut header)).map_err(io)?;
    let number = |at: usize| {
        header.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()).map_or(0, u32::from_be_bytes)
    };
    if !header.starts_with(b"SQLite format 3\0") || header.len() < 100 {
        let why = "it is not a SQLite database, or its beginning is damaged; name another file, or put back a \
                   backup";
        return refuse(Kind::Format, why.to_owned());
    }
    if number(68) != APPLICATION_ID {
        let why = "it is a SQLite database of another application; name a new file, which will be made";
        return refuse(Kind::Format, why.to_owned());
    }
    check_version(number(60), path)
}

fn check_version(version: u32, path: &Path) -> Result<()> {
    if version <= FORMAT {
        return Ok(());
    }
    let message = format!(
        "could not open {}: it has format {version}, and this program reads formats up to {FORMAT}; use a newer \
         version of Leftfold",
        path.display()
    );
    Err(Error::new(Kind::Format, message))
}

fn check_format(connection: &Connection, path: &Path) -> Result<()> {
    let version = connection
        .pragma_query_value(None, "user_version", |row| row.get(0))
        .map_err(|error| Failure::from(error).to_error("open", path))?;
    check_version(version, path)
}

/// Makes the tables of a new file, in one transaction, before the file is switched to its log mode.
fn make(connection: &mut Connection, options: &Options) -> Result<(), Failure> {
    if is_empty(connection)? {
        let transaction = connection.transaction_with_behavior(rusqlite::TransactionBehavior::Exclusive)?;
        if is_empty(&transaction)? {
            if transaction
                .query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))
                .map(|n: i64| n > 0)?
            {
                return Err(Failure::damaged("it holds the tables of another application"));
            }
            transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
            transaction.pragma_update(None, "user_version", FORMAT)?;
            make_tables(&transaction)?;
            transaction.execute(
                "INSERT INTO leftfold_meta VALUES ('partitions', ?1)",
                [options.partitions.unwrap_or(1).to_string()],
            )?;
        }
        transaction.commit()?;
    }
    lift(connection)
}

/// Makes all tables, indexes and triggers that every file has.
pub(crate) fn make_tables(connection: &Connection) -> rusqlite::Result<()> {
    [TABLES, SEQUENCES, REACTIONS, JOURNAL, GENERATIONS]
        .iter()
        .try_for_each(|sql| connection.execute_batch(sql))
}

/// Gives a file of an older format what it lacks, in one transaction.
fn lift(connection: &mut Connection) -> Result<(), Failure> {
    let format = |connection: &Connection| {
        connection.pragma_query_value(None, "user_version", |row| row.get::<_, u32>(0))
    };
    if format(connection)? < FORMAT {
        let transaction = connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
        let found = format(&transaction)?;
        if found < 2 {
            transaction.execute_batch(SEQUENCES)?;
        }
        if found < 3 {
            transaction.execute_batch(REACTIONS)?;
            transaction.execute_batch(JOURNAL)?;
        }
        if found < 4 {
            transaction.execute_batch(GENERATIONS)?;
        }
        transaction.pragma_update(None, "user_version", FORMAT)?;
        transaction.commit()?;
    }
    Ok(())
}

/// An empty file has no pages; SQLite reports the id of one it has not written yet as 0.
fn is_empty(connection: &Connection) -> rusqlite::Result<bool> {
    let id: u32 = connection.pragma_query_value(None, "application_id", |row| row.get(0))?;
    Ok(id != APPLICATION_ID)
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
    // Without this SQLite prepares a cached statement anew whenever other values are bound to it.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    connection.pragma_update(None, "temp_store", "MEMORY")
}

fn tune(connection: &Connection, options: &Options) -> Result<(), Failure> {
    // Switching a new file that another process has open fails without asking the busy handler.
    let begun = Instant::now();
    loop {
        match connection.pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get::<_, String>(0)) {
            Ok(mode) if mode == "wal" => break,
            Ok(mode) => {
                let why = format!("its file system allows only journal mode {mode}, not WAL");
                return Err(Failure::refused("put the file on a local disk", why));
            }
            Err(error)
                if error.sqlite_error_code() == Some(rusqlite::ErrorCode::DatabaseBusy)
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
        let pages = i64::try_from(bytes / PAGE_BYTES).unwrap_or(i64::MAX).max(1);
        connection.pragma_update_and_check(None, "max_page_count", pages, |_| Ok(()))?;
    }
    Ok(())
}

/// While another process writes: look again every 1 to 2 ms, for 10 s at most.
fn wait_a_little() -> impl FnMut(i32) -> bool + Send + 'static {
    let mut begun = Instant::now();
    move |tries| {
        if tries == 0 {
            begun = Instant::now();
        }
        // Processes that wait for each other should not keep in step.
        let jitter = std::process::id().wrapping_add(tries.unsigned_abs()).wrapping_mul(2_654_435_761) >> 22;
        sleep(Duration::from_micros(1_000 + u64::from(jitter)));
        begun.elapsed() < PATIENCE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A killed process can't tell: only a machine that loses power forgets what was not synced.
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

//! The definitions of the tables, indexes and triggers that every file has.

use rusqlite::Connection;

/// Creates all tables, indexes and triggers that every file has.
pub(crate) fn make_tables(connection: &Connection) -> rusqlite::Result<()> {
    [TABLES, SEQUENCES, REACTIONS, JOURNAL, GENERATIONS, WORKERS]
        .iter()
        .try_for_each(|sql| connection.execute_batch(sql))
}

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
pub(super) const SEQUENCES: &str = "
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
pub(super) const REACTIONS: &str = "
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
pub(super) const GENERATIONS: &str = "
CREATE TABLE leftfold_generations (
  collection TEXT PRIMARY KEY NOT NULL,
  live INTEGER NOT NULL,
  known TEXT NOT NULL
) STRICT;
";

/// The change of tasks from formats 3 and 4 to format 5.
pub(super) const SUSPICION: &str = "
ALTER TABLE leftfold_tasks ADD COLUMN suspicion INTEGER NOT NULL DEFAULT 0;
DROP INDEX IF EXISTS leftfold_tasks_due;
CREATE INDEX leftfold_tasks_due ON leftfold_tasks (reaction, suspicion, due, needs) WHERE due IS NOT NULL;
";

/// The table that format 5 adds.
pub(super) const WORKERS: &str = "
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

//! The file format is frozen: other programs, and later versions of this one, read it.

#![allow(clippy::unwrap_used, reason = "a step that fails fails the test")]

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::{cart, entry, insert, stream};
use leftfold::documents::{
    Advance, Checkpoint, CollectionWrites, Commit, CommitOutcome, DocumentWrite, Header, Parked, Tally,
};
use leftfold::log::Entry;
use leftfold::react::{
    Comparing, DocumentSource, Ended, ReactionStore as _, Registered, Run, State, Suspicion, Task,
    TaskChange, TaskKey,
};
use leftfold::{
    Append, DocumentId, Documents, EventKind, Expected, Json, Lane, Mark, Partition, Position, Revision,
};
use leftfold_sqlite::Sqlite;
use rusqlite::Connection;
use tempfile::tempdir;

/// Returns the rows of a query, with columns separated by `|`.
fn rows(connection: &Connection, sql: &str) -> Vec<String> {
    let mut statement = connection.prepare(sql).unwrap();
    let columns = statement.column_count();
    let rows = statement.query_map([], |row| {
        let texts = (0..columns).map(|column| match row.get_ref(column)? {
            rusqlite::types::ValueRef::Null => Ok("NULL".to_owned()),
            rusqlite::types::ValueRef::Integer(number) => Ok(number.to_string()),
            rusqlite::types::ValueRef::Real(number) => Ok(format!("{number:.1}")),
            text => Ok(text.as_str().unwrap().to_owned()),
        });
        Ok(texts.collect::<rusqlite::Result<Vec<_>>>()?.join("|"))
    });
    rows.unwrap().map(Result::unwrap).collect()
}

#[expect(clippy::too_many_lines, reason = "there are many tables")]
#[tokio::test]
async fn the_tables_are_as_they_always_were() {
    let directory = tempdir().unwrap();
    let path = directory.path().join("store.db");
    let store = Sqlite::options().partitions(3).open(&path).await.unwrap();
    store.prepare(&cart()).await.unwrap();
    store.prepare_reactions(&[DocumentSource::Projection(cart())]).await.unwrap();
    let file = Connection::open(&path).unwrap();
    assert_eq!(rows(&file, "PRAGMA application_id"), ["1279675460"]);
    assert_eq!(rows(&file, "PRAGMA user_version"), ["5"]);
    assert_eq!(rows(&file, "PRAGMA journal_mode"), ["wal"]);
    assert_eq!(rows(&file, "SELECT * FROM leftfold_meta"), ["format|5", "partitions|3"]);
    let schema = rows(&file, "SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY name").join(";\n");
    insta::assert_snapshot!(schema, @r##"
CREATE VIEW "cart" AS SELECT id, body, mark FROM "leftfold_cart_1" WHERE body IS NOT NULL;
CREATE TABLE "leftfold_cart_1" (
  id TEXT PRIMARY KEY NOT NULL,
  body TEXT,
  mark TEXT NOT NULL,
  parked TEXT
) STRICT;
CREATE INDEX "leftfold_cart_1_absent" ON "leftfold_cart_1" (id) WHERE body IS NULL;
CREATE INDEX "leftfold_cart_1_parked" ON "leftfold_cart_1" (id) WHERE parked IS NOT NULL;
CREATE TABLE "leftfold_cart~streams_1" (
  id TEXT PRIMARY KEY NOT NULL,
  body TEXT,
  mark TEXT NOT NULL,
  parked TEXT
) STRICT;
CREATE INDEX "leftfold_cart~streams_1_absent" ON "leftfold_cart~streams_1" (id) WHERE body IS NULL;
CREATE INDEX "leftfold_cart~streams_1_parked" ON "leftfold_cart~streams_1" (id) WHERE parked IS NOT NULL;
CREATE TABLE leftfold_changes (
  seq INTEGER PRIMARY KEY AUTOINCREMENT,
  source TEXT NOT NULL,
  id TEXT
) STRICT;
CREATE TRIGGER leftfold_changes_bound AFTER INSERT ON leftfold_changes WHEN new.seq % 1024 = 0 BEGIN
  DELETE FROM leftfold_changes WHERE seq <= new.seq - 1000000;
END;
CREATE TRIGGER "leftfold_changes_delete cart" AFTER DELETE ON "leftfold_cart_1" WHEN old.body IS NOT NULL BEGIN
  INSERT INTO leftfold_changes (source, id) SELECT 'cart', old.id WHERE typeof(old.id) = 'text';
END;
CREATE TRIGGER "leftfold_changes_insert cart" AFTER INSERT ON "leftfold_cart_1" WHEN new.body IS NOT NULL BEGIN
  INSERT INTO leftfold_changes (source, id) SELECT 'cart', new.id WHERE typeof(new.id) = 'text';
END;
CREATE TRIGGER "leftfold_changes_update cart" AFTER UPDATE ON "leftfold_cart_1" WHEN old.body COLLATE BINARY IS NOT new.body OR old.id COLLATE BINARY IS NOT new.id BEGIN
  INSERT INTO leftfold_changes (source, id) SELECT 'cart', new.id WHERE typeof(new.id) = 'text';
  INSERT INTO leftfold_changes (source, id) SELECT 'cart', old.id WHERE typeof(old.id) = 'text' AND old.id COLLATE BINARY IS NOT new.id;
END;
CREATE TABLE leftfold_checkpoints (
  projection TEXT PRIMARY KEY NOT NULL,
  mark TEXT NOT NULL,
  tally TEXT NOT NULL,
  owner TEXT,
  lease_until REAL
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
CREATE TABLE leftfold_generations (
  collection TEXT PRIMARY KEY NOT NULL,
  live INTEGER NOT NULL,
  known TEXT NOT NULL
) STRICT;
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
CREATE TABLE leftfold_leases (
  name TEXT PRIMARY KEY NOT NULL,
  owner TEXT,
  until INTEGER NOT NULL,
  number INTEGER NOT NULL
) STRICT;
CREATE TABLE leftfold_meta (
  key TEXT PRIMARY KEY NOT NULL,
  value TEXT NOT NULL
) STRICT;
CREATE TABLE leftfold_places (
  feed TEXT PRIMARY KEY NOT NULL,
  place TEXT NOT NULL
) STRICT;
CREATE TABLE leftfold_reactions (
  name TEXT PRIMARY KEY NOT NULL,
  version INTEGER NOT NULL,
  reaction TEXT NOT NULL
) STRICT;
CREATE TABLE leftfold_rejected (
  id TEXT PRIMARY KEY NOT NULL,
  source TEXT NOT NULL,
  reason TEXT NOT NULL,
  since INTEGER NOT NULL,
  attributes TEXT NOT NULL,
  content BLOB NOT NULL
) STRICT;
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
CREATE TABLE leftfold_skipped (
  stream TEXT NOT NULL,
  after INTEGER NOT NULL,
  through INTEGER NOT NULL,
  reason TEXT NOT NULL,
  at INTEGER NOT NULL
) STRICT;
CREATE INDEX leftfold_skipped_stream ON leftfold_skipped (stream);
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
CREATE INDEX leftfold_tasks_check ON leftfold_tasks (reaction, check_at) WHERE check_at IS NOT NULL;
CREATE INDEX leftfold_tasks_due ON leftfold_tasks (reaction, suspicion, due, needs) WHERE due IS NOT NULL;
CREATE INDEX leftfold_tasks_state ON leftfold_tasks (reaction, state, document) WHERE state <> 'done';
CREATE TABLE leftfold_workers (
  name TEXT PRIMARY KEY NOT NULL,
  until INTEGER NOT NULL
) STRICT;
CREATE TABLE sqlite_sequence(name,seq)
"##);
}

#[tokio::test]
async fn rows_are_as_they_always_were() {
    let directory = tempdir().unwrap();
    let path = directory.path().join("store.db");
    let store = Sqlite::options().partitions(3).open(&path).await.unwrap();
    store.prepare(&cart()).await.unwrap();
    let second = Entry { metadata: Some(Json::stored(r#"{"by":"ann"}"#)), ..entry("e2") };
    store.append(stream("cart-1"), Expected::Any, vec![entry("e1"), second]).await.unwrap();
    store.append(stream("cart-3"), Expected::Any, vec![entry("e3")]).await.unwrap();

    let mark = |number| -> Mark { [(Lane::from(Partition(0)), number)].into_iter().collect() };
    let parked = Parked {
        stream: stream("cart-1"),
        revision: Revision(2),
        kind: EventKind::new("happened").unwrap(),
        partition: Partition(0),
        position: Position(2),
        error: "no".to_owned(),
        attempts: 1,
        since: "2026-01-02T03:04:05.000006Z".parse().unwrap(),
        from: mark(1),
        through: mark(2),
        waiting: 1,
        anew: false,
    };
    let mut writes =
        vec![insert("cart-1", r#"{"status":"Opened"}"#), insert("gone", ""), insert("sick", "{}")];
    writes[1].record.body = None;
    writes[2].record.header.parked = Some(parked.into());
    let to = Checkpoint { mark: mark(2), tally: Tally { events: 2, ..Tally::default() } };
    let advance = Some(Advance { projection: cart(), from: Mark::default(), to });
    let commit = Commit { advance, changes: vec![CollectionWrites { collection: cart(), writes }] };
    assert!(matches!(store.commit(Arc::new(commit)).await.unwrap(), CommitOutcome::Applied));
    store.claim(&cart(), "ann", Duration::from_mins(1)).await.unwrap();

    let file = Connection::open(&path).unwrap();
    let all = [
        "SELECT * FROM leftfold_events",
        "SELECT * FROM leftfold_cart_1",
        "SELECT projection, mark, tally, owner, lease_until > unixepoch() FROM leftfold_checkpoints",
        "SELECT * FROM cart",
    ];
    let stored = all.map(|sql| rows(&file, sql).join("\n")).join("\n\n");
    insta::assert_snapshot!(stored, @r##"
1|cart-1|1|e1|happened|1767323045000006|"e1"|NULL
2|cart-1|2|e2|happened|1767323045000006|"e2"|{"by":"ann"}
281474976710657|cart-3|1|e3|happened|1767323045000006|"e3"|NULL

cart-1|{"status":"Opened"}|{"0":1}|NULL
gone|NULL|{"0":1}|NULL
sick|{}|{"0":1}|{"stream":"cart-1","revision":2,"kind":"happened","partition":0,"position":2,"error":"no","attempts":1,"since":"2026-01-02T03:04:05.000006Z","from":{"0":1},"through":{"0":2},"waiting":1,"anew":false}

cart|{"0":2}|{"events":2,"applied":0,"skipped":0,"ignored":0,"set_aside":0,"retried":0,"parked":0,"conflicts":0,"last_error":null}|ann|1

cart-1|{"status":"Opened"}|{"0":1}
sick|{}|{"0":1}
"##);
}

/// Covers tasks, registered reactions, and the journal of documents.
#[tokio::test]
async fn rows_of_reactions_are_as_they_always_were() {
    let directory = tempdir().unwrap();
    let path = directory.path().join("store.db");
    let store = Sqlite::open(&path).await.unwrap();
    let on = DocumentSource::Projection(cart());
    store.prepare_reactions(std::slice::from_ref(&on)).await.unwrap();
    let commit =
        |writes| Commit { advance: None, changes: vec![CollectionWrites { collection: cart(), writes }] };
    let written = store.commit(commit(vec![insert("cart-1", "{}")]).into()).await.unwrap();
    assert!(matches!(written, CommitOutcome::Applied));
    let at =
        |second: i64| jiff::Timestamp::from_microsecond(1_800_000_000_000_006 + second * 1_000_000).unwrap();
    let task = Task {
        key: TaskKey { reaction: "mail".to_owned(), document: DocumentId::new("cart-1").unwrap() },
        version: u64::MAX,
        state: State::Running,
        inside: true,
        epoch: 3,
        generation: 4,
        watched: Json::stored(r#"{"status":"Confirmed"}"#),
        due: Some(at(60)),
        since: at(1),
        check_at: Some(at(90)),
        needs: 2,
        attempts: 2,
        first_failed: Some(at(2)),
        error: Some("no".to_owned()),
        owner: Some("worker-1".to_owned()),
        claimed_at: Some(at(3)),
        done_at: None,
        changed_at: at(4),
        history: vec![Run { at: at(2), millis: 17, outcome: Ended::Failed, error: Some("no".to_owned()) }],
        cursor: None,
        suspicion: Suspicion::None,
        excused: 0,
    };
    let key = TaskKey { document: DocumentId::new("cart-2").unwrap(), ..task.key.clone() };
    let done = Task { key, state: State::Done, version: 7, error: None, check_at: None, ..task.clone() };
    assert_eq!(store.save_tasks(vec![TaskChange::Insert(task), TaskChange::Insert(done)]).await.unwrap(), []);
    let reaction = Registered {
        name: "mail".to_owned(),
        version: u64::MAX,
        on: Some(on),
        definition: "confirmed".to_owned(),
        code: 2,
        paused: false,
        paused_because: None,
        throttled: Some(at(5)),
        comparing: Some(Comparing::Documents(DocumentId::new("cart-1").unwrap())),
    };
    assert!(store.register(None, reaction).await.unwrap());
    let number = store.take_lease("feed", "ann", Duration::from_mins(1)).await.unwrap().unwrap();
    assert!(store.put_feed_place("feed", number, Some("17".to_owned())).await.unwrap());
    store.wake().await.unwrap();
    store.wake().await.unwrap();

    let file = Connection::open(&path).unwrap();
    let all = [
        "SELECT reaction, document, version, state, due, check_at, needs, changed_at, error FROM leftfold_tasks",
        "SELECT task FROM leftfold_tasks LIMIT 1",
        "SELECT * FROM leftfold_reactions",
        "SELECT name, owner, until > unixepoch() * 1000000, number FROM leftfold_leases",
        "SELECT * FROM leftfold_places",
        "SELECT source, id FROM leftfold_changes ORDER BY seq",
        "SELECT * FROM leftfold_meta WHERE key = 'stirs'",
    ];
    let stored = all.map(|sql| rows(&file, sql).join("\n")).join("\n\n");
    insta::assert_snapshot!(stored, @r##"
mail|cart-1|-1|running|1800000060000006|1800000090000006|2|1800000004000006|no
mail|cart-2|7|done|NULL|NULL|2|1800000004000006|NULL

{"reaction":"mail","document":"cart-1","version":18446744073709551615,"state":"running","inside":true,"epoch":3,"generation":4,"watched":{"status":"Confirmed"},"due":"2027-01-15T08:01:00.000006Z","since":"2027-01-15T08:00:01.000006Z","check_at":"2027-01-15T08:01:30.000006Z","needs":2,"attempts":2,"first_failed":"2027-01-15T08:00:02.000006Z","error":"no","owner":"worker-1","claimed_at":"2027-01-15T08:00:03.000006Z","done_at":null,"changed_at":"2027-01-15T08:00:04.000006Z","history":[{"at":"2027-01-15T08:00:02.000006Z","millis":17,"outcome":"failed","error":"no"}]}

mail|-1|{"name":"mail","version":18446744073709551615,"on":{"projection":"cart"},"definition":"confirmed","code":2,"paused":false,"throttled":"2027-01-15T08:00:05.000006Z","comparing":{"documents":"cart-1"}}

feed|ann|1|1

feed|17

cart|NULL
cart|cart-1

stirs|2
"##);
}

/// Plain SQL queries use the collection's name and see the existing documents.
#[tokio::test]
async fn a_collection_is_queried_in_plain_sql() {
    let directory = tempdir().unwrap();
    let path = directory.path().join("store.db");
    let store = Sqlite::open(&path).await.unwrap();
    store.prepare(&cart()).await.unwrap();
    let bodies =
        [("a", r#"{"status":"Opened","items":[1,2]}"#), ("b", r#"{"status":"Confirmed"}"#), ("c", "{}")];
    let writes = bodies.map(|(id, body)| insert(id, body)).into();
    let commit = |writes| {
        Arc::new(Commit { advance: None, changes: vec![CollectionWrites { collection: cart(), writes }] })
    };
    assert!(matches!(store.commit(commit(writes)).await.unwrap(), CommitOutcome::Applied));
    let mut delete = insert("c", "");
    delete = DocumentWrite {
        expected: Some(Header { mark: delete.record.header.mark.clone(), parked: None }),
        ..delete
    };
    delete.record.body = None;
    assert!(matches!(store.commit(commit(vec![delete])).await.unwrap(), CommitOutcome::Applied));

    let file = Connection::open(&path).unwrap();
    let found = rows(
        &file,
        "SELECT id, body ->> '$.status', json_array_length(body, '$.items') FROM cart ORDER BY id",
    );
    assert_eq!(found, ["a|Opened|2", "b|Confirmed|NULL"]);
}

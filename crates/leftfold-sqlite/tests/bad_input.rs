//! Bad files and bad input get a clear error, and nothing is lost or half-written.

#![allow(clippy::unwrap_used, reason = "a step that fails fails the test")]

mod common;

use std::path::Path;
use std::sync::Arc;

use common::{cart, closed, entry, everything, insert, stream};
use leftfold::content::Contents as _;
use leftfold::documents::Commit;
use leftfold::documents::{CollectionWrites, CommitOutcome};
use leftfold::log::{Entry, Limit};
use leftfold::react::{ExternalCollection, ReactionStore as _};
use leftfold::{Append, AppendError, Documents, Expected, Json, Kind, Log, Partition, Position, Revision};
use leftfold_sqlite::Sqlite;
use rusqlite::Connection;
use tempfile::tempdir;

/// Checks that opening fails with this kind, names the file, and contains these words. The file and
/// its directory must stay unchanged.
async fn refused(path: &Path, kind: Kind, words: &[&str]) {
    let before = snapshot(path);
    let error = Sqlite::open(path).await.expect_err("it should be refused");
    assert_eq!(error.kind(), kind, "{error}");
    let message = error.to_string();
    assert!(message.contains(path.to_str().unwrap()), "{message:?} should name the file");
    for word in words {
        assert!(message.contains(word), "{message:?} should say {word:?}");
    }
    assert_eq!(snapshot(path), before, "nothing is written");
}

/// Returns the file's bytes and the names beside it.
fn snapshot(path: &Path) -> (Option<Vec<u8>>, Vec<String>) {
    let neighbours = path.parent().and_then(|parent| parent.read_dir().ok()).into_iter().flatten();
    let mut names: Vec<_> =
        neighbours.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    let bytes = if path.starts_with("/proc") { None } else { std::fs::read(path).ok() };
    (bytes, if path.starts_with("/proc") { Vec::new() } else { names })
}

#[tokio::test]
async fn what_is_no_file_of_ours_is_refused_and_left_alone() {
    let directory = tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    refused(directory.path(), Kind::Store, &["is a directory", "name a file"]).await;
    refused(&path("none/store.db"), Kind::Store, &["no directory", "none", "create it"]).await;
    refused(Path::new("/proc/store.db"), Kind::Store, &["check that its directory exists"]).await;

    std::fs::write(path("text"), "Dear diary, ".repeat(1_000)).unwrap();
    refused(&path("text"), Kind::Format, &["not a SQLite database"]).await;
    std::fs::write(path("short"), "SQLite format 3\0").unwrap();
    refused(&path("short"), Kind::Format, &["not a SQLite database"]).await;
    std::fs::write(path("zeros"), [0; 8_192]).unwrap();
    refused(&path("zeros"), Kind::Format, &["not a SQLite database"]).await;

    let foreign = Connection::open(path("foreign")).unwrap();
    foreign.execute_batch("CREATE TABLE books (title); INSERT INTO books VALUES ('Emma')").unwrap();
    drop(foreign);
    let bytes = std::fs::read(path("foreign")).unwrap();
    // The magic, the page size, the fractions, and the page with the schema.
    for (at, name) in [(3, "magic"), (16, "page"), (21, "fractions"), (100, "schema")] {
        let mut damaged = bytes.clone();
        damaged[at..at + 8.min(at)].fill(0xA5);
        std::fs::write(path(name), damaged).unwrap();
        refused(&path(name), Kind::Format, &["damaged", "restore a backup"]).await;
    }
    std::fs::write(path("half"), &bytes[..4_096]).unwrap();
    refused(&path("half"), Kind::Format, &["damaged", "restore a backup"]).await;
}

#[tokio::test]
async fn an_empty_file_is_a_new_store() {
    let directory = tempdir().unwrap();
    let path = directory.path().join("store.db");
    std::fs::write(&path, "").unwrap();
    let store = Sqlite::open(&path).await.unwrap();
    assert_eq!(store.partitions(), 1);
}

#[tokio::test]
async fn a_newer_format_is_refused() {
    let directory = tempdir().unwrap();
    let path = directory.path().join("store.db");
    closed(Sqlite::open(&path).await.unwrap()).await;
    Connection::open(&path).unwrap().pragma_update(None, "user_version", 6).unwrap();
    common::settled(&path).await;
    refused(&path, Kind::Format, &["format 6", "up to 5", "newer version"]).await;
}

/// The tasks table of formats 3 and 4.
const OLD_TASKS: &str = "
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
INSERT INTO leftfold_tasks VALUES ('mail', 'd1', 7, 'pending', 5, NULL, 1, 5, NULL, '{}');
";

#[tokio::test]
async fn an_older_format_gets_what_it_lacks() {
    let directory = tempdir().unwrap();
    let path = directory.path().join("store.db");
    let schema = |file: &Connection| {
        let sql =
            "SELECT group_concat(sql, ';' ORDER BY name) FROM sqlite_schema WHERE name LIKE 'leftfold%'";
        file.query_row(sql, [], |row| row.get::<_, String>(0)).unwrap()
    };
    let second = ["sequences", "held", "kept", "conflicts", "skipped", "rejected", "counters", "draws"];
    let third = ["tasks", "reactions", "leases", "places", "changes"];
    let fourth = ["generations"];
    let fifth = ["workers"];
    let formats = [
        (1, [&second[..], &third, &fourth, &fifth].concat()),
        (2, [&third[..], &fourth, &fifth].concat()),
        (3, [&fourth[..], &fifth].concat()),
        (4, fifth.to_vec()),
    ];
    for (format, lacks) in formats {
        std::fs::remove_file(&path).ok();
        closed(Sqlite::open(&path).await.unwrap()).await;
        let file = Connection::open(&path).unwrap();
        let new = schema(&file);
        for table in lacks {
            file.execute(&format!("DROP TABLE leftfold_{table}"), []).unwrap();
        }
        if format > 2 {
            file.execute_batch("DROP TABLE leftfold_tasks").unwrap();
            file.execute_batch(OLD_TASKS).unwrap();
        }
        file.execute("DELETE FROM leftfold_meta WHERE key = 'format'", []).unwrap();
        file.pragma_update(None, "user_version", format).unwrap();
        drop(file);
        let store = Sqlite::open(&path).await.unwrap();
        let file = Connection::open(&path).unwrap();
        assert_eq!(schema(&file), new, "the tables of format {format} become those of a new file");
        let (in_header, in_meta): (i64, String) = file
            .query_row(
                "SELECT user_version, value FROM pragma_user_version, leftfold_meta WHERE key = 'format'",
                [],
                |row| Ok((row.get(0)?, row.get(1)?)),
            )
            .unwrap();
        assert_eq!((in_header, in_meta.as_str()), (5, "5"));
        let kept = "SELECT count(*) FROM leftfold_tasks WHERE version = 7 AND suspicion = 0";
        let kept: i64 = file.query_row(kept, [], |row| row.get(0)).unwrap();
        assert_eq!(kept, i64::from(format > 2), "no task is lost");
        assert_eq!(leftfold::Sequences::rejected(&store, None, 1).await.unwrap(), []);
        assert_eq!(store.registered().await.unwrap(), []);
        assert_eq!(store.generations(&cart()).await.unwrap(), leftfold::documents::Generations::default());
        store.prepare_reactions(&[leftfold::react::DocumentSource::Projection(cart())]).await.unwrap();
        drop(file);
        closed(store).await;
    }
}

#[tokio::test]
async fn a_damaged_file_is_refused() {
    let directory = tempdir().unwrap();
    let path = directory.path().join("store.db");
    closed(Sqlite::open(&path).await.unwrap()).await;
    let bytes = std::fs::read(&path).unwrap();
    let mut damaged = bytes.clone();
    damaged[100..4_000].fill(0xA5);
    for broken in [&damaged[..], &bytes[..4_096], &bytes[..100]] {
        std::fs::write(&path, broken).unwrap();
        let error = Sqlite::open(&path).await.expect_err("it should be refused");
        assert_eq!(error.kind(), Kind::Format, "{error}");
        assert!(error.to_string().contains("damaged") && error.to_string().contains("backup"), "{error}");
    }
    std::fs::write(&path, bytes).unwrap();
    Sqlite::open(&path).await.unwrap();
}

#[tokio::test]
async fn a_file_that_may_not_be_written_is_refused() {
    let directory = tempdir().unwrap();
    let path = directory.path().join("store.db");
    closed(Sqlite::open(&path).await.unwrap()).await;
    let mut permissions = path.metadata().unwrap().permissions();
    permissions.set_readonly(true);
    std::fs::set_permissions(&path, permissions).unwrap();
    if std::fs::OpenOptions::new().write(true).open(&path).is_err() {
        refused(&path, Kind::Store, &["right to write"]).await;
    } else {
        // This user may write regardless of the permissions.
        Sqlite::open(&path).await.unwrap();
    }
}

#[tokio::test]
async fn the_number_of_partitions_is_fixed() {
    let directory = tempdir().unwrap();
    let path = directory.path().join("store.db");
    for number in [0, 1_025] {
        let error = Sqlite::options().partitions(number).open(&path).await.unwrap_err();
        assert_eq!(error.kind(), Kind::Invalid, "{error}");
        assert!(error.to_string().contains("1 to 1024"), "{error}");
        assert!(!path.exists(), "nothing is made");
    }
    closed(Sqlite::options().partitions(4).open(&path).await.unwrap()).await;
    let error = Sqlite::options().partitions(2).open(&path).await.unwrap_err().to_string();
    assert!(error.contains("has 4 partitions, not 2"), "{error}");
    assert_eq!(Sqlite::options().partitions(4).open(&path).await.unwrap().partitions(), 4);
    assert_eq!(Sqlite::open(&path).await.unwrap().partitions(), 4);
}

#[tokio::test]
async fn appends_have_limits() {
    let directory = tempdir().unwrap();
    let store = Sqlite::options().max_event_bytes(100).open(directory.path().join("store.db")).await.unwrap();
    let sized = |size: usize| Json::of(&"x".repeat(size - 2)).unwrap();
    let large = Entry { data: sized(101), ..entry("e1") };
    let large_metadata = Entry { metadata: Some(sized(101)), ..entry("e2") };
    let many = (0..10_001).map(|number| entry(&number.to_string())).collect();
    for (entries, words) in [
        (vec![large], vec!["event data", "100 bytes", "e1 has 101", "raise the store's limit"]),
        (vec![entry("e0"), large_metadata], vec!["event metadata", "100 bytes", "e2 has 101"]),
        (many, vec!["number of events", "10001", "1 to 10000"]),
        (vec![], vec!["number of events", "0", "1 to 10000"]),
        (vec![entry("twice"), entry("e3"), entry("twice")], vec!["event id", "twice"]),
    ] {
        let error = store.append(stream("s"), Expected::Any, entries).await.unwrap_err();
        assert!(matches!(error, AppendError::Invalid(_)), "{error}");
        for word in words {
            assert!(error.to_string().contains(word), "{error} should say {word:?}");
        }
    }
    assert!(everything(&store).await.is_empty());
    let fits = Entry { data: sized(100), metadata: Some(sized(100)), ..entry("fits") };
    store.append(stream("s"), Expected::Any, vec![fits]).await.unwrap();
    let many = (0..10_000).map(|number| entry(&number.to_string())).collect();
    store.append(stream("t"), Expected::Any, many).await.unwrap();
}

#[tokio::test]
async fn numbers_that_cannot_be_stored_are_refused() {
    let directory = tempdir().unwrap();
    let store = Sqlite::open(directory.path().join("store.db")).await.unwrap();
    let huge = u64::MAX;
    let appended = store.append(stream("s"), Revision(huge).into(), vec![entry("a")]).await.unwrap_err();
    assert!(matches!(appended, AppendError::Invalid(_)), "{appended}");
    let read = store.read(Partition(0), Position(huge), Limit::default()).await.unwrap_err();
    assert!(read.kind() == Kind::Invalid && read.to_string().contains("position"), "{read}");
    let read = store.read_stream(&stream("s"), Revision(huge), Limit::default()).await.unwrap_err();
    assert!(read.kind() == Kind::Invalid && read.to_string().contains("revision"), "{read}");
    let read = store.read(Partition(1), Position(0), Limit::default()).await.unwrap_err();
    assert!(read.kind() == Kind::Invalid && read.to_string().contains("partition"), "{read}");
}

#[tokio::test]
async fn a_document_has_a_limit() {
    let directory = tempdir().unwrap();
    let store = Sqlite::open(directory.path().join("store.db")).await.unwrap();
    store.prepare(&cart()).await.unwrap();
    let body = |size: usize| "x".repeat(size - 2);
    let writes = vec![insert("small", "1"), insert("large", &format!("{:?}", body(16_000_001)))];
    let commit = |writes| {
        Arc::new(Commit { advance: None, changes: vec![CollectionWrites { collection: cart(), writes }] })
    };
    let error = store.commit(commit(writes)).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Invalid, "{error}");
    for word in ["large", "cart", "16000000", "16000001"] {
        assert!(error.to_string().contains(word), "{error} should say {word:?}");
    }
    assert!(store.scan(&cart(), None, 9).await.unwrap().is_empty(), "nothing is written");
    let fits = commit(vec![insert("fits", &format!("{:?}", body(16_000_000)))]);
    assert!(matches!(store.commit(fits).await.unwrap(), CommitOutcome::Applied));
}

#[tokio::test]
async fn a_collection_needs_a_name_of_its_own() {
    let directory = tempdir().unwrap();
    let path = directory.path().join("store.db");
    let store = Sqlite::open(&path).await.unwrap();
    let other = Connection::open(&path).unwrap();
    other.execute_batch("CREATE TABLE books (title); CREATE VIEW Films AS SELECT 1").unwrap();
    store.prepare(&cart()).await.unwrap();
    for (name, words) in [
        ("books", ["books", "rename it"]),
        ("films", ["Films", "rename it"]),
        ("leftfold_events", ["leftfold_events", "another name"]),
        ("sqlite_x", ["sqlite_x", "another name"]),
        ("Cart", ["leftfold_cart_1", "case"]),
    ] {
        let collection = leftfold::Collection::new(name).unwrap();
        let error = store.prepare(&collection).await.unwrap_err();
        assert_eq!(error.kind(), Kind::Invalid, "{error}");
        for word in words {
            assert!(error.to_string().contains(word), "{error} should say {word:?}");
        }
        let made = "SELECT count(*) FROM sqlite_schema WHERE name GLOB 'leftfold_' || ?1 || '_1'";
        let made: i64 = other.query_row(made, [name], |row| row.get(0)).unwrap();
        assert_eq!(made, 0, "nothing is made for {name}");
    }
    let missing = store.count(&leftfold::Collection::new("none").unwrap()).await.unwrap_err();
    assert!(missing.to_string().contains("prepare"), "{missing}");
    store.prepare(&leftfold::Collection::new("order").unwrap()).await.unwrap();
}

/// On a full disk, only writes that do not fit fail. They succeed again once there is room.
#[tokio::test(flavor = "multi_thread")]
async fn a_full_store_loses_nothing_and_recovers() {
    let directory = tempdir().unwrap();
    let path = directory.path().join("store.db");
    let store = Sqlite::open(&path).await.unwrap();
    store.prepare(&cart()).await.unwrap();
    let other = Connection::open(&path).unwrap();
    other.execute_batch("CREATE TABLE ballast (x); INSERT INTO ballast VALUES (zeroblob(1000000))").unwrap();
    closed(store).await;
    let used: u32 =
        other.query_row("SELECT page_count FROM pragma_page_count", [], |row| row.get(0)).unwrap();
    let store = Sqlite::options().max_bytes(u64::from(used + 30) * 4_096).open(&path).await.unwrap();

    let mut there = Vec::new();
    let mut refusals = 0;
    for round in 0..40 {
        // Some appends of a group fit and some do not. Several events make an append with steps.
        let appends = (0..8).map(|task| {
            let store = store.clone();
            let size = if task % 3 == 0 { 6_000 } else { 50 };
            let entries: Vec<_> = (0..=task % 2)
                .map(|part| Entry {
                    data: Json::of(&"x".repeat(size)).unwrap(),
                    ..entry(&format!("{round}-{task}-{part}"))
                })
                .collect();
            tokio::spawn(async move {
                let ids: Vec<_> = entries.iter().map(|entry| entry.id.as_str().to_owned()).collect();
                (ids, store.append(stream(&format!("s{task}")), Expected::Any, entries).await)
            })
        });
        for append in appends.collect::<Vec<_>>() {
            match append.await.unwrap() {
                (ids, Ok(_)) => there.extend(ids),
                (_, Err(AppendError::Store(error))) => {
                    assert_eq!(error.kind(), Kind::Full, "{error}");
                    assert!(error.to_string().contains("free disk space"), "{error}");
                    refusals += 1;
                }
                (_, Err(error)) => panic!("{error}"),
            }
        }
    }
    assert!(refusals > 0 && !there.is_empty(), "it should get full, and not at once");
    let mut found: Vec<_> =
        everything(&store).await.into_iter().map(|event| event.id.as_str().to_owned()).collect();
    there.sort();
    found.sort();
    assert_eq!(found, there, "what was acknowledged is there, and nothing else");

    let writes = (0..50).map(|number| insert(&format!("d{number}"), &format!("{:?}", "x".repeat(5_000))));
    let commit = Arc::new(Commit {
        advance: None,
        changes: vec![CollectionWrites { collection: cart(), writes: writes.collect() }],
    });
    let error = store.commit(Arc::clone(&commit)).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Full, "{error}");
    assert!(store.scan(&cart(), None, 9).await.unwrap().is_empty(), "nothing is half-written");

    other.execute_batch("DROP TABLE ballast").unwrap();
    assert!(matches!(store.commit(commit).await.unwrap(), CommitOutcome::Applied));
    store.append(stream("s"), Expected::Any, vec![entry("room")]).await.unwrap();
    assert_eq!(store.scan(&cart(), None, 99).await.unwrap().len(), 50);
}

/// Documents without events are stored only in tables created for them.
#[tokio::test]
async fn tables_of_others_are_not_written_to() {
    let directory = tempdir().unwrap();
    let path = directory.path().join("store.db");
    let store = Sqlite::open(&path).await.unwrap();
    let others = Connection::open(&path).unwrap();
    let tables = "CREATE TABLE books (title TEXT); CREATE TABLE notes (id TEXT PRIMARY KEY, body TEXT, guard TEXT); \
                  CREATE VIEW seen AS SELECT 1 AS id";
    others.execute_batch(tables).unwrap();
    for (name, words) in [
        ("books", ["no column `id TEXT PRIMARY KEY`", "name another table"]),
        ("notes", ["no column `operations`", "name another collection"]),
        ("seen", ["is a view", "name the table behind it"]),
        ("Notes", ["is called notes", "use the exact name"]),
        ("sqlite_x", ["are reserved for", "another name"]),
        ("Leftfold_meta", ["are reserved for", "another name"]),
    ] {
        let error = store.prepare_contents(&ExternalCollection::new(name).unwrap()).await.unwrap_err();
        assert_eq!(error.kind(), Kind::Invalid, "{error}");
        assert!(words.iter().all(|word| error.to_string().contains(word)), "{error}");
    }
}

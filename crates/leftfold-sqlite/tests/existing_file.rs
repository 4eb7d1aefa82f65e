//! A file that an application already uses gets Leftfold's tables, and keeps everything it has.
//!
//! The bugs this guards against:
//!
//! - Leftfold overwrites the header, so that the application's migrations run again or not at all.
//! - Tables of the application are taken for Leftfold's.
//! - Only some of Leftfold's tables are created.
//! - The application loses a lock when Leftfold inspects the file.

#![allow(clippy::unwrap_used, reason = "a step that fails fails the test")]

mod common;

use std::path::Path;
use std::sync::{Arc, Barrier};
use std::time::Duration;

use common::{cart, entry, insert, stream};
use leftfold::documents::{CollectionWrites, Commit, CommitOutcome};
use leftfold::inspect::doctor::{Examine as _, Severity};
use leftfold::react::{Context, Reaction, Reactor};
use leftfold::{
    Append as _, Collection, Documents as _, Event, Expected, Kind, Leftfold, Log as _, Partition, Position,
    Projection, fold,
};
use leftfold_sqlite::Sqlite;
use rusqlite::Connection;
use tempfile::tempdir;
use tokio::sync::mpsc;

const A_WHILE: Duration = Duration::from_secs(30);

/// A table with an index, a trigger, a view and rows. The trigger has the name that a projection
/// will have.
const APPLICATION: &str = "
    CREATE TABLE books (isbn INTEGER PRIMARY KEY AUTOINCREMENT, title TEXT NOT NULL, sold INTEGER DEFAULT 0);
    CREATE INDEX books_title ON books (title);
    CREATE TABLE sales (at INTEGER, isbn INTEGER REFERENCES books);
    CREATE TRIGGER cart AFTER INSERT ON sales BEGIN UPDATE books SET sold = sold + 1 WHERE isbn = new.isbn; END;
    CREATE VIEW bestsellers AS SELECT title FROM books WHERE sold > 1;
    CREATE TABLE orders (id TEXT PRIMARY KEY, body TEXT);
    INSERT INTO books (title) VALUES ('Emma'), ('Persuasion');
    INSERT INTO sales VALUES (1, 1), (2, 1);
    INSERT INTO orders VALUES ('o1', '{\"total\":7}');
";

/// Creates the file of an application, with these pragmas.
fn application(path: &Path, pragmas: &str) -> Connection {
    let file = Connection::open(path).unwrap();
    file.execute_batch(pragmas).unwrap();
    file.execute_batch(APPLICATION).unwrap();
    file
}

fn text(file: &Connection, sql: &str) -> String {
    file.query_row(sql, [], |row| row.get::<_, Option<String>>(0)).unwrap().unwrap_or_default()
}

fn number(file: &Connection, sql: &str) -> i64 {
    file.query_row(sql, [], |row| row.get(0)).unwrap()
}

/// Returns everything that the application has in the file.
fn owned(file: &Connection) -> Vec<String> {
    let schema = "SELECT group_concat(type || ' ' || sql, ';' ORDER BY name) FROM sqlite_schema \
        WHERE tbl_name IN ('books', 'sales', 'orders', 'bestsellers') AND name NOT LIKE 'leftfold\\_%' ESCAPE '\\'";
    let counters = "SELECT group_concat(name || seq) FROM sqlite_sequence WHERE name NOT LIKE 'leftfold%'";
    let rows = ["books", "sales", "orders"].map(|table| {
        let mut statement = file.prepare(&format!("SELECT * FROM {table} ORDER BY 1")).unwrap();
        let columns = statement.column_count();
        let rows = statement.query_map([], |row| {
            let values: Result<Vec<_>, _> =
                (0..columns).map(|column| row.get::<_, rusqlite::types::Value>(column)).collect();
            Ok(format!("{values:?}"))
        });
        rows.unwrap().map(Result::unwrap).collect::<Vec<_>>().join("\n")
    });
    let pragmas = ["application_id", "user_version", "page_size", "auto_vacuum"]
        .map(|name| format!("{name} {}", number(file, &format!("PRAGMA {name}"))));
    [vec![text(file, schema), text(file, counters)], rows.into(), pragmas.into()].concat()
}

/// A projection that counts events.
struct Counted(&'static str);

impl Projection for Counted {
    type Event = serde_json::Value;
    type Document = u64;

    fn name(&self) -> &str {
        self.0
    }

    fn fold(&self, count: Option<u64>, _: &Event<Self::Event>) -> Result<Option<u64>, fold::Error> {
        Ok(Some(count.unwrap_or(0) + 1))
    }
}

/// Returns the findings of the doctor that are worse than fine, except about the disk of the tests.
async fn troubles(store: &Sqlite) -> Vec<String> {
    let findings = store.examine().await.unwrap();
    let troubles = findings
        .into_iter()
        .filter(|finding| finding.severity > Severity::Fine && finding.subject != "free disk space");
    troubles.map(|finding| finding.to_string()).collect()
}

/// Appends, folds, and reacts to the application's orders.
async fn work(path: &Path, round: &str) -> Sqlite {
    let store = Sqlite::open(path).await.unwrap();
    let app = Leftfold::on(store.clone()).projection(Counted("cart")).start().await.unwrap();
    store.append(stream("a"), Expected::Any, vec![entry(round)]).await.unwrap();
    app.caught_up().await.unwrap();
    app.stop().await;
    let (sent, mut done) = mpsc::unbounded_channel();
    let pack = Reaction::on_plain::<serde_json::Value>("orders", "pack").run(
        move |context: Context<serde_json::Value>| {
            let sent = sent.clone();
            async move {
                sent.send(context.id().to_string()).unwrap();
                Ok(())
            }
        },
    );
    let reactor = Reactor::on(store.clone()).reaction(pack).start().await.unwrap();
    let other = Connection::open(path).unwrap();
    other.busy_timeout(A_WHILE).unwrap();
    let add = "INSERT INTO orders VALUES (?1, '{\"total\":9}')";
    other.execute(add, [round]).unwrap();
    tokio::time::timeout(A_WHILE, async { while done.recv().await.unwrap() != round {} }).await.unwrap();
    other.execute("DELETE FROM orders WHERE id = ?1", [round]).unwrap();
    reactor.idle_within(A_WHILE).await.unwrap();
    reactor.stop(A_WHILE).await;
    store
}

#[tokio::test(flavor = "multi_thread")]
async fn the_file_of_an_application_is_shared_with_it() {
    let setups = [
        "",
        "PRAGMA application_id = 0x12345678; PRAGMA user_version = 7",
        "PRAGMA application_id = -5; PRAGMA user_version = -1; PRAGMA journal_mode = WAL",
        "PRAGMA page_size = 1024; PRAGMA auto_vacuum = FULL; PRAGMA user_version = 99",
        "PRAGMA page_size = 65536; PRAGMA auto_vacuum = INCREMENTAL; PRAGMA journal_mode = PERSIST",
    ];
    for setup in setups {
        let directory = tempdir().unwrap();
        let path = directory.path().join("store.db");
        // The application keeps its connection open.
        let file = application(&path, setup);
        let before = owned(&file);
        for round in ["one", "two"] {
            let store = work(&path, round).await;
            assert_eq!(owned(&file), before, "{setup}");
            assert_eq!(troubles(&store).await, [""; 0], "{setup}");
            store.probe().await.unwrap();
            store.close().await;
        }
        assert_eq!(text(&file, "SELECT body FROM cart"), "2");
        assert_eq!(text(&file, "SELECT value FROM leftfold_meta WHERE key = 'format'"), "5");
        file.execute_batch("INSERT INTO sales VALUES (3, 2), (4, 2)").unwrap();
        assert_eq!(number(&file, "SELECT count(*) FROM bestsellers"), 2, "its trigger and view work");
        assert_eq!(text(&file, "PRAGMA integrity_check"), "ok");
    }
}

/// Some applications create their file first, and their tables later.
#[tokio::test]
async fn a_file_without_tables_is_the_applications_too() {
    let directory = tempdir().unwrap();
    let path = directory.path().join("store.db");
    let file = Connection::open(&path).unwrap();
    file.execute_batch("PRAGMA journal_mode = WAL; CREATE TABLE x (y); DROP TABLE x").unwrap();
    let store = Sqlite::open(&path).await.unwrap();
    store.append(stream("a"), Expected::Any, vec![entry("1")]).await.unwrap();
    assert_eq!(number(&file, "PRAGMA application_id"), 0);
    file.execute_batch("PRAGMA user_version = 12").unwrap();
    file.execute_batch(APPLICATION).unwrap();
    store.close().await;
    let store = Sqlite::open(&path).await.unwrap();
    assert_eq!(store.heads().await.unwrap().position(Partition(0)), Position(1));
    assert_eq!(troubles(&store).await, [""; 0]);
    assert_eq!(number(&file, "PRAGMA user_version"), 12);
}

#[tokio::test]
async fn a_newer_format_is_refused_wherever_it_is_written() {
    let directory = tempdir().unwrap();
    let path = directory.path().join("store.db");
    let file = application(&path, "PRAGMA user_version = 3");
    Sqlite::open(&path).await.unwrap().close().await;
    file.execute_batch("UPDATE leftfold_meta SET value = '6' WHERE key = 'format'").unwrap();
    let schema = "SELECT group_concat(sql) FROM sqlite_schema";
    let before = (text(&file, schema), owned(&file));
    let error = Sqlite::open(&path).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Format, "{error}");
    for words in ["format 6", "up to 5", "newer version"] {
        assert!(error.to_string().contains(words), "{error}");
    }
    assert_eq!((text(&file, schema), owned(&file)), before);
    file.execute_batch("UPDATE leftfold_meta SET value = 'five' WHERE key = 'format'").unwrap();
    let error = Sqlite::open(&path).await.unwrap_err();
    assert!(error.kind() == Kind::Format && error.to_string().contains("five"), "{error}");
}

/// Names that begin with `leftfold_` are Leftfold's, even if no table has them yet.
#[tokio::test]
async fn names_that_are_taken_are_refused_and_nothing_is_written() {
    let taken = [
        ("CREATE TABLE leftfold_events (x)", "leftfold_events"),
        ("CREATE TABLE Leftfold_Tasks (x)", "Leftfold_Tasks"),
        ("CREATE TABLE leftfold_cart_1 (id)", "leftfold_cart_1"),
        ("CREATE TABLE leftfold_meta (x)", "leftfold_meta"),
        (
            "CREATE TABLE leftfold_meta (key, value); INSERT INTO leftfold_meta VALUES ('a', 'b')",
            "leftfold_meta",
        ),
        ("CREATE VIEW leftfold_places AS SELECT 1", "leftfold_places"),
        ("CREATE INDEX LEFTFOLD_tasks_due ON books (title)", "LEFTFOLD_tasks_due"),
    ];
    for (sql, name) in taken {
        let directory = tempdir().unwrap();
        let path = directory.path().join("store.db");
        application(&path, "").execute_batch(sql).unwrap();
        let before = std::fs::read(&path).unwrap();
        let error = Sqlite::open(&path).await.unwrap_err();
        assert_eq!(error.kind(), Kind::Format, "{error}");
        for words in [name, "rename it", "another file"] {
            assert!(error.to_string().contains(words), "{error} should say {words:?}");
        }
        assert_eq!(std::fs::read(&path).unwrap(), before, "nothing is written");
        assert_eq!(directory.path().read_dir().unwrap().count(), 1, "there is no file beside it");
    }
}

/// In UTF-16, SQLite would not sort ids as the engine does.
#[tokio::test]
async fn another_text_encoding_is_refused() {
    for encoding in ["UTF-16le", "UTF-16be"] {
        let directory = tempdir().unwrap();
        let path = directory.path().join("store.db");
        drop(application(&path, &format!("PRAGMA encoding = '{encoding}'")));
        let before = std::fs::read(&path).unwrap();
        let error = Sqlite::open(&path).await.unwrap_err();
        assert_eq!(error.kind(), Kind::Format, "{error}");
        for words in [encoding, "UTF-8", "open another file"] {
            assert!(error.to_string().contains(words), "{error}");
        }
        assert_eq!(std::fs::read(&path).unwrap(), before, "nothing is written");
    }
}

#[tokio::test]
async fn a_projection_leaves_tables_with_its_name_alone() {
    let directory = tempdir().unwrap();
    let path = directory.path().join("store.db");
    let file = application(&path, "");
    let before = owned(&file);
    let store = Sqlite::open(&path).await.unwrap();
    for name in ["books", "Orders", "bestsellers", "books_title"] {
        let error = store.prepare(&Collection::new(name).unwrap()).await.unwrap_err();
        assert_eq!(error.kind(), Kind::Invalid, "{error}");
        assert!(error.to_string().contains("another name"), "{error}");
    }
    let error = Leftfold::on(store.clone()).projection(Counted("books")).start().await.err().unwrap();
    assert!(error.to_string().contains("another name"), "{error}");
    assert_eq!(owned(&file), before);
    let made = "SELECT count(*) FROM sqlite_schema WHERE name LIKE 'leftfold%books%'";
    assert_eq!(number(&file, made), 0);

    // A trigger with the same name does not prevent a view.
    store.prepare(&cart()).await.unwrap();
    let commit = Commit {
        advance: None,
        changes: vec![CollectionWrites { collection: cart(), writes: vec![insert("c", "{}")] }],
    };
    assert!(matches!(store.commit(Arc::new(commit)).await.unwrap(), CommitOutcome::Applied));
    assert_eq!(owned(&file), before);
}

#[tokio::test]
async fn a_switch_leaves_a_view_of_the_application_alone() {
    let directory = tempdir().unwrap();
    let path = directory.path().join("store.db");
    let store = Sqlite::open(&path).await.unwrap();
    store.prepare(&cart()).await.unwrap();
    let file = Connection::open(&path).unwrap();
    file.execute_batch("DROP VIEW cart; CREATE VIEW cart AS SELECT 1 AS mine").unwrap();
    let mut next = store.generations(&cart()).await.unwrap();
    next.live.number += 1;
    next.revision += 1;
    let error = store.put_generations(&cart(), 0, next).await.unwrap_err();
    assert!(error.to_string().contains("rename it"), "{error}");
    assert_eq!(number(&file, "SELECT mine FROM cart"), 1);
}

/// The doctor looks for damage even if SQLite can't check a table without the application's
/// functions.
#[tokio::test]
async fn functions_of_the_application_are_no_damage() {
    let directory = tempdir().unwrap();
    let path = directory.path().join("store.db");
    let file = application(&path, "");
    let flags = rusqlite::functions::FunctionFlags::SQLITE_UTF8
        | rusqlite::functions::FunctionFlags::SQLITE_DETERMINISTIC;
    file.create_scalar_function("is_name", 1, flags, |_| Ok(true)).unwrap();
    file.execute_batch(
        "CREATE TABLE people (name TEXT CHECK (is_name(name)));
         CREATE INDEX people_name ON people (is_name(name));
         INSERT INTO people VALUES ('Ann')",
    )
    .unwrap();
    let store = Sqlite::open(&path).await.unwrap();
    assert_eq!(troubles(&store).await, [""; 0]);
}

#[tokio::test]
async fn the_largest_size_counts_pages_as_large_as_they_are() {
    let directory = tempdir().unwrap();
    let path = directory.path().join("store.db");
    drop(application(&path, "PRAGMA page_size = 65536"));
    Sqlite::open(&path).await.unwrap().close().await;
    let bytes = path.metadata().unwrap().len();
    let store = Sqlite::options().max_bytes(bytes + 4 * 65_536).open(&path).await.unwrap();
    let large = leftfold::Json::of(&"x".repeat(500_000)).unwrap();
    let entries = vec![leftfold::log::Entry { data: large, ..entry("large") }];
    let error = store.append(stream("a"), Expected::Any, entries).await.unwrap_err();
    assert!(error.to_string().contains("full"), "{error}");
    store.append(stream("a"), Expected::Any, vec![entry("small")]).await.unwrap();
}

#[test]
fn a_file_that_is_opened_by_many_at_once_gets_one_set_of_tables() {
    for setup in ["", "PRAGMA journal_mode = WAL"] {
        let directory = tempdir().unwrap();
        let path = directory.path().join("store.db");
        let file = application(&path, setup);
        let before = owned(&file);
        let together = Barrier::new(6);
        std::thread::scope(|scope| {
            for number in 0..6 {
                let (together, path) = (&together, &path);
                scope.spawn(move || {
                    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                    together.wait();
                    runtime.block_on(async {
                        let store = Sqlite::open(path).await.unwrap();
                        let id = number.to_string();
                        store.append(stream("a"), Expected::Any, vec![entry(&id)]).await.unwrap();
                    });
                });
            }
        });
        assert_eq!(number(&file, "SELECT count(*) FROM leftfold_events"), 6);
        assert_eq!(number(&file, "SELECT count(*) FROM leftfold_meta WHERE key = 'format'"), 1);
        assert_eq!(owned(&file), before);
    }
}

/// Closing a file releases all locks of this process on it, regardless of which part holds them.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn locks_of_the_application_outlive_the_opening() {
    let directory = tempdir().unwrap();
    let path = directory.path().join("store.db");
    let file = application(&path, "PRAGMA journal_mode = WAL");
    let inode = std::os::unix::fs::MetadataExt::ino(&path.metadata().unwrap());
    let locks = || {
        let all = std::fs::read_to_string("/proc/locks").unwrap();
        all.lines().filter(|line| line.contains(&format!(":{inode} "))).count()
    };
    let before = locks();
    assert_eq!(before, 1, "a connection to a file in WAL mode holds a shared lock");
    let opened = Sqlite::options().partitions(2_000).open(&path).await;
    opened.expect_err("it is refused before it is opened");
    Sqlite::open(&path).await.unwrap().close().await;
    file.execute_batch("UPDATE leftfold_meta SET value = '6' WHERE key = 'format'").unwrap();
    Sqlite::open(&path).await.expect_err("its format is newer");
    assert_eq!(locks(), before, "the application holds what it held");
}

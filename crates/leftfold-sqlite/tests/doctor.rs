//! The doctor's findings in a file. Each test makes a fault as another program could, and follows
//! the advice to repair it.

#![allow(clippy::unwrap_used, reason = "a step that fails fails the test")]

mod common;

use std::io::{Seek as _, SeekFrom, Write as _};
use std::path::Path;

use common::{cart, entry, stream};
use leftfold::inspect::doctor::{Examine as _, Finding, Severity, worst};
use leftfold::react::{Reaction, Reactor};
use leftfold::{Append as _, Documents as _, Event, Expected, Leftfold, Projection, fold};
use leftfold_sqlite::Sqlite;
use rusqlite::Connection;

/// A projection that counts events, and fails on some.
struct Counted;

impl Projection for Counted {
    type Event = serde_json::Value;
    type Document = u64;

    fn name(&self) -> &'static str {
        "cart"
    }

    fn fold(&self, count: Option<u64>, event: &Event<Self::Event>) -> Result<Option<u64>, fold::Error> {
        if event.data == "bad" {
            return Err("it is bad".into());
        }
        Ok(Some(count.unwrap_or(0) + 1))
    }
}

/// Creates a file with two events of a cart, both folded.
async fn shop(path: &Path) -> Sqlite {
    let store = Sqlite::open(path).await.unwrap();
    let app = Leftfold::on(store.clone()).projection(Counted).start().await.unwrap();
    store.append(stream("a"), Expected::Any, vec![entry("1"), entry("2")]).await.unwrap();
    app.caught_up().await.unwrap();
    app.stop().await;
    store
}

fn change(path: &Path, sql: &str) {
    Connection::open(path).unwrap().execute_batch(sql).unwrap();
}

/// Returns the finding about a subject, if it is worse than fine.
async fn said(store: &Sqlite, subject: &str) -> Option<Finding> {
    let findings = store.examine().await.unwrap();
    findings.into_iter().find(|finding| finding.subject == subject && finding.severity > Severity::Fine)
}

#[tokio::test]
async fn nothing_is_wrong_with_a_file_that_is_as_it_was_made() {
    let directory = tempfile::tempdir().unwrap();
    let store = shop(&directory.path().join("shop.db")).await;
    let findings = store.examine().await.unwrap();
    // The disk of the tests may be full.
    let of_the_file: Vec<_> =
        findings.into_iter().filter(|finding| finding.subject != "free disk space").collect();
    assert_eq!(worst(&of_the_file), Severity::Fine, "{of_the_file:#?}");
    for subject in ["SQLite", "format", "journal mode", "durability", "damage", "write-ahead log", "tables"] {
        assert!(of_the_file.iter().any(|finding| finding.subject == subject), "{subject}: {of_the_file:#?}");
    }
}

#[tokio::test]
async fn an_index_that_is_missing_is_made_by_what_the_advice_says() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("shop.db");
    let store = shop(&path).await;
    for index in ["leftfold_tasks_due", "leftfold_skipped_stream", "leftfold_cart_1_parked"] {
        assert_eq!(said(&store, index).await, None);
        change(&path, &format!("DROP INDEX \"{index}\""));
        let finding = said(&store, index).await.unwrap();
        assert_eq!((finding.severity, finding.found.as_str()), (Severity::Warning, "the index is missing"));
        let advice = finding.advice.unwrap();
        change(&path, &advice[advice.find("CREATE").unwrap()..]);
        assert_eq!(said(&store, index).await, None);
    }
}

#[tokio::test]
async fn what_another_program_has_changed_is_found() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("shop.db");
    let store = shop(&path).await;
    let index = "leftfold_sequences_since";
    change(&path, &format!("DROP INDEX {index}; CREATE INDEX {index} ON leftfold_sequences (until)"));
    let finding = said(&store, index).await.unwrap();
    assert!(
        finding.severity == Severity::Wrong && finding.found.contains("differs from the one"),
        "{finding}"
    );
    let advice = finding.advice.unwrap();
    let mend = &advice[advice.find("CREATE").unwrap()..];
    change(&path, &format!("DROP INDEX {index}; {mend}"));

    change(&path, "DROP VIEW cart");
    let finding = said(&store, "cart").await.unwrap();
    assert_eq!((finding.severity, finding.found.as_str()), (Severity::Wrong, "the view is missing"));
    store.prepare(&cart()).await.unwrap();
    assert_eq!(said(&store, "cart").await, None);

    change(&path, "DROP TABLE leftfold_rejected");
    let finding = said(&store, "leftfold_rejected").await.unwrap();
    assert!(finding.severity == Severity::Wrong && finding.advice.unwrap().contains("backup"));
}

#[tokio::test]
async fn reactions_that_would_hear_nothing_are_named() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("shop.db");
    let store = shop(&path).await;
    let mail = || Reaction::on(Counted, "mail").run(async |_| Ok(()));
    let start = async || Reactor::on(store.clone()).reaction(mail()).start().await.unwrap();
    drop(start().await);
    assert_eq!(said(&store, "mail").await, None);
    change(&path, "DROP TRIGGER \"leftfold_changes_update cart\"");
    let finding = said(&store, "mail").await.unwrap();
    assert!(finding.found.contains("triggers on cart are missing"), "{finding}");
    drop(start().await);
    assert_eq!(said(&store, "mail").await, None);
}

#[tokio::test]
async fn a_damaged_page_is_found() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("shop.db");
    shop(&path).await.close().await;
    // SQLite would read a page from the write-ahead log instead of the file.
    let moved = "PRAGMA wal_checkpoint(TRUNCATE)";
    let busy: i64 = Connection::open(&path).unwrap().query_row(moved, [], |row| row.get(0)).unwrap();
    assert_eq!(busy, 0);
    let pages = path.metadata().unwrap().len() / 4_096;
    let mut file = std::fs::File::options().write(true).open(&path).unwrap();
    file.seek(SeekFrom::Start((pages - 1) * 4_096)).unwrap();
    file.write_all(&[0xFF; 64]).unwrap();
    let store = Sqlite::open(&path).await.unwrap();
    let finding = said(&store, "damage").await.unwrap();
    assert_eq!(finding.severity, Severity::Wrong);
    assert!(finding.advice.unwrap().contains("restore a backup"));
}

#[tokio::test]
async fn what_stands_still_and_what_is_parked_is_found_and_nothing_is_made() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("shop.db");
    let store = shop(&path).await;
    let cart = async |store: Sqlite| {
        let findings = Leftfold::on(store).projection(Counted).doctor().await.unwrap();
        findings.into_iter().find(|finding| finding.subject == "cart").unwrap()
    };
    assert_eq!(cart(store.clone()).await.severity, Severity::Fine);
    store.append(stream("a"), Expected::Any, vec![entry("bad")]).await.unwrap();
    let stalled = cart(store.clone()).await;
    assert_eq!(stalled.severity, Severity::Wrong);
    assert_eq!(stalled.found, "1 event not folded, and no worker runs");
    let app = Leftfold::on(store.clone()).projection(Counted).start().await.unwrap();
    app.caught_up().await.unwrap();
    app.stop().await;
    let parked = cart(store).await;
    assert_eq!(parked.found, "1 document is parked because an event could not be folded");

    // On a file where the projection has never run, the doctor does not create it.
    let other = directory.path().join("other.db");
    let other = (Sqlite::open(&other).await.unwrap(), other);
    let never = cart(other.0).await;
    assert_eq!((never.severity, never.found.as_str()), (Severity::Notice, "it has never run on this store"));
    let made = "SELECT count(*) FROM sqlite_schema WHERE name LIKE '%cart%'";
    let made: i64 = Connection::open(other.1).unwrap().query_row(made, [], |row| row.get(0)).unwrap();
    assert_eq!(made, 0);
}

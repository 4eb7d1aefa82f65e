//! A file that is deleted, moved or replaced while it is open: writes are refused, because they
//! would be lost.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::fs;
use std::path::Path;
use std::time::Duration;

use common::{entry, everything, stream};
use leftfold::inspect::doctor::{Examine as _, Severity, worst};
use leftfold::log::{Append as _, Log as _};
use leftfold::{AppendError, Expected, Kind};
use leftfold_sqlite::Sqlite;

/// Appends an event, and returns the kind and the text of the failure, if any.
async fn refusal(store: &Sqlite, id: &str) -> Option<(Kind, String)> {
    match store.append(stream("cart-1"), Expected::Any, vec![entry(id)]).await {
        Ok(_) => None,
        Err(AppendError::Store(error)) => Some((error.kind(), error.to_string())),
        Err(other) => panic!("{other}"),
    }
}

async fn opened(path: &Path) -> Sqlite {
    let store = Sqlite::open(path).await.unwrap();
    assert_eq!(refusal(&store, "e1").await, None);
    store.probe().await.unwrap();
    store
}

#[tokio::test]
async fn appends_to_a_file_that_is_not_in_its_directory_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let [file, away] = ["shop.db", "away.db"].map(|name| directory.path().join(name));
    let store = opened(&file).await;
    fs::rename(&file, &away).unwrap();
    let (kind, said) = refusal(&store, "e2").await.unwrap();
    assert!(kind == Kind::Unavailable && said.contains("deleted or moved"), "{said}");
    let said = store.probe().await.unwrap_err().to_string();
    assert!(said.contains("deleted or moved"), "{said}");

    // A replacement is not written to either.
    let other = tempfile::tempdir().unwrap();
    let fresh = other.path().join("shop.db");
    opened(&fresh).await.close().await;
    fs::copy(&fresh, &file).unwrap();
    let (kind, said) = refusal(&store, "e3").await.unwrap();
    assert!(kind == Kind::Unavailable && said.contains("replaced"), "{said}");
    assert!(store.probe().await.is_err());
    let findings = store.examine().await.unwrap();
    assert_eq!(worst(&findings), Severity::Wrong, "{findings:?}");

    // Once the file is put back, the store uses it again. It has none of the refused events.
    fs::rename(&away, &file).unwrap();
    store.probe().await.unwrap();
    assert_eq!(refusal(&store, "e4").await, None);
    let ids: Vec<_> = everything(&store).await.into_iter().map(|event| event.id.to_string()).collect();
    assert_eq!(ids, ["e1", "e4"]);
}

#[tokio::test]
async fn appends_are_refused_while_the_write_ahead_log_is_gone() {
    let directory = tempfile::tempdir().unwrap();
    let [file, log] = ["shop.db", "shop.db-wal"].map(|name| directory.path().join(name));
    let store = opened(&file).await;
    fs::remove_file(&log).unwrap();
    let (kind, said) = refusal(&store, "e2").await.unwrap();
    assert!(kind == Kind::Unavailable && said.contains("write-ahead log"), "{said}");
    assert!(store.probe().await.unwrap_err().to_string().contains("write-ahead log"));
    // Closing the store saves the acknowledged events.
    store.close().await;
    let store = Sqlite::open(&file).await.unwrap();
    assert_eq!(everything(&store).await.len(), 1);
    store.probe().await.unwrap();
}

#[tokio::test]
async fn closing_saves_the_events_of_a_deleted_write_ahead_log_that_no_write_has_met() {
    let directory = tempfile::tempdir().unwrap();
    let [file, log] = ["shop.db", "shop.db-wal"].map(|name| directory.path().join(name));
    let store = opened(&file).await;
    // For a waiting caller, the watching thread opens its own connection.
    let waiting = store.clone();
    let heads = store.heads().await.unwrap();
    let waiting = tokio::spawn(async move { waiting.grown(&heads).await });
    tokio::time::sleep(Duration::from_millis(20)).await;
    fs::remove_file(&log).unwrap();
    waiting.abort();
    store.close().await;
    assert!(!log.exists());
    let store = Sqlite::open(&file).await.unwrap();
    assert_eq!(everything(&store).await.len(), 1);
}

#[tokio::test]
async fn a_refused_append_saves_the_events_of_a_deleted_write_ahead_log() {
    let directory = tempfile::tempdir().unwrap();
    let [file, log, copy] = ["shop.db", "shop.db-wal", "copy.db"].map(|name| directory.path().join(name));
    let store = opened(&file).await;
    fs::remove_file(&log).unwrap();
    assert!(refusal(&store, "e2").await.is_some());
    // A process that is killed now leaves only the file behind.
    fs::copy(&file, &copy).unwrap();
    let killed = Sqlite::open(&copy).await.unwrap();
    assert_eq!(everything(&killed).await.len(), 1);
}

#[tokio::test]
async fn a_full_file_is_told_until_there_is_room() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("shop.db");
    let store = Sqlite::options().max_bytes(1 << 20).open(&file).await.unwrap();
    store.probe().await.unwrap();
    let mut number = 0;
    let (kind, _) = loop {
        number += 1;
        let mut large = entry(&format!("e{number}"));
        large.data = leftfold::Json::of(&"x".repeat(50_000)).unwrap();
        match store.append(stream("cart-1"), Expected::Any, vec![large]).await {
            Ok(_) => {}
            Err(AppendError::Store(error)) => break (error.kind(), error),
            Err(other) => panic!("{other}"),
        }
    };
    assert_eq!(kind, Kind::Full);
    assert_eq!(store.probe().await.unwrap_err().kind(), Kind::Full);
    store.close().await;
    let store = Sqlite::open(&file).await.unwrap();
    store.probe().await.unwrap();
}

#[cfg(unix)]
#[tokio::test]
async fn nobody_but_the_owner_can_read_the_files() {
    use std::os::unix::fs::PermissionsExt as _;

    let directory = tempfile::tempdir().unwrap();
    let store = opened(&directory.path().join("shop.db")).await;
    for name in ["shop.db", "shop.db-wal", "shop.db-shm"] {
        let mode = directory.path().join(name).metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
    drop(store);
}

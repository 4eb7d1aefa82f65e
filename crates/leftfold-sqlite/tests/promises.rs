//! The guarantees for processes that share a file, tested at the critical moments.

#![allow(clippy::unwrap_used, reason = "a step that fails fails the test")]

mod common;

use std::time::Duration;

use common::{cart, entry, insert, stream};
use leftfold::content::{Operated, Operation, OperationId, Versioned, WriteAnswer};
use leftfold::documents::{Advance, Checkpoint, CollectionWrites, Commit, CommitOutcome};
use leftfold::{Append, Appended, DocumentId, Documents, Expected, Json, Kind, Lane, Log, Mark, Partition};
use leftfold_sqlite::Sqlite;
use tempfile::tempdir;

fn at(position: u64) -> Mark {
    [(Lane::from(Partition(0)), position)].into_iter().collect()
}

/// Handles that opened the file separately see each other's commits as separate processes do.
#[tokio::test(flavor = "multi_thread")]
async fn a_wait_for_a_checkpoint_ends_with_a_step_that_another_process_made() {
    let directory = tempdir().unwrap();
    let path = directory.path().join("store.db");
    let (here, there) = (Sqlite::open(&path).await.unwrap(), Sqlite::open(&path).await.unwrap());
    here.prepare(&cart()).await.unwrap();
    for position in 0..10 {
        let from = if position == 0 { Mark::default() } else { at(position) };
        let waiting = {
            let (here, from) = (here.clone(), from.clone());
            tokio::spawn(async move { here.advanced(&cart(), &from).await })
        };
        if position % 2 == 0 {
            tokio::task::yield_now().await;
        }
        let to = Checkpoint { mark: at(position + 1), ..Checkpoint::default() };
        let writes = vec![insert(&format!("d{position}"), "{}")];
        let commit = Commit {
            advance: Some(Advance { projection: cart(), from, to }),
            changes: vec![CollectionWrites { collection: cart(), writes }],
        };
        assert!(matches!(there.commit(commit.into()).await.unwrap(), CommitOutcome::Applied));
        let woken = tokio::time::timeout(Duration::from_secs(30), waiting).await;
        woken.expect("a wake-up").unwrap().unwrap();
        assert_eq!(here.checkpoint(&cart()).await.unwrap().mark, at(position + 1));
    }
}

#[tokio::test]
async fn a_repeated_append_takes_no_position_and_wakes_nobody() {
    let directory = tempdir().unwrap();
    let store = Sqlite::open(directory.path().join("store.db")).await.unwrap();
    let append = |id| store.append(stream("s"), Expected::Any, vec![entry(id)]);
    assert!(matches!(append("one").await.unwrap(), Appended::New(_)));
    let heads = store.heads().await.unwrap();
    assert!(matches!(append("one").await.unwrap(), Appended::Duplicate(_)));
    // The timeout is zero: the wait looks once, and ends then or not at all.
    let waits = tokio::time::timeout(Duration::ZERO, store.grown(&heads)).await.is_err();
    assert!(waits, "nothing was appended");
    // Appends that share a commit also get each position once, without gaps.
    let all = tokio::join!(append("one"), append("two"), append("one"), append("two"), append("three"));
    assert!(matches!(all, (Ok(_), Ok(_), Ok(_), Ok(_), Ok(_))), "{all:?}");
    let positions: Vec<_> = common::everything(&store).await.iter().map(|event| event.position.0).collect();
    assert_eq!(positions, [1, 2, 3]);
}

/// A program that copies a file must know that all writes have ended, also the last checkpoint of
/// its log.
#[tokio::test]
async fn a_closed_file_is_whole_by_itself() {
    let directory = tempdir().unwrap();
    let path = directory.path().join("store.db");
    let store = Sqlite::open(&path).await.unwrap();
    for number in 0..50 {
        let entry = entry(&format!("e{number}"));
        store.append(stream("s"), Expected::Any, vec![entry]).await.unwrap();
    }
    let other = store.clone();
    let closing = tokio::spawn(store.close());
    drop(other);
    closing.await.unwrap();
    let copy = directory.path().join("copy.db");
    std::fs::copy(&path, &copy).unwrap();
    assert!(!directory.path().join("store.db-wal").exists(), "all of it is in the file");
    let copy = Sqlite::open(copy).await.unwrap();
    assert_eq!(copy.heads().await.unwrap(), at(50));
}

/// Documents without events are written one by one. If one write fails, the earlier ones stay, and
/// the error must not claim that nothing was written.
#[tokio::test]
async fn what_was_written_before_a_failure_is_not_said_not_to_be() {
    let directory = tempdir().unwrap();
    let path = directory.path().join("store.db");
    let things = Versioned::<Json, _>::new(Sqlite::open(&path).await.unwrap(), "things").await.unwrap();
    let one = Json::parse(r#"{"n":1}"#).unwrap();
    for answer in things.write_all(["c", "d"].map(|id| (id, None, &one))).await.unwrap() {
        assert!(matches!(answer, WriteAnswer::Applied(_)), "{answer:?}");
    }
    let other = rusqlite::Connection::open(&path).unwrap();
    other
        .execute_batch(
            "CREATE TRIGGER no_b BEFORE INSERT ON things WHEN new.id = 'b' BEGIN SELECT RAISE(ABORT, 'not b'); END;
             CREATE TRIGGER no_d BEFORE UPDATE ON things WHEN new.id = 'd' BEGIN SELECT RAISE(ABORT, 'not d'); END;",
        )
        .unwrap();
    let things = things.retry(leftfold::Backoff::never());
    let error = things.write_all(["a", "b"].map(|id| (id, None, &one))).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Unknown, "{error}");
    assert!(things.get("a").await.unwrap().is_some() && things.get("b").await.unwrap().is_none());
    let error = things.insert("b", &one).await.unwrap_err();
    assert_ne!(error.kind(), Kind::Unknown, "it was alone: {error}");

    let add = |id: &str, number| {
        let operation = Operation::new(OperationId::new(number).unwrap()).increment("n", 1).unwrap();
        (DocumentId::new(id).unwrap(), operation)
    };
    let error = things.operate_all(vec![add("c", 1), add("d", 2)]).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Unknown, "{error}");
    let n = async |id| things.get(id).await.unwrap().unwrap().document.as_str().to_owned();
    assert_eq!((n("c").await, n("d").await), (r#"{"n":2}"#.to_owned(), r#"{"n":1}"#.to_owned()));
    assert_eq!(things.operate("c", add("c", 1).1).await.unwrap(), Operated::AlreadyApplied);
}

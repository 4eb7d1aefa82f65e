//! Guarded commits, and their conflicts.

use std::sync::Arc;

use tokio::task::JoinSet;

use super::fixtures::{
    applied, cart, changes, commit, conflict, header, id, insert, load, mark, of, parked, record, step,
    update,
};
use crate::documents::{
    Collection, CollectionWrites, Commit, CommitOutcome, DocumentCounts, DocumentWrite, Header, Parked,
    Record,
};
use crate::store::Store;
use crate::testing::conformance::{Atomic, json, soon};

/// A write that expects no record succeeds only if there is none, not even one without a body.
pub async fn an_insert_is_guarded<S: Store>(store: S) {
    store.prepare(&cart()).await.unwrap();
    let (first, gone) = (record("a", 1, "1"), record("gone", 1, ""));
    applied(&commit(&store, None, vec![insert(first.clone()), insert(gone.clone())]).await);
    for name in ["a", "gone"] {
        let refused = commit(&store, None, vec![insert(record(name, 9, "2"))]).await;
        assert_eq!(conflict(refused), of(&[name]));
    }
    assert_eq!(load(&store, &["a", "gone"]).await, [first, gone]);
}

/// A write that expects a header succeeds only if that header is stored: same mark, same parked
/// state.
pub async fn an_update_is_guarded<S: Store>(store: S) {
    store.prepare(&cart()).await.unwrap();
    let refused = commit(&store, None, vec![update(1, record("a", 2, "2"))]).await;
    assert_eq!(conflict(refused), of(&["a"]), "no document to update");
    applied(&commit(&store, None, vec![insert(record("a", 1, "1"))]).await);
    let refused = commit(&store, None, vec![update(2, record("a", 3, "3"))]).await;
    assert_eq!(conflict(refused), of(&["a"]), "another mark");

    let sick = Header { mark: mark(1), parked: Some(parked(5).into()) };
    let sicker = Header { mark: mark(1), parked: Some(Parked { attempts: 4, ..parked(5) }.into()) };
    let write = |expected: &Header, header: &Header| {
        let record = Record { id: id("a"), header: header.clone(), body: Some(json("1")) };
        vec![DocumentWrite { expected: Some(expected.clone()), record }]
    };
    assert_eq!(
        conflict(commit(&store, None, write(&sick, &header(2))).await),
        of(&["a"]),
        "it is not parked"
    );
    applied(&commit(&store, None, write(&header(1), &sick)).await);
    assert_eq!(
        conflict(commit(&store, None, write(&header(1), &header(2))).await),
        of(&["a"]),
        "it is parked"
    );
    assert_eq!(
        conflict(commit(&store, None, write(&sicker, &header(2))).await),
        of(&["a"]),
        "otherwise parked"
    );
    applied(&commit(&store, None, write(&sick, &sicker)).await);
    applied(&commit(&store, None, write(&sicker, &header(6))).await);
    assert_eq!(load(&store, &["a"]).await, [record("a", 6, "1")]);
}

/// A delete leaves the record with its guard; readers see nothing.
pub async fn a_deleted_document_keeps_its_mark<S: Store>(store: S) {
    store.prepare(&cart()).await.unwrap();
    applied(&commit(&store, None, vec![insert(record("a", 1, "1")), insert(record("b", 1, "1"))]).await);
    applied(&commit(&store, None, vec![update(1, record("a", 2, ""))]).await);
    assert_eq!(load(&store, &["a"]).await, [record("a", 2, "")]);
    assert_eq!(store.scan(&cart(), None, 9).await.unwrap(), [record("b", 1, "1")]);
    assert_eq!(
        store.count(&cart()).await.unwrap(),
        DocumentCounts { documents: 1, ..DocumentCounts::default() }
    );
    let stale = commit(&store, None, vec![update(1, record("a", 2, "1"))]).await;
    assert_eq!(conflict(stale), of(&["a"]), "a replay does not bring it back");
    applied(&commit(&store, None, vec![update(2, record("a", 3, "3"))]).await);
    assert_eq!(
        store.count(&cart()).await.unwrap(),
        DocumentCounts { documents: 2, ..DocumentCounts::default() }
    );
}

/// A commit with failing guards names exactly those documents. Without transactions it does not
/// continue with the next collection.
pub async fn a_conflict_names_the_documents_that_fail<S: Store>(store: S, atomic: Atomic) {
    let other = Collection::new("other").unwrap();
    store.prepare(&cart()).await.unwrap();
    store.prepare(&other).await.unwrap();
    applied(
        &commit(&store, Some(step(0, 1)), vec![insert(record("a", 1, "1")), insert(record("b", 1, "1"))])
            .await,
    );
    let writes = vec![
        update(1, record("a", 2, "2")),
        update(7, record("b", 2, "2")),
        insert(record("c", 2, "2")),
        update(1, record("d", 2, "2")),
    ];
    let mut all = changes(writes);
    all.push(CollectionWrites {
        collection: other.clone(),
        writes: vec![insert(record("b", 2, "2")), update(1, record("e", 2, "2"))],
    });
    let outcome = store.commit(Arc::new(Commit { advance: Some(step(1, 2)), changes: all })).await.unwrap();
    let mut expected = of(&["b", "d"]);
    if atomic == Atomic::Yes {
        expected.documents.push((other.clone(), id("e")));
    }
    assert_eq!(conflict(outcome), expected);
    assert_eq!(store.checkpoint(&cart()).await.unwrap().mark, mark(1), "the checkpoint stays");
    let now = load(&store, &["a", "b", "c", "d"]).await;
    let there = store.load(&other, vec![id("b"), id("e")]).await.unwrap();
    match atomic {
        Atomic::Yes => {
            assert_eq!(now, [record("a", 1, "1"), record("b", 1, "1")], "nothing is written");
            assert_eq!(there, [], "nothing is written");
        }
        Atomic::No => {
            assert_eq!(now, [record("a", 2, "2"), record("b", 1, "1"), record("c", 2, "2")]);
            assert_eq!(there, [], "documents are not written before the streams they were folded without");
        }
    }
}

/// A commit that was applied, and is repeated because its answer was lost, changes nothing.
pub async fn a_repeated_commit_conflicts_and_changes_nothing<S: Store>(store: S) {
    store.prepare(&cart()).await.unwrap();
    let first = Arc::new(Commit {
        advance: Some(step(0, 1)),
        changes: changes(vec![insert(record("a", 1, "1")), insert(record("b", 1, ""))]),
    });
    applied(&store.commit(Arc::clone(&first)).await.unwrap());
    let again = conflict(store.commit(Arc::clone(&first)).await.unwrap());
    assert!(again.checkpoint || !again.documents.is_empty(), "{again:?}");
    applied(&commit(&store, Some(step(1, 2)), vec![update(1, record("a", 2, "2"))]).await);
    let late = conflict(store.commit(first).await.unwrap());
    assert!(late.checkpoint || !late.documents.is_empty(), "{late:?}");
    assert_eq!(load(&store, &["a", "b"]).await, [record("a", 2, "2"), record("b", 1, "")]);
    assert_eq!(store.checkpoint(&cart()).await.unwrap(), step(1, 2).to);
}

/// Concurrent guarded increments of one document are all counted, as long as each writer retries on
/// conflict.
pub async fn concurrent_guarded_writes_lose_nothing<S: Store>(store: S) {
    const TASKS: u64 = 8;
    const EACH: u64 = 10;
    store.prepare(&cart()).await.unwrap();
    applied(&commit(&store, None, vec![insert(record("n", 0, "0"))]).await);
    let mut tasks = JoinSet::new();
    for _ in 0..TASKS {
        let store = store.clone();
        tasks.spawn(async move {
            let mut done = 0;
            while done < EACH {
                let now = load(&store, &["n"]).await.remove(0);
                let count = now.body.unwrap().to::<u64>().unwrap() + 1;
                let write = DocumentWrite {
                    expected: Some(now.header),
                    record: record("n", count, &count.to_string()),
                };
                match commit(&store, None, vec![write]).await {
                    CommitOutcome::Applied => done += 1,
                    other => assert_eq!(conflict(other), of(&["n"])),
                }
            }
        });
    }
    soon(tasks.join_all()).await;
    assert_eq!(load(&store, &["n"]).await, [record("n", TASKS * EACH, "80")]);
}

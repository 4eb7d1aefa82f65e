//! Tasks in a transaction of the handler, and their due times.

#![allow(clippy::unwrap_used, reason = "a step that fails fails the test")]

mod common;

use common::shop::{Shop, id, orders};
use leftfold::Json;
use leftfold::react::{
    FoundDocument, ReactionStore as _, State, Suspicion, Task, TaskChange, TaskKey, WantedTasks,
};
use leftfold_sqlite::{document_in, save_task_in, task_in};
use rusqlite::{Connection, TransactionBehavior};

fn task(document: &str, version: u64) -> Task {
    let at = jiff::Timestamp::from_microsecond(1_700_000_000_000_000).unwrap();
    Task {
        key: TaskKey { reaction: "mail".to_owned(), document: id(document) },
        version,
        state: State::Pending,
        inside: true,
        epoch: 0,
        generation: 1,
        watched: Json::stored("null"),
        due: Some(at),
        since: at,
        check_at: None,
        needs: 1,
        attempts: 0,
        first_failed: None,
        error: None,
        owner: None,
        claimed_at: None,
        done_at: None,
        changed_at: at,
        history: Vec::new(),
        cursor: None,
        suspicion: Suspicion::None,
        excused: 0,
    }
}

/// A task is done if and only if the writes of its transaction are stored.
#[tokio::test]
async fn a_task_is_saved_in_a_transaction_of_another() {
    let mut shop = Shop::open().await;
    shop.follow().await;
    shop.run("INSERT INTO orders VALUES ('a', '{\"n\":1}', 0); CREATE TABLE payments (id TEXT)");
    let pending = task("a", u64::MAX);
    assert_eq!(shop.store.save_tasks(vec![TaskChange::Insert(pending.clone())]).await.unwrap(), []);
    let done = Task { state: State::Done, due: None, version: u64::MAX - 1, ..pending.clone() };
    for is_kept in [false, true] {
        let transaction = shop.other.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
        let there = FoundDocument::new(id("a"), Json::stored("{\"n\":1}"));
        assert_eq!(document_in(&transaction, &orders(), &id("a")).unwrap(), Some(there));
        assert_eq!(document_in(&transaction, &orders(), &id("b")).unwrap(), None);
        assert_eq!(task_in(&transaction, &pending.key).unwrap(), Some(pending.clone()));
        assert_eq!(task_in(&transaction, &task("b", 1).key).unwrap(), None);
        transaction.execute("INSERT INTO payments VALUES ('a')", []).unwrap();
        assert!(
            !save_task_in(&transaction, TaskChange::Update(7, done.clone())).unwrap(),
            "it is not what it was"
        );
        assert!(save_task_in(&transaction, TaskChange::Update(u64::MAX, done.clone())).unwrap());
        assert_eq!(task_in(&transaction, &pending.key).unwrap(), Some(done.clone()));
        if is_kept {
            transaction.commit().unwrap();
        } else {
            transaction.rollback().unwrap();
        }
        let now = shop.store.load_tasks(vec![pending.key.clone()]).await.unwrap();
        assert_eq!(now, [if is_kept { done.clone() } else { pending.clone() }]);
        assert_eq!(shop.number("SELECT count(*) FROM payments"), i64::from(is_kept));
    }
    let nothing = Connection::open_in_memory().unwrap();
    let error = task_in(&nothing, &pending.key).unwrap_err();
    assert!(error.to_string().contains("could not load a task from a database in memory"), "{error}");
    assert!(error.to_string().contains("open the file with `Sqlite::open` first"), "{error}");
}

/// The lookup column has microseconds, the task itself nanoseconds: the task must not be found
/// before it is due.
#[tokio::test]
async fn a_task_is_not_found_before_it_is_due() {
    let shop = Shop::open().await;
    let wanted =
        || vec![WantedTasks { reaction: "mail".to_owned(), version: 1, most: 9, suspicion: Suspicion::None }];
    let due = jiff::Timestamp::new(4_000_000_000, 1_001).unwrap();
    let later = Task { due: Some(due), ..task("later", 1) };
    let never =
        Task { due: Some(jiff::Timestamp::MAX), check_at: Some(jiff::Timestamp::MAX), ..task("never", 2) };
    shop.store.save_tasks(vec![TaskChange::Insert(never.clone())]).await.unwrap();
    assert_eq!(shop.store.due_tasks(wanted()).await.unwrap().next, Some(jiff::Timestamp::MAX));
    shop.store.save_tasks(vec![TaskChange::Insert(later)]).await.unwrap();
    let found = shop.store.due_tasks(wanted()).await.unwrap();
    assert_eq!(
        (found.tasks, found.next),
        (Vec::new(), Some(jiff::Timestamp::new(4_000_000_000, 2_000).unwrap()))
    );
    assert_eq!(shop.store.load_tasks(vec![never.key.clone()]).await.unwrap(), [never]);
}

//! Tasks completed in a transaction of their handler: its writes are stored once, or the task is
//! not done.

#![allow(clippy::unwrap_used, reason = "a step that fails fails the test")]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use leftfold::DocumentId;
use leftfold::react::{Context, HandlerError, Reaction, Reactor, ReactorHandle, Retry, State, Task, TaskKey};
use leftfold_sqlite::{InTransaction as _, Sqlite};
use rusqlite::{Connection, TransactionBehavior};
use serde::Deserialize;
use tempfile::TempDir;

#[derive(Deserialize)]
struct Order {
    total: i64,
}

struct Shop {
    path: PathBuf,
    _directory: TempDir,
}

impl Shop {
    async fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("shop.db");
        drop(Sqlite::open(&path).await.unwrap());
        let tables = "CREATE TABLE orders (id TEXT PRIMARY KEY, body TEXT);
            CREATE TABLE payments (reference TEXT, total INTEGER)";
        Connection::open(&path).unwrap().execute_batch(tables).unwrap();
        Self { path, _directory: directory }
    }

    fn sql(&self) -> Connection {
        let connection = Connection::open(&self.path).unwrap();
        connection.busy_timeout(Duration::from_secs(10)).unwrap();
        connection
    }

    fn order(&self, id: &str, total: i64) {
        let body = format!(r#"{{"total":{total}}}"#);
        self.sql().execute("INSERT OR REPLACE INTO orders VALUES (?1, ?2)", (id, body)).unwrap();
    }

    fn payments(&self) -> Vec<i64> {
        let sql = self.sql();
        let mut all = sql.prepare("SELECT total FROM payments ORDER BY total").unwrap();
        let all = all.query_map([], |row| row.get(0)).unwrap().collect::<Result<_, _>>();
        all.unwrap()
    }

    async fn start(&self, reaction: Reaction, worker: &str) -> ReactorHandle<Sqlite> {
        let store = Sqlite::open(&self.path).await.unwrap();
        Reactor::on(store).worker(worker).reaction(reaction).start().await.unwrap()
    }
}

/// Books a payment and completes the task in one transaction.
fn book(path: &Path, ctx: &Context<Order>, commits: bool) -> Result<(), HandlerError> {
    let mut books = Connection::open(path)?;
    books.busy_timeout(Duration::from_secs(10))?;
    let transaction = books.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let order = ctx.document_in(&transaction)?;
    transaction.execute("INSERT INTO payments VALUES (?1, ?2)", (ctx.idempotency_key(), order.total))?;
    ctx.complete_in(&transaction)?;
    ctx.complete_in(&transaction).unwrap_err();
    if commits {
        transaction.commit()?;
    }
    Ok(())
}

async fn task(reacting: &ReactorHandle<Sqlite>, document: &str) -> Task {
    let key = TaskKey { reaction: "book".to_owned(), document: DocumentId::new(document).unwrap() };
    reacting.task(key).await.unwrap().unwrap()
}

async fn soon<F: Future>(what: F) -> F::Output {
    tokio::time::timeout(Duration::from_mins(1), what).await.expect("it should long have happened")
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_written_and_that_it_is_done_become_true_together() {
    let shop = Shop::new().await;
    let commits = Arc::new(AtomicBool::new(false));
    let retry = Retry::fixed(Duration::from_millis(5)).attempts(2);
    let reaction = {
        let (path, commits) = (shop.path.clone(), Arc::clone(&commits));
        Reaction::on_plain("orders", "book").retry(retry).run(move |ctx| {
            let (path, commits) = (path.clone(), Arc::clone(&commits));
            async move {
                let commits = commits.load(Ordering::Relaxed);
                tokio::task::spawn_blocking(move || book(&path, &ctx, commits)).await?
            }
        })
    };
    let reacting = shop.start(reaction, "one").await;
    shop.order("a", 5);
    soon(reacting.idle_within(Duration::from_secs(1))).await.unwrap();
    // The handler reported success without a commit.
    let failed = task(&reacting, "a").await;
    assert_eq!((failed.state, failed.attempts), (State::Failed, 2));
    assert!(failed.error.unwrap().contains("not committed"));
    assert!(shop.payments().is_empty());

    commits.store(true, Ordering::Relaxed);
    shop.order("a", 6);
    shop.order("b", 7);
    soon(reacting.idle()).await.unwrap();
    assert_eq!(shop.payments(), [6, 7]);
    assert_eq!(task(&reacting, "a").await.state, State::Done);
    reacting.assert_no_failures().await.unwrap();
    reacting.stop(Duration::from_secs(5)).await;
}

/// A worker that sleeps past the end of its claim, while another worker does its task, can't do it
/// again.
#[tokio::test(flavor = "multi_thread")]
async fn who_was_taken_over_can_not_complete() {
    let shop = Shop::new().await;
    let (slept, wake) = (Arc::new(tokio::sync::Notify::new()), Arc::new(tokio::sync::Notify::new()));
    let refused = Arc::new(AtomicBool::new(false));
    let sleepy = {
        let (path, slept, wake, refused) =
            (shop.path.clone(), Arc::clone(&slept), Arc::clone(&wake), Arc::clone(&refused));
        Reaction::on_plain("orders", "book").run(move |ctx: Context<Order>| {
            let (path, slept, wake, refused) =
                (path.clone(), Arc::clone(&slept), Arc::clone(&wake), Arc::clone(&refused));
            async move {
                // The spawned task continues even if the run is cancelled.
                tokio::spawn(async move {
                    slept.notify_one();
                    wake.notified().await;
                    let booked = tokio::task::spawn_blocking(move || book(&path, &ctx, true)).await.unwrap();
                    refused.store(booked.is_err(), Ordering::Relaxed);
                    slept.notify_one();
                });
                std::future::pending().await
            }
        })
    };
    let first = shop.start(sleepy, "first").await;
    shop.order("a", 5);
    soon(slept.notified()).await;
    // Its process is gone except for one thread.
    drop(first);
    let prompt = {
        let path = shop.path.clone();
        Reaction::on_plain("orders", "book").run(move |ctx| {
            let path = path.clone();
            async move { tokio::task::spawn_blocking(move || book(&path, &ctx, true)).await? }
        })
    };
    let second = shop.start(prompt, "second").await;
    soon(second.idle()).await.unwrap();
    assert_eq!(shop.payments(), [5]);
    wake.notify_one();
    soon(slept.notified()).await;
    assert!(refused.load(Ordering::Relaxed), "it was told so");
    assert_eq!(shop.payments(), [5], "once");
    assert_eq!(task(&second, "a").await.history.len(), 2, "one was lost, and one is done");
    second.stop(Duration::from_secs(5)).await;
}

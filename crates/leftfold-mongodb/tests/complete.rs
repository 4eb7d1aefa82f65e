//! Reactions on plain collections, and tasks completed in a transaction of their handler.

#![allow(clippy::unwrap_used, reason = "a step that fails fails the test")]

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bson::oid::ObjectId;
use bson::{Document, doc};
use common::{REPLICA_SET, failing, heal, soon};
use leftfold::react::{Context, HandlerError, Reaction, Reactor, ReactorHandle, Retry, State};
use leftfold_mongodb::{InTransaction as _, Mongo, is_repeatable};
use leftfold_testbed::mongodb::Server;
use mongodb::{ClientSession, Collection};
use serde::Deserialize;
use tokio::sync::Barrier;

#[derive(Deserialize)]
struct Order {
    total: i64,
}

async fn store() -> Mongo {
    REPLICA_SET.store(Mongo::options()).await
}

fn orders(store: &Mongo) -> Collection<Document> {
    store.database().collection("orders")
}

async fn payments(store: &Mongo) -> Vec<i64> {
    let mut found = store
        .database()
        .collection::<Document>("payments")
        .find(doc! {})
        .sort(doc! { "total": 1 })
        .await
        .unwrap();
    let mut all = Vec::new();
    while found.advance().await.unwrap() {
        all.push(found.deserialize_current().unwrap().get_i64("total").unwrap());
    }
    all
}

async fn start(store: &Mongo, reaction: Reaction, worker: &str) -> ReactorHandle<Mongo> {
    Reactor::on(store.clone()).worker(worker).reaction(reaction).start().await.unwrap()
}

/// Books a payment and completes the task in one transaction.
async fn book(store: Mongo, ctx: Context<Order>, commits: bool) -> Result<(), HandlerError> {
    let mut session = store.database().client().start_session().await?;
    session.start_transaction().await?;
    let order = ctx.document_in(&mut session).await?;
    let payment = doc! { "reference": ctx.idempotency_key(), "total": order.total };
    store.database().collection::<Document>("payments").insert_one(payment).session(&mut session).await?;
    ctx.complete_in(&mut session).await?;
    if commits {
        session.commit_transaction().await?;
    } else {
        session.abort_transaction().await?;
    }
    Ok(())
}

async fn state(store: &Mongo, reacting: &ReactorHandle<Mongo>, total: i64) -> (State, u32, Option<String>) {
    let order = orders(store).find_one(doc! { "total": total }).await.unwrap().unwrap();
    let id = order.get_object_id("_id").unwrap();
    let all = reacting.tasks(leftfold::react::Query::default(), None, 100).await.unwrap();
    let task = all.into_iter().find(|task| task.key.document.as_str().contains(&id.to_hex())).unwrap();
    (task.state, task.attempts, task.error)
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_written_and_that_it_is_done_become_true_together() {
    let store = store().await;
    let commits = Arc::new(AtomicBool::new(false));
    let retry = Retry::fixed(Duration::from_millis(5)).attempts(2);
    let reaction = {
        let (store, commits) = (store.clone(), Arc::clone(&commits));
        Reaction::on_plain("orders", "book")
            .retry(retry)
            .run(move |ctx| book(store.clone(), ctx, commits.load(Ordering::Relaxed)))
    };
    store.database().create_collection("payments").await.unwrap();
    let reacting = start(&store, reaction, "one").await;
    orders(&store).insert_one(doc! { "total": 5_i64 }).await.unwrap();
    soon(reacting.idle_within(Duration::from_secs(1))).await.unwrap();
    let (failed, attempts, error) = state(&store, &reacting, 5).await;
    assert_eq!((failed, attempts), (State::Failed, 2));
    assert!(error.unwrap().contains("not committed"));
    assert_eq!(payments(&store).await, [0_i64; 0]);

    commits.store(true, Ordering::Relaxed);
    orders(&store).update_one(doc! { "total": 5_i64 }, doc! { "$set": { "total": 6_i64 } }).await.unwrap();
    let many: Vec<_> = (10..40).map(|total: i64| doc! { "total": total }).collect();
    orders(&store).insert_many(many).await.unwrap();
    soon(reacting.idle_within(Duration::from_secs(1))).await.unwrap();
    let expected: Vec<i64> = [6].into_iter().chain(10..40).collect();
    assert_eq!(payments(&store).await, expected, "each once");
    assert_eq!(state(&store, &reacting, 6).await.0, State::Done);
    reacting.stop(Duration::from_secs(5)).await;
}

/// A worker that sleeps past the end of its claim, while another worker does its task, can't do it
/// again.
#[tokio::test(flavor = "multi_thread")]
async fn who_was_taken_over_can_not_complete() {
    let store = store().await;
    let (slept, wake) = (Arc::new(tokio::sync::Notify::new()), Arc::new(tokio::sync::Notify::new()));
    let refused = Arc::new(AtomicBool::new(false));
    store.database().create_collection("payments").await.unwrap();
    let sleepy = {
        let (store, slept, wake, refused) =
            (store.clone(), Arc::clone(&slept), Arc::clone(&wake), Arc::clone(&refused));
        Reaction::on_plain("orders", "book").run(move |ctx: Context<Order>| {
            let (store, slept, wake, refused) =
                (store.clone(), Arc::clone(&slept), Arc::clone(&wake), Arc::clone(&refused));
            async move {
                tokio::spawn(async move {
                    slept.notify_one();
                    wake.notified().await;
                    refused.store(book(store, ctx, true).await.is_err(), Ordering::Relaxed);
                    slept.notify_one();
                });
                std::future::pending().await
            }
        })
    };
    let first = start(&store, sleepy, "first").await;
    orders(&store).insert_one(doc! { "total": 5_i64 }).await.unwrap();
    soon(slept.notified()).await;
    drop(first);
    let prompt = {
        let store = store.clone();
        Reaction::on_plain("orders", "book").run(move |ctx| book(store.clone(), ctx, true))
    };
    let second = start(&store, prompt, "second").await;
    soon(second.idle()).await.unwrap();
    assert_eq!(payments(&store).await, [5]);
    wake.notify_one();
    soon(slept.notified()).await;
    assert!(refused.load(Ordering::Relaxed), "it was told so");
    assert_eq!(payments(&store).await, [5], "once");
    second.stop(Duration::from_secs(5)).await;
}

/// A process that dies between completing its task and its commit leaves a transaction open. That
/// transaction blocks every other worker that wants the task.
#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_that_was_left_open_does_not_hold_up_the_next() {
    let store = store().await;
    store.database().create_collection("payments").await.unwrap();
    let left_open = Arc::new(tokio::sync::Mutex::new(Vec::new()));
    let begun = Arc::new(tokio::sync::Notify::new());
    let dies = {
        let (store, left_open, begun) = (store.clone(), Arc::clone(&left_open), Arc::clone(&begun));
        Reaction::on_plain("orders", "book").run(move |ctx: Context<Order>| {
            let (store, left_open, begun) = (store.clone(), Arc::clone(&left_open), Arc::clone(&begun));
            async move {
                let mut session = store.database().client().start_session().await?;
                session.start_transaction().await?;
                ctx.document_in(&mut session).await?;
                ctx.complete_in(&mut session).await?;
                left_open.lock().await.push(session);
                begun.notify_one();
                std::future::pending().await
            }
        })
    };
    let first = start(&store, dies, "first").await;
    orders(&store).insert_one(doc! { "total": 5_i64 }).await.unwrap();
    soon(begun.notified()).await;
    drop(first);
    let prompt = {
        let store = store.clone();
        Reaction::on_plain("orders", "book").run(move |ctx| book(store.clone(), ctx, true))
    };
    let second = start(&store, prompt, "second").await;
    soon(second.idle()).await.unwrap();
    assert_eq!(payments(&store).await, [5]);
    let mut sessions = left_open.lock().await;
    assert!(sessions[0].commit_transaction().await.is_err(), "it was ended");
    second.stop(Duration::from_secs(5)).await;
}

/// A commit that succeeded without a reply is not repeated, and one that failed is.
#[tokio::test(flavor = "multi_thread")]
async fn commits_whose_outcome_is_not_known_count_once() {
    let server = Server::replica_set(1).await.unwrap();
    let store = Mongo::connect(server.url()).await.unwrap();
    let unheard = doc! { "writeConcernError": { "code": 64, "errmsg": "waiting for replication timed out" } };
    // An open transaction blocks others until the server aborts it.
    let soon_ended = doc! { "setParameter": 1, "transactionLifetimeLimitSeconds": 1 };
    server.command(0, soon_ended).await.unwrap();
    let not_made = doc! { "errorCode": 1 };
    let reaction = {
        let store = store.clone();
        Reaction::on_plain("orders", "book")
            .retry(Retry::fixed(Duration::from_millis(100)).attempts(100))
            .run(move |ctx| book(store.clone(), ctx, true))
    };
    store.database().create_collection("payments").await.unwrap();
    let reacting = start(&store, reaction, "one").await;
    let mut expected = Vec::new();
    for (first, failure) in [(0, unheard), (100, not_made)] {
        server.fail_point(failing(&["commitTransaction"], doc! { "times": 30 }, failure)).await.unwrap();
        let totals: Vec<i64> = (first..first + 20).collect();
        orders(&store).insert_many(totals.iter().map(|total| doc! { "total": *total })).await.unwrap();
        soon(reacting.idle_within(Duration::from_secs(1))).await.unwrap();
        heal(&server).await;
        expected.extend(totals);
        assert_eq!(payments(&store).await, expected, "each once");
    }
    reacting.assert_no_failures().await.unwrap();
    let counts = reacting.counts();
    // A run whose commit failed is counted as retried. It is counted as lost if the reply to its
    // end was lost, too, and the next run had begun before the worker looked again.
    assert!(counts.done == 40 && counts.retried + counts.lost >= 20, "{counts:?}");
    reacting.stop(Duration::from_secs(5)).await;
}

/// The documented loop runs conflicting transactions again.
#[tokio::test(flavor = "multi_thread")]
async fn transactions_in_each_others_way_are_repeated() {
    let store = store().await;
    let database = store.database();
    database.create_collection("payments").await.unwrap();
    let sums = database.collection::<Document>("sums");
    sums.insert_one(doc! { "_id": "all", "total": 0_i64 }).await.unwrap();
    let (repeated, both) = (Arc::new(AtomicU64::new(0)), Arc::new(Barrier::new(2)));
    let reaction = {
        let (store, repeated) = (store.clone(), Arc::clone(&repeated));
        Reaction::on_plain("orders", "book").retry(Retry::never()).run(move |ctx: Context<Order>| {
            let (store, repeated, mut both) = (store.clone(), Arc::clone(&repeated), Some(Arc::clone(&both)));
            async move {
                let mut session = store.database().client().start_session().await?;
                loop {
                    session.start_transaction().await?;
                    match add_up(&ctx, &store, &mut session, both.take()).await {
                        Err(error) if is_repeatable(&error) && !ctx.is_cancelled() => {
                            repeated.fetch_add(1, Ordering::Relaxed);
                            drop(session.abort_transaction().await);
                        }
                        done => return done,
                    }
                }
            }
        })
    };
    let reacting = start(&store, reaction, "one").await;
    orders(&store).insert_many([doc! { "total": 1_i64 }, doc! { "total": 2_i64 }]).await.unwrap();
    soon(reacting.idle()).await.unwrap();
    reacting.assert_no_failures().await.unwrap();
    let sum = sums.find_one(doc! {}).await.unwrap().unwrap().get_i64("total").unwrap();
    assert_eq!(sum, 3);
    assert!(repeated.load(Ordering::Relaxed) > 0, "one was in the other's way");
    reacting.stop(Duration::from_secs(5)).await;
}

/// Adds an order to the total and completes its task, in one transaction. Waits for the other
/// handler before it writes.
async fn add_up(
    ctx: &Context<Order>,
    store: &Mongo,
    session: &mut ClientSession,
    both: Option<Arc<Barrier>>,
) -> Result<(), HandlerError> {
    let order = ctx.document_in(session).await?;
    if let Some(both) = both {
        both.wait().await;
    }
    let sums = store.database().collection::<Document>("sums");
    let add = sums.update_one(doc! { "_id": "all" }, doc! { "$inc": { "total": order.total } });
    add.session(&mut *session).await?;
    ctx.complete_in(session).await?;
    session.commit_transaction().await?;
    Ok(())
}

/// Covers ids of any type, and documents that any program writes before and during the run.
#[tokio::test(flavor = "multi_thread")]
async fn plain_collections_are_reacted_to() {
    let store = store().await;
    let sum = Arc::new(AtomicU64::new(0));
    let filter =
        r#"{"status":"confirmed","since":{"$lt":{"$date":"2026-11-16T00:00:00Z"}}}"#.parse().unwrap();
    let reaction = {
        let sum = Arc::clone(&sum);
        Reaction::on_plain("orders", "mail").filter(filter).run(move |ctx: Context<Order>| {
            let sum = Arc::clone(&sum);
            async move {
                let order = ctx.document().await?;
                sum.fetch_add(order.total.unsigned_abs(), Ordering::Relaxed);
                Ok(())
            }
        })
    };
    let since = bson::DateTime::parse_rfc3339_str("2026-11-01T00:00:00Z").unwrap();
    let order = |total: i64, status: &str| doc! { "total": total, "status": status, "since": since };
    let with = |id: bson::Bson, mut order: Document| {
        order.insert("_id", id);
        order
    };
    let before = [
        with(ObjectId::new().into(), order(1, "confirmed")),
        with("text".into(), order(10, "confirmed")),
        with(7.into(), order(100, "confirmed")),
        with(doc! { "a": 1, "b": "x" }.into(), order(1_000, "confirmed")),
        with("open".into(), order(500, "open")),
    ];
    orders(&store).insert_many(before).await.unwrap();
    let reacting = start(&store, reaction, "one").await;
    soon(reacting.idle()).await.unwrap();
    assert_eq!(sum.load(Ordering::Relaxed), 1_111);
    orders(&store)
        .update_one(doc! { "_id": "open" }, doc! { "$set": { "status": "confirmed" } })
        .await
        .unwrap();
    orders(&store).insert_one(with("later".into(), order(20_000, "confirmed"))).await.unwrap();
    soon(reacting.idle()).await.unwrap();
    assert_eq!(sum.load(Ordering::Relaxed), 21_611);
    reacting.assert_no_failures().await.unwrap();
    reacting.stop(Duration::from_secs(5)).await;
}

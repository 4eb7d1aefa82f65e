//! Reactions on a store in memory: planned, run, retried, taken over, paused, deleted.

#![allow(clippy::unwrap_used, reason = "a step that fails fails the test")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use leftfold::react::{
    Cleanup, Context, Draft, Every, Evolution, ExternalCollection, Filter, Paths, Query, Reaction,
    ReactionStore as _, Reactor, ReactorHandle, Retry, RunOutcome, State, Task, TaskKey,
};
use leftfold::{DocumentId, Json, Memory};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::Notify;

#[derive(Clone, Debug, Deserialize)]
struct Order {
    status: String,
    #[serde(default)]
    total: u64,
}

fn orders() -> ExternalCollection {
    ExternalCollection::new("orders").unwrap()
}

fn id(name: &str) -> DocumentId {
    DocumentId::new(name).unwrap()
}

fn key(reaction: &str, document: &str) -> TaskKey {
    TaskKey { reaction: reaction.to_owned(), document: id(document) }
}

fn put(store: &Memory, name: &str, document: &Value) {
    store.write_plain(&orders(), id(name), Some(Json::of(document).unwrap()));
}

fn remove(store: &Memory, name: &str) {
    store.write_plain(&orders(), id(name), None);
}

/// The documents that handlers saw, one entry per run.
#[derive(Clone, Default)]
struct Mails(Arc<Mutex<Vec<(String, u64, String)>>>);

impl Mails {
    fn send(&self, ctx: &Context<Order>, order: &Order) {
        self.0.lock().unwrap().push((ctx.id().to_string(), order.total, ctx.idempotency_key()));
    }

    fn of(&self, name: &str) -> Vec<u64> {
        self.0.lock().unwrap().iter().filter(|mail| mail.0 == name).map(|mail| mail.1).collect()
    }

    fn count(&self) -> usize {
        self.0.lock().unwrap().len()
    }
}

/// Returns a reaction that sends a mail for each confirmed order, and again if its total changes.
fn draft() -> Draft<Order> {
    Reaction::on_plain("orders", "mail")
        .when(|order: &Order| order.status == "confirmed")
        .watch(|order| order.total)
}

fn sends(draft: Draft<Order>, mails: &Mails) -> Reaction {
    let mails = mails.clone();
    draft.run(move |ctx| {
        let mails = mails.clone();
        async move {
            let order = ctx.document().await?;
            mails.send(&ctx, &order);
            Ok(())
        }
    })
}

async fn start(store: &Memory, reaction: Reaction) -> ReactorHandle<Memory> {
    Reactor::on(store.clone()).reaction(reaction).start().await.unwrap()
}

async fn state(reacting: &ReactorHandle<Memory>, name: &str) -> Option<State> {
    reacting.task(key("mail", name)).await.unwrap().map(|task| task.state)
}

/// Polls until the condition holds; paused time advances by itself.
async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let asking = async {
        while !is_so().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_hours(1), asking).await.unwrap_or_else(|_| panic!("{what}"));
}

#[tokio::test(start_paused = true)]
async fn documents_that_match_are_handled_and_others_are_not() {
    let (store, mails) = (Memory::default(), Mails::default());
    put(&store, "before", &json!({ "status": "confirmed", "total": 1 }));
    put(&store, "open before", &json!({ "status": "open" }));
    let reacting = start(&store, sends(draft(), &mails)).await;
    put(&store, "a", &json!({ "status": "open", "total": 5 }));
    put(&store, "b", &json!({ "status": "confirmed", "total": 7 }));
    reacting.idle().await.unwrap();
    assert_eq!((mails.of("before"), mails.of("a"), mails.of("b")), (vec![1], vec![], vec![7]));
    // The document enters; an unwatched field changes; a watched field changes; it leaves; it comes
    // back.
    for (document, expected) in [
        (json!({ "status": "confirmed", "total": 5 }), 1),
        (json!({ "status": "confirmed", "total": 5, "note": "x" }), 1),
        (json!({ "status": "confirmed", "total": 6 }), 2),
        (json!({ "status": "canceled", "total": 6 }), 2),
        (json!({ "status": "confirmed", "total": 6 }), 3),
    ] {
        put(&store, "a", &document);
        reacting.idle().await.unwrap();
        assert_eq!(mails.of("a").len(), expected, "{document}");
    }
    assert_eq!(state(&reacting, "a").await, Some(State::Done));
    assert_eq!(state(&reacting, "open before").await, None, "nothing is remembered of it");
    reacting.assert_no_failures().await.unwrap();
    reacting.stop(Duration::from_secs(1)).await;
    reacting.stop(Duration::from_secs(1)).await;
}

#[tokio::test(start_paused = true)]
async fn many_documents_are_handled_once_each() {
    let (store, mails) = (Memory::default(), Mails::default());
    let reacting = start(&store, sends(draft(), &mails)).await;
    for number in 0..2_000 {
        put(&store, &format!("o{number}"), &json!({ "status": "confirmed", "total": number }));
    }
    reacting.idle().await.unwrap();
    assert_eq!(mails.count(), 2_000);
    let depths = reacting.depths().await.unwrap();
    assert_eq!(depths["mail"].states, BTreeMap::from([(State::Done, 2_000)]));
}

#[tokio::test(start_paused = true)]
async fn quick_changes_are_handled_as_one_that_sees_the_last() {
    let (store, mails) = (Memory::default(), Mails::default());
    let quiet = draft().debounce(Duration::from_secs(10)).at_most(Duration::from_secs(25));
    let reacting = start(&store, sends(quiet, &mails)).await;
    for total in 1..=3 {
        put(&store, "a", &json!({ "status": "confirmed", "total": total }));
        tokio::time::sleep(Duration::from_secs(5)).await;
    }
    reacting.idle_within(Duration::from_mins(1)).await.unwrap();
    assert_eq!(mails.of("a"), [3]);
    // A document that never settles is still handled.
    for total in 10..20 {
        put(&store, "b", &json!({ "status": "confirmed", "total": total }));
        tokio::time::sleep(Duration::from_secs(5)).await;
    }
    let task = reacting.task(key("mail", "b")).await.unwrap().unwrap();
    assert!(!mails.of("b").is_empty(), "{task:#?} {:?}", reacting.counts());
}

#[tokio::test(start_paused = true)]
async fn what_changes_before_it_is_read_ends_as_stale_and_its_last_state_is_handled() {
    let (store, mails) = (Memory::default(), Mails::default());
    let (begun, go_on) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let reaction = {
        let (mails, begun, go_on) = (mails.clone(), Arc::clone(&begun), Arc::clone(&go_on));
        let first: Arc<Mutex<BTreeSet<String>>> = Arc::default();
        draft().run(move |ctx| {
            let (mails, begun, go_on) = (mails.clone(), Arc::clone(&begun), Arc::clone(&go_on));
            let first = Arc::clone(&first);
            async move {
                if first.lock().unwrap().insert(ctx.id().to_string()) {
                    begun.notify_one();
                    go_on.notified().await;
                }
                let order = ctx.document().await?;
                mails.send(&ctx, &order);
                Ok(())
            }
        })
    };
    let reacting = start(&store, reaction).await;
    for (name, writes) in [
        ("changes", vec![json!({ "status": "confirmed", "total": 2 })]),
        ("leaves", vec![json!({ "status": "canceled", "total": 1 })]),
        // There and back again: the reader may see either state.
        (
            "returns",
            vec![json!({ "status": "confirmed", "total": 2 }), json!({ "status": "confirmed", "total": 1 })],
        ),
    ] {
        put(&store, name, &json!({ "status": "confirmed", "total": 1 }));
        begun.notified().await;
        for write in &writes {
            put(&store, name, write);
        }
        go_on.notify_one();
        reacting.idle().await.unwrap();
        let last = writes.last().unwrap();
        let expected = (last["status"] == "confirmed").then(|| last["total"].as_u64().unwrap());
        assert_eq!(mails.of(name).last().copied(), expected, "{name}");
        assert!(
            mails.of(name).iter().all(|total| Some(*total) == expected),
            "{name}: never on what is not true"
        );
    }
    assert!(reacting.counts().stale >= 2, "{:?}", reacting.counts());
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_fails_is_tried_again_and_then_left_to_people() {
    let store = Memory::default();
    let works = Arc::new(AtomicU64::new(0));
    let reaction = {
        let works = Arc::clone(&works);
        draft().retry(Retry::fixed(Duration::from_secs(10)).attempts(3)).run(move |ctx| {
            let works = Arc::clone(&works);
            async move {
                ctx.document().await?;
                match (works.load(Ordering::Relaxed), ctx.id().as_str()) {
                    (0, "panics") => panic!("out of stamps"),
                    (0, _) => Err("the server is down".into()),
                    _ => Ok(()),
                }
            }
        })
    };
    let reacting = start(&store, reaction).await;
    for name in ["a", "panics"] {
        put(&store, name, &json!({ "status": "confirmed" }));
    }
    reacting.idle_within(Duration::from_mins(5)).await.unwrap();
    let task = reacting.task(key("mail", "a")).await.unwrap().unwrap();
    assert_eq!((task.state, task.attempts, task.history.len()), (State::Failed, 3, 3));
    assert_eq!(task.error.as_deref(), Some("the server is down"));
    let failed = reacting.assert_no_failures().await.unwrap_err().to_string();
    assert!(failed.contains("mail for panics: the handler panicked: out of stamps"), "{failed}");
    let counts = reacting.counts();
    assert_eq!((counts.failed, counts.retried, counts.done), (2, 4, 0));

    works.store(1, Ordering::Relaxed);
    let down = Query { error: Some("SERVER is".to_owned()), ..Query::default() };
    let open: Filter = r#"{"status":"open"}"#.parse().unwrap();
    assert_eq!(reacting.retry(down.clone(), Some(&open)).await.unwrap(), 0);
    assert_eq!(reacting.retry(down, None).await.unwrap(), 1);
    reacting.idle().await.unwrap();
    assert_eq!(
        (state(&reacting, "a").await, state(&reacting, "panics").await),
        (Some(State::Done), Some(State::Failed))
    );
    let unknown = Query { reaction: Some("nothing".to_owned()), ..Query::default() };
    assert!(reacting.retry(unknown, None).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_goes_silent_is_taken_over_and_not_heard_any_more() {
    let (store, mails) = (Memory::default(), Mails::default());
    let hangs = draft().run(|_| std::future::pending());
    let first = Reactor::on(store.clone()).reaction(hangs).worker("first").start().await.unwrap();
    put(&store, "a", &json!({ "status": "confirmed", "total": 4 }));
    until("it runs", async || state(&first, "a").await == Some(State::Running)).await;
    // While the process lives its claim is renewed, however long the run takes.
    tokio::time::sleep(Duration::from_mins(1)).await;
    let task = first.task(key("mail", "a")).await.unwrap().unwrap();
    assert_eq!((task.state, task.attempts), (State::Running, 1));
    assert!(task.owner.as_ref().unwrap().starts_with("first-"));
    drop(first);
    let second = start(&store, sends(draft(), &mails)).await;
    second.idle().await.unwrap();
    assert_eq!(mails.of("a"), [4]);
    let done = second.task(key("mail", "a")).await.unwrap().unwrap();
    // The claim was taken away and made again. Its loss is no attempt.
    assert_eq!((done.state, done.attempts, done.epoch), (State::Done, 1, task.epoch + 2));
    assert_eq!(second.counts().takeovers, 1);
    // The result of the first run no longer counts.
    assert!(
        task.clone().finish(task.epoch, RunOutcome::Done, &rules(), moment()).is_some(),
        "for itself it looks fine"
    );
}

fn rules() -> leftfold::react::Rules {
    leftfold::react::Rules {
        debounce: Duration::ZERO,
        at_most: Duration::from_secs(1),
        retry: Retry::default(),
        history: 5,
        visibility: Duration::from_secs(5),
        version: 1,
        every: None,
    }
}

fn moment() -> leftfold::react::TaskMoment {
    leftfold::react::TaskMoment { now: "2026-11-16T08:00:00Z".parse().unwrap(), version: 7, random: 0.5 }
}

#[tokio::test(start_paused = true)]
async fn a_stopped_reactor_gives_back_what_did_not_end() {
    let store = Memory::default();
    let reacting = start(&store, draft().run(|_| std::future::pending())).await;
    put(&store, "a", &json!({ "status": "confirmed" }));
    until("it runs", async || state(&reacting, "a").await == Some(State::Running)).await;
    reacting.stop(Duration::from_secs(3)).await;
    let task = reacting.task(key("mail", "a")).await.unwrap().unwrap();
    assert_eq!((task.state, task.attempts), (State::Pending, 0));
}

#[tokio::test(start_paused = true)]
async fn handlers_defer_throttle_and_lock() {
    let (store, mails) = (Memory::default(), Mails::default());
    let reaction = {
        let mails = mails.clone();
        draft().concurrency(1).run(move |ctx| {
            let mails = mails.clone();
            async move {
                let order = ctx.document().await?;
                let lock = ctx.lock("printer").await?.ok_or("somebody prints")?;
                assert!(lock.number() > 0 && !lock.is_lost());
                assert!(mails.count() > 0 || ctx.attempt() == 1);
                match order.total {
                    1 if mails.of("later").is_empty() => {
                        mails.send(&ctx, &order);
                        ctx.defer(Duration::from_secs(100));
                    }
                    2 if mails.of("slow").is_empty() => {
                        mails.send(&ctx, &order);
                        ctx.throttle(Duration::from_secs(50)).await?;
                    }
                    _ => mails.send(&ctx, &order),
                }
                Ok(())
            }
        })
    };
    let reacting = start(&store, reaction).await;
    put(&store, "later", &json!({ "status": "confirmed", "total": 1 }));
    until("it is deferred", async || reacting.counts().deferred == 1).await;
    let deferred = reacting.task(key("mail", "later")).await.unwrap().unwrap();
    assert_eq!((deferred.state, deferred.attempts), (State::Pending, 0));
    put(&store, "slow", &json!({ "status": "confirmed", "total": 2 }));
    until("it throttles", async || reacting.counts().done == 1).await;
    let begun = tokio::time::Instant::now();
    put(&store, "next", &json!({ "status": "confirmed", "total": 3 }));
    until("the next runs", async || !mails.of("next").is_empty()).await;
    assert!(begun.elapsed() >= Duration::from_secs(45), "it was held up: {:?}", begun.elapsed());
    reacting.idle_within(Duration::from_mins(5)).await.unwrap();
    assert_eq!(mails.of("later"), [1, 1]);
    reacting.assert_no_failures().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_paused_reaction_waits_until_it_is_resumed() {
    let (store, mails) = (Memory::default(), Mails::default());
    let reacting = start(&store, sends(draft(), &mails)).await;
    reacting.pause("mail").await.unwrap();
    put(&store, "a", &json!({ "status": "confirmed" }));
    reacting.idle().await.unwrap();
    assert_eq!((mails.count(), state(&reacting, "a").await), (0, Some(State::Pending)));
    reacting.resume("mail").await.unwrap();
    reacting.idle().await.unwrap();
    assert_eq!(mails.count(), 1);
    assert!(
        reacting
            .pause("nothing")
            .await
            .unwrap_err()
            .to_string()
            .contains("the name of a registered reaction")
    );
}

#[tokio::test(start_paused = true)]
async fn changes_that_were_lost_are_found_by_comparing() {
    let (store, mails) = (Memory::default(), Mails::default());
    let reacting = start(&store, sends(draft(), &mails)).await;
    put(&store, "a", &json!({ "status": "confirmed", "total": 1 }));
    put(&store, "gone", &json!({ "status": "confirmed", "total": 1 }));
    reacting.idle().await.unwrap();
    reacting.stop(Duration::from_secs(1)).await;
    for number in 0..1_200 {
        put(&store, &format!("o{number:04}"), &json!({ "status": "confirmed", "total": number }));
    }
    put(&store, "a", &json!({ "status": "confirmed", "total": 2 }));
    remove(&store, "gone");
    store.forget_changes();
    let reacting = start(&store, sends(draft(), &mails)).await;
    reacting.idle().await.unwrap();
    assert_eq!((mails.of("a"), mails.count()), (vec![1, 2], 1_203));
    assert!(!reacting.task(key("mail", "gone")).await.unwrap().unwrap().inside);
}

/// A lost feed position has the same effect as lost changes.
#[tokio::test(start_paused = true)]
async fn a_place_that_is_gone_is_made_up_for_by_comparing() {
    let (store, mails) = (Memory::default(), Mails::default());
    let reacting = start(&store, sends(draft(), &mails)).await;
    reacting.idle().await.unwrap();
    reacting.stop(Duration::from_secs(1)).await;
    put(&store, "a", &json!({ "status": "confirmed", "total": 1 }));
    let lease =
        store.take_lease("feed of plain orders", "somebody", Duration::from_secs(1)).await.unwrap().unwrap();
    assert!(store.put_feed_place("feed of plain orders", lease, None).await.unwrap());
    store.give_lease("feed of plain orders", "somebody").await.unwrap();
    let reacting = start(&store, sends(draft(), &mails)).await;
    reacting.idle().await.unwrap();
    assert_eq!(mails.of("a"), [1]);
}

/// A process that follows the documents but does not know a reaction must not lose that reaction's
/// changes.
#[tokio::test(start_paused = true)]
async fn who_plans_need_not_know_all_reactions() {
    let (store, mails, others) = (Memory::default(), Mails::default(), Mails::default());
    let other = Reaction::on_plain("orders", "audit").run({
        let others = others.clone();
        move |ctx: Context<Order>| {
            let others = others.clone();
            async move {
                others.send(&ctx, &ctx.document().await?);
                Ok(())
            }
        }
    });
    // The first process has the lease, and does not know the mail reaction.
    let first = start(&store, other).await;
    put(&store, "a", &json!({ "status": "confirmed", "total": 1 }));
    first.idle().await.unwrap();
    let second = start(&store, sends(draft(), &mails)).await;
    second.idle().await.unwrap();
    put(&store, "b", &json!({ "status": "confirmed", "total": 2 }));
    put(&store, "a", &json!({ "status": "confirmed", "total": 3 }));
    first.idle().await.unwrap();
    second.idle().await.unwrap();
    assert_eq!((mails.of("a"), mails.of("b")), (vec![1, 3], vec![2]));
    assert_eq!((others.of("a"), others.of("b")), (vec![1, 3], vec![2]));
    // Some processes only plan, some only run.
    second.stop(Duration::from_secs(1)).await;
    let planner = Reactor::on(store.clone())
        .reaction(sends(draft(), &mails))
        .runs(Vec::<String>::new())
        .start()
        .await
        .unwrap();
    put(&store, "c", &json!({ "status": "confirmed", "total": 4 }));
    until("it is planned", async || state(&planner, "c").await == Some(State::Pending)).await;
    let runner =
        Reactor::on(store.clone()).reaction(sends(draft(), &mails)).plans(false).start().await.unwrap();
    runner.idle().await.unwrap();
    assert_eq!(mails.of("c"), [4]);
}

#[tokio::test(start_paused = true)]
async fn filters_and_paths_are_data_and_time_counts() {
    let (store, mails) = (Memory::default(), Mails::default());
    let now = store.time().await.unwrap();
    let overdue: Filter = r#"{"status":"open","since":{"$lt":{"$now":"-1h"}}}"#.parse().unwrap();
    let reaction =
        Reaction::on_plain("orders", "mail").filter(overdue).watch_paths(Paths::new(["total"]).unwrap());
    let reacting = start(&store, sends(reaction, &mails)).await;
    let since = |minutes: i64| {
        let at = now - jiff::SignedDuration::from_mins(minutes);
        json!({ "$date": at.to_string() })
    };
    put(&store, "old", &json!({ "status": "open", "since": since(90), "total": 1 }));
    put(&store, "new", &json!({ "status": "open", "since": since(30), "total": 2 }));
    put(&store, "paid", &json!({ "status": "open", "since": since(30), "total": 3 }));
    reacting.idle().await.unwrap();
    assert_eq!((mails.of("old"), mails.of("new")), (vec![1], vec![]));
    put(&store, "paid", &json!({ "status": "paid", "since": since(30), "total": 3 }));
    // Only the time changes.
    tokio::time::sleep(Duration::from_mins(31)).await;
    reacting.idle().await.unwrap();
    assert_eq!((mails.of("new"), mails.of("paid")), (vec![2], vec![]));
}

#[tokio::test(start_paused = true)]
async fn a_changed_reaction_compares_and_a_new_version_does_again_what_it_is_told_to() {
    let (store, mails) = (Memory::default(), Mails::default());
    let first = start(&store, sends(draft(), &mails)).await;
    put(&store, "a", &json!({ "status": "confirmed", "total": 1 }));
    put(&store, "open", &json!({ "status": "open", "total": 2 }));
    first.idle().await.unwrap();
    first.stop(Duration::from_secs(1)).await;
    // A wider filter finds documents that were left out before.
    let all = Reaction::on_plain("orders", "mail").watch(|order: &Order| order.total).trigger_version(2);
    let second = start(&store, sends(all, &mails)).await;
    second.idle().await.unwrap();
    assert_eq!((mails.of("a"), mails.of("open")), (vec![1], vec![2]));
    second.stop(Duration::from_secs(1)).await;
    // New code runs everything again; old code that still runs does not.
    let old_mails = Mails::default();
    let draft = || Reaction::on_plain("orders", "mail").watch(|order: &Order| order.total).trigger_version(2);
    let old = start(&store, sends(draft(), &old_mails)).await;
    let new = start(&store, sends(draft().version(2, Evolution::AllAgain), &mails)).await;
    new.idle().await.unwrap();
    assert_eq!((mails.of("a"), mails.of("open"), old_mails.count()), (vec![1, 1], vec![2, 2], 0));
    old.stop(Duration::from_secs(1)).await;
}

#[tokio::test(start_paused = true)]
async fn tasks_are_forgotten_when_their_time_is_over() {
    let (store, mails) = (Memory::default(), Mails::default());
    let cleanup = Cleanup::Gone(Duration::from_hours(1));
    let reacting = start(&store, sends(draft().cleanup(cleanup), &mails)).await;
    for name in ["gone", "outside", "inside"] {
        put(&store, name, &json!({ "status": "confirmed" }));
    }
    reacting.idle().await.unwrap();
    remove(&store, "gone");
    put(&store, "outside", &json!({ "status": "open" }));
    reacting.idle().await.unwrap();
    assert_eq!(reacting.sweep().await.unwrap(), 0, "not yet");
    // The sweep also happens by itself.
    tokio::time::sleep(Duration::from_mins(63)).await;
    until("it is forgotten", async || state(&reacting, "gone").await.is_none()).await;
    assert!(state(&reacting, "outside").await.is_some() && state(&reacting, "inside").await.is_some());
    reacting.stop(Duration::from_secs(1)).await;
    let strict = sends(draft().cleanup(Cleanup::GoneOrOutside(Duration::from_hours(1))), &mails);
    let reacting = start(&store, strict).await;
    assert_eq!(reacting.sweep().await.unwrap(), 1);
    assert!(state(&reacting, "outside").await.is_none() && state(&reacting, "inside").await.is_some());
}

#[tokio::test(start_paused = true)]
async fn what_can_not_work_is_refused_by_name() {
    let mails = Mails::default();
    let refused = [
        (sends(Reaction::on_plain("orders", "no name!"), &mails), "no name!"),
        (sends(Reaction::on_plain("leftfold.x", "mail"), &mails), "leftfold.x"),
        (sends(draft().debounce(Duration::from_secs(9)).at_most(Duration::from_secs(1)), &mails), "at most"),
        (sends(draft().retry(Retry::series([])), &mails), "series"),
        (sends(draft().concurrency(0), &mails), "concurrency"),
        (sends(draft().visibility(Duration::ZERO), &mails), "visibility"),
        (sends(draft().version(0, Evolution::Nothing), &mails), "version"),
    ];
    for (reaction, named) in refused {
        let started = Reactor::on(Memory::default()).reaction(reaction).start().await;
        let error = started.map(drop).unwrap_err().to_string();
        assert!(error.contains(named), "{error}");
    }
    let twice =
        Reactor::on(Memory::default()).reaction(sends(draft(), &mails)).reaction(sends(draft(), &mails));
    assert!(twice.start().await.map(drop).unwrap_err().to_string().contains("its own name"));
    let unknown = Reactor::on(Memory::default()).reaction(sends(draft(), &mails)).runs(["nothing"]);
    assert!(unknown.start().await.map(drop).unwrap_err().to_string().contains("mail"));
}

/// Documents of another shape than the handler expects must not be ignored silently.
#[tokio::test(start_paused = true)]
async fn a_document_of_another_shape_fails_visibly() {
    let (store, mails) = (Memory::default(), Mails::default());
    let reacting = start(&store, sends(draft().retry(Retry::never()), &mails)).await;
    put(&store, "odd", &json!({ "status": 5 }));
    reacting.idle().await.unwrap();
    let task: Task = reacting.task(key("mail", "odd")).await.unwrap().unwrap();
    assert_eq!(task.state, State::Failed);
    assert!(task.error.unwrap().contains("status"), "it says where");
    put(&store, "odd", &json!({ "status": "confirmed", "total": 9 }));
    reacting.idle().await.unwrap();
    assert_eq!(mails.of("odd"), [9]);
}

#[derive(serde::Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum CartEvent {
    Opened,
    Confirmed { total: u64 },
}

struct Carts;

impl leftfold::Projection for Carts {
    type Event = CartEvent;
    type Document = BTreeMap<String, Value>;

    fn name(&self) -> &'static str {
        "carts"
    }

    fn fold(
        &self,
        cart: Option<Self::Document>,
        event: &leftfold::Event<CartEvent>,
    ) -> Result<Option<Self::Document>, leftfold::fold::Error> {
        let mut cart = cart.unwrap_or_default();
        let (status, total) = match &event.data {
            CartEvent::Opened => ("open", 0),
            CartEvent::Confirmed { total } => ("confirmed", *total),
        };
        cart.insert("status".to_owned(), status.into());
        cart.insert("total".to_owned(), total.into());
        Ok(Some(cart))
    }
}

/// From an event to its side effect: appended, folded, handled once.
#[tokio::test(start_paused = true)]
async fn a_confirmed_cart_is_handled_once() {
    let sent = Arc::new(AtomicU64::new(0));
    let mail = {
        let sent = Arc::clone(&sent);
        Reaction::on(Carts, "mail").when(|cart| cart["status"] == "confirmed").run(move |ctx| {
            let sent = Arc::clone(&sent);
            async move {
                let cart = ctx.document().await?;
                sent.fetch_add(cart["total"].as_u64().unwrap(), Ordering::Relaxed);
                Ok(())
            }
        })
    };
    let app =
        leftfold::Leftfold::on(Memory::default()).projection(Carts).reaction(mail).start().await.unwrap();
    app.append("cart-1", [CartEvent::Opened]).await.unwrap();
    app.append("cart-2", [CartEvent::Opened, CartEvent::Confirmed { total: 100 }]).await.unwrap();
    app.append("cart-1", [CartEvent::Confirmed { total: 7 }]).await.unwrap();
    app.caught_up().await.unwrap();
    app.reacting().unwrap().idle().await.unwrap();
    assert_eq!(sent.load(Ordering::Relaxed), 107);
    app.stop().await;
}

/// One of all processes runs it, on schedule, and at once on request.
#[tokio::test(start_paused = true)]
async fn what_is_done_every_hour_is_done_once_by_all() {
    let (store, runs) = (Memory::default(), Arc::new(AtomicU64::new(0)));
    let hourly = || {
        let runs = Arc::clone(&runs);
        Reaction::every(Every::interval(Duration::from_hours(1)).unwrap(), "report").run(move |ctx| {
            let runs = Arc::clone(&runs);
            async move {
                runs.fetch_add(1, Ordering::Relaxed);
                if ctx.attempt() == 1 && runs.load(Ordering::Relaxed) == 2 {
                    Err("no paper".into())
                } else {
                    Ok(())
                }
            }
        })
    };
    let first = start(&store, hourly()).await;
    let second = start(&store, hourly()).await;
    first.idle().await.unwrap();
    assert_eq!(runs.load(Ordering::Relaxed), 0);
    tokio::time::sleep(Duration::from_mins(61)).await;
    assert_eq!(runs.load(Ordering::Relaxed), 1);
    // The second run fails at first, and is retried.
    tokio::time::sleep(Duration::from_hours(1)).await;
    assert_eq!(runs.load(Ordering::Relaxed), 3);
    let now = Query { reaction: Some("report".to_owned()), ..Query::default() };
    assert_eq!(second.retry(now, None).await.unwrap(), 1);
    second.idle().await.unwrap();
    assert_eq!(runs.load(Ordering::Relaxed), 4);
    assert_eq!(first.counts().done + second.counts().done, 3);
}

/// Each event is handled once, those of a stream in order, despite failures and restarts.
#[tokio::test(start_paused = true)]
async fn events_are_handled_once_and_in_order() {
    let store = Memory::new(3);
    let app = leftfold::Leftfold::on(store.clone()).projection(Carts).start().await.unwrap();
    app.append("cart-1", [CartEvent::Confirmed { total: 1 }]).await.unwrap();
    let handled: Arc<Mutex<Vec<(String, u64)>>> = Arc::default();
    let broken = Arc::new(AtomicU64::new(1));
    let reaction = || {
        let (handled, broken) = (Arc::clone(&handled), Arc::clone(&broken));
        let draft =
            Reaction::on_event(["confirmed"], "ship").retry(Retry::fixed(Duration::from_secs(1)).attempts(2));
        draft.for_each(move |ctx| {
            let (handled, broken) = (Arc::clone(&handled), Arc::clone(&broken));
            async move {
                let event = ctx.event()?;
                if event.stream.as_str() == "cart-2" && broken.load(Ordering::Relaxed) == 1 {
                    return Err("no truck".into());
                }
                handled.lock().unwrap().push((event.stream.to_string(), event.revision.0));
                Ok(())
            }
        })
    };
    let reacting = start(&store, reaction()).await;
    reacting.idle().await.unwrap();
    assert!(handled.lock().unwrap().is_empty(), "from now on");
    for _ in 0..3 {
        for cart in ["cart-1", "cart-2", "cart-3"] {
            app.append(cart, [CartEvent::Opened, CartEvent::Confirmed { total: 2 }]).await.unwrap();
        }
    }
    reacting.idle_within(Duration::from_mins(1)).await.unwrap();
    let of = |cart: &str| {
        let handled = handled.lock().unwrap();
        handled.iter().filter(|(stream, _)| stream == cart).map(|(_, revision)| *revision).collect::<Vec<_>>()
    };
    assert_eq!((of("cart-1"), of("cart-2"), of("cart-3")), (vec![3, 5, 7], vec![], vec![2, 4, 6]));
    reacting.stop(Duration::from_secs(1)).await;
    // Another process continues; the failed task is retried, and nothing is done twice.
    let reacting = start(&store, reaction()).await;
    broken.store(0, Ordering::Relaxed);
    let failed = Query { states: vec![State::Failed], ..Query::default() };
    assert_eq!(reacting.retry(failed, None).await.unwrap(), 1);
    app.append("cart-1", [CartEvent::Confirmed { total: 3 }]).await.unwrap();
    reacting.idle().await.unwrap();
    assert_eq!((of("cart-1"), of("cart-2")), (vec![3, 5, 7, 8], vec![2, 4, 6]));
    let all =
        start(&store, Reaction::on_event(["confirmed"], "all").from_start().for_each(async |_| Ok(()))).await;
    all.idle().await.unwrap();
    assert_eq!(all.counts().done, 11);
    app.stop().await;
}

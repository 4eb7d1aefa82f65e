//! Several reactions, several processes, many changes: the work of one must not delay the other. On
//! a store in memory.

#![allow(clippy::unwrap_used, reason = "a step that fails fails the test")]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use leftfold::react::{
    Comparing, Context, DocumentFeed as _, Draft, Evolution, ExternalCollection, FeedItem, Paths, Reaction,
    ReactionStore as _, Reactor, ReactorHandle, Registered, Retry, State, Task, TaskKey,
};
use leftfold::{DocumentId, Json, Memory};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

/// The handled documents with their handlers, in order.
#[derive(Clone, Default)]
struct Handled(Arc<Mutex<Vec<(String, String)>>>);

impl Handled {
    fn note(&self, who: &str, ctx: &Context<Value>) {
        self.0.lock().unwrap().push((who.to_owned(), ctx.id().to_string()));
    }

    fn by(&self, who: &str) -> usize {
        self.0.lock().unwrap().iter().filter(|(by, _)| by == who).count()
    }

    fn times(&self, document: &str) -> usize {
        self.0.lock().unwrap().iter().filter(|(_, of)| of == document).count()
    }

    fn most_of_one(&self) -> usize {
        let mut times: BTreeMap<String, usize> = BTreeMap::new();
        for (_, document) in self.0.lock().unwrap().iter() {
            *times.entry(document.clone()).or_default() += 1;
        }
        times.into_values().max().unwrap_or(0)
    }

    fn count(&self) -> usize {
        self.0.lock().unwrap().len()
    }

    /// Returns a reaction whose handler takes this long, and records its document.
    fn by_one(&self, who: &str, draft: Draft<Value>, takes: Duration) -> Reaction {
        let (handled, who) = (self.clone(), who.to_owned());
        draft.run(move |ctx| {
            let (handled, who) = (handled.clone(), who.clone());
            async move {
                sleep(takes).await;
                ctx.document().await?;
                handled.note(&who, &ctx);
                Ok(())
            }
        })
    }
}

fn id(name: &str) -> DocumentId {
    DocumentId::new(name).unwrap()
}

fn put(store: &Memory, name: &str, document: &Value) {
    store.write_plain(
        &ExternalCollection::new("orders").unwrap(),
        id(name),
        Some(Json::of(document).unwrap()),
    );
}

fn put_many(store: &Memory, count: usize) {
    for number in 0..count {
        put(store, &format!("o{number:04}"), &json!({ "number": number }));
    }
}

fn draft(name: &str) -> Draft<Value> {
    Reaction::on_plain("orders", name)
}

async fn start(store: &Memory, worker: &str, reaction: Reaction) -> ReactorHandle<Memory> {
    Reactor::on(store.clone()).worker(worker).reaction(reaction).start().await.unwrap()
}

async fn task(reacting: &ReactorHandle<Memory>, reaction: &str, document: &str) -> Task {
    let key = TaskKey { reaction: reaction.to_owned(), document: id(document) };
    reacting.task(key).await.unwrap().unwrap()
}

/// Polls until the condition holds; paused time advances by itself.
async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let asking = async {
        while !is_so().await {
            sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_hours(1), asking).await.unwrap_or_else(|_| panic!("{what}"));
}

#[tokio::test(start_paused = true)]
async fn what_is_watched_decides_what_runs_again() {
    let (store, handled) = (Memory::default(), Handled::default());
    let paths = draft("paths").watch_paths(Paths::new(["total", "address.city", "tags"]).unwrap());
    let computed = draft("computed")
        .watch(|order| order["price"].as_u64().unwrap_or(0) * order["quantity"].as_u64().unwrap_or(0));
    let once = draft("once").watch(|_| ());
    let names = ["paths", "computed", "once"];
    let mut reactor = Reactor::on(store.clone());
    for (name, draft) in names.into_iter().zip([paths, computed, once]) {
        reactor = reactor.reaction(handled.by_one(name, draft, Duration::ZERO));
    }
    let reacting = reactor.start().await.unwrap();
    let mut expected = [0, 0, 0];
    for (document, runs) in [
        (json!({}), [1, 1, 1]),
        (json!({ "total": null }), [1, 0, 0]),
        (json!({ "total": 5 }), [1, 0, 0]),
        (json!({ "total": 5, "note": "not watched" }), [0, 0, 0]),
        (json!({ "total": 5, "address": { "city": "Graz" } }), [1, 0, 0]),
        (json!({ "total": 5, "address": { "city": "Graz", "street": "not watched" } }), [0, 0, 0]),
        (json!({ "total": 5, "address": { "city": "Linz" } }), [1, 0, 0]),
        (json!({ "total": 5, "address": {} }), [1, 0, 0]),
        (json!({ "total": 5, "address": {}, "tags": ["a", { "b": 1 }] }), [1, 0, 0]),
        (json!({ "total": 5, "address": {}, "tags": ["a", { "b": 1 }] }), [0, 0, 0]),
        (json!({ "total": 5, "address": {}, "tags": ["a", { "b": 2 }] }), [1, 0, 0]),
        (
            json!({ "total": 5, "address": {}, "tags": ["a", { "b": 2 }], "price": 2, "quantity": 3 }),
            [0, 1, 0],
        ),
        (
            json!({ "total": 5, "address": {}, "tags": ["a", { "b": 2 }], "price": 3, "quantity": 2 }),
            [0, 0, 0],
        ),
        (json!({}), [1, 1, 0]),
    ] {
        put(&store, "a", &document);
        reacting.idle().await.unwrap();
        expected.iter_mut().zip(runs).for_each(|(all, more)| *all += more);
        assert_eq!(names.map(|name| handled.by(name)), expected, "{document}");
    }
    // The watched fields have the same values in the same place.
    put(
        &store,
        "b",
        &json!({ "total": 1, "address": { "city": "Graz", "zip": 8010 }, "price": 7, "quantity": 3 }),
    );
    reacting.idle().await.unwrap();
    let watched = async |name| task(&reacting, name, "b").await.watched.to::<Value>().unwrap();
    assert_eq!(watched("paths").await, json!({ "total": 1, "address": { "city": "Graz" } }));
    assert_eq!(watched("computed").await, json!(21));
}

#[tokio::test(start_paused = true)]
async fn each_reaction_has_its_own_documents() {
    let (store, handled) = (Memory::default(), Handled::default());
    let vip = draft("vip").when(|order| order["status"] == "vip");
    // A condition on two fields of one document.
    let over = draft("over").when(|order| order["total"].as_u64() > order["limit"].as_u64());
    let reacting = Reactor::on(store.clone())
        .reaction(handled.by_one("vip", vip, Duration::ZERO))
        .reaction(handled.by_one("over", over, Duration::ZERO))
        .start()
        .await
        .unwrap();
    put(&store, "a", &json!({ "status": "vip", "total": 1, "limit": 5 }));
    put(&store, "b", &json!({ "status": "new", "total": 1, "limit": 5 }));
    reacting.idle().await.unwrap();
    assert_eq!((handled.by("vip"), handled.by("over")), (1, 0));
    put(&store, "b", &json!({ "status": "new", "total": 6, "limit": 5 }));
    reacting.idle().await.unwrap();
    assert_eq!((handled.by("vip"), handled.by("over"), handled.times("b")), (1, 1, 1));
}

#[tokio::test(start_paused = true)]
async fn processes_share_the_work_and_hand_it_over() {
    let (store, handled) = (Memory::default(), Handled::default());
    let work = Duration::from_millis(5);
    let reaction = |who: &str| handled.by_one(who, draft("work").concurrency(5), work);
    let first = start(&store, "first", reaction("first")).await;
    let second = start(&store, "second", reaction("second")).await;
    put_many(&store, 500);
    first.idle().await.unwrap();
    assert_eq!((handled.count(), handled.most_of_one()), (500, 1));
    assert!(handled.by("first") > 50 && handled.by("second") > 50, "both worked");
    // One process follows the feed, and keeps up.
    let lags: Vec<_> = [&first, &second].iter().flat_map(|one| one.feed_lags().into_values()).collect();
    assert_eq!(lags, [Duration::ZERO]);
    // A process that stops has released everything that would delay the other.
    first.stop(Duration::from_secs(1)).await;
    assert!(first.feed_lags().is_empty());
    let begun = Instant::now();
    put(&store, "later", &json!({}));
    until("the other goes on", async || handled.times("later") == 1).await;
    assert!(begun.elapsed() < Duration::from_secs(3), "it waited for a lease to end: {:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_takes_long_keeps_its_claim() {
    let (store, handled) = (Memory::default(), Handled::default());
    let long = |who: &str| {
        handled.by_one(who, draft("long").visibility(Duration::from_secs(2)), Duration::from_mins(5))
    };
    let first = start(&store, "first", long("first")).await;
    let second = start(&store, "second", long("second")).await;
    put(&store, "a", &json!({}));
    first.idle().await.unwrap();
    assert_eq!(handled.times("a"), 1);
    let task = task(&second, "long", "a").await;
    assert_eq!((task.state, task.attempts, task.history.len()), (State::Done, 1, 1), "{task:#?}");
    assert_eq!(first.counts().lost + second.counts().lost, 0);
}

#[tokio::test(start_paused = true)]
async fn a_throttle_holds_for_all_processes() {
    let (store, handled) = (Memory::default(), Handled::default());
    let reaction = |who: &str| {
        let (handled, who) = (handled.clone(), who.to_owned());
        draft("call").concurrency(1).run(move |ctx| {
            let (handled, who) = (handled.clone(), who.clone());
            async move {
                handled.note(&who, &ctx);
                if handled.count() == 1 {
                    ctx.throttle(Duration::from_mins(10)).await?;
                }
                Ok(())
            }
        })
    };
    let first = start(&store, "first", reaction("first")).await;
    put(&store, "a", &json!({}));
    first.idle().await.unwrap();
    // One process did not hear of it, and one starts afterwards.
    let second = start(&store, "second", reaction("second")).await;
    let begun = Instant::now();
    put_many(&store, 20);
    until("it goes on", async || handled.count() > 1).await;
    assert!(begun.elapsed() > Duration::from_mins(9), "it was held up everywhere: {:?}", begun.elapsed());
    second.idle_within(Duration::from_mins(20)).await.unwrap();
    assert_eq!((handled.count(), first.counts().throttled), (21, 1));
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_pauses_its_reaction_does_so_for_all_until_it_is_resumed() {
    let (store, handled) = (Memory::default(), Handled::default());
    let reaction = |who: &str| {
        let (handled, who) = (handled.clone(), who.to_owned());
        draft("call").concurrency(1).run(move |ctx| {
            let (handled, who) = (handled.clone(), who.clone());
            async move {
                handled.note(&who, &ctx);
                if handled.count() == 1 {
                    ctx.defer(Duration::ZERO);
                    ctx.pause("nobody is there any more").await?;
                }
                Ok(())
            }
        })
    };
    let first = start(&store, "first", reaction("first")).await;
    put(&store, "a", &json!({}));
    until("it is paused", async || first.reactions().await.unwrap()[0].paused).await;
    let second = start(&store, "second", reaction("second")).await;
    put_many(&store, 20);
    second.idle_within(Duration::from_hours(1)).await.unwrap();
    let known = &second.reactions().await.unwrap()[0];
    assert_eq!((handled.count(), known.paused_because.as_deref()), (1, Some("nobody is there any more")));
    second.resume("call").await.unwrap();
    second.idle().await.unwrap();
    let known = &first.reactions().await.unwrap()[0];
    assert_eq!((known.paused, known.paused_because.as_deref()), (false, None));
    // The run that paused the reaction was not completed, and the attempt does not count.
    assert_eq!((handled.count(), handled.times("a")), (22, 2));
    assert_eq!(task(&first, "call", "a").await.attempts, 1);
}

#[tokio::test(start_paused = true)]
async fn a_reaction_that_has_much_to_do_does_not_hold_up_others() {
    let (store, handled) = (Memory::default(), Handled::default());
    let slow = handled.by_one("slow", draft("slow"), Duration::from_hours(10));
    let quick = handled.by_one("quick", draft("quick"), Duration::ZERO);
    let reactor = Reactor::on(store.clone()).concurrency(100).reaction(slow).reaction(quick);
    let reacting = reactor.start().await.unwrap();
    put_many(&store, 1_000);
    until("the quick one is through", async || handled.by("quick") == 1_000).await;
    assert_eq!(handled.by("slow"), 0);
    reacting.stop(Duration::ZERO).await;
}

#[tokio::test(start_paused = true)]
async fn what_was_there_before_and_what_comes_meanwhile_is_all_handled() {
    let (store, handled) = (Memory::default(), Handled::default());
    put_many(&store, 1_000);
    let reacting = start(&store, "one", handled.by_one("all", draft("all"), Duration::ZERO)).await;
    for number in 0..500 {
        put(&store, &format!("new{number}"), &json!({}));
        tokio::task::yield_now().await;
    }
    reacting.idle().await.unwrap();
    assert_eq!((handled.count(), handled.most_of_one()), (1_500, 1));
}

#[tokio::test(start_paused = true)]
async fn comparing_goes_on_where_it_was() {
    let (store, handled) = (Memory::default(), Handled::default());
    put_many(&store, 1_200);
    let reactor = |who: &str| {
        let reaction = handled.by_one(who, draft("all"), Duration::ZERO);
        Reactor::on(store.clone()).worker(who).reaction(reaction)
    };
    // A process that does not plan, so everything is still to be compared.
    let first = reactor("first").plans(false).start().await.unwrap();
    first.stop(Duration::from_secs(1)).await;
    let before = store.registered().await.unwrap().remove(0);
    assert_eq!(before.comparing, Some(Comparing::ToBegin));
    // Another process got this far and died. The feed position is known by then.
    let lease =
        store.take_lease("feed of plain orders", "gone", Duration::from_secs(1)).await.unwrap().unwrap();
    let mut feed = store.follow(vec![before.on.clone().unwrap()], None).await.unwrap();
    let FeedItem::Changes(changes) = feed.next(1, Duration::ZERO).await.unwrap() else {
        panic!("it is lost")
    };
    assert!(store.put_feed_place("feed of plain orders", lease, Some(changes.through)).await.unwrap());
    let seen = Some(before.version);
    let halfway = Registered { comparing: Some(Comparing::Documents(id("o0999"))), version: 7, ..before };
    assert!(store.register(seen, halfway).await.unwrap());
    let second = reactor("second").start().await.unwrap();
    second.idle().await.unwrap();
    assert_eq!((handled.count(), handled.times("o1000"), handled.times("o0999")), (200, 1, 0));
}

/// Returns a reaction that fails as often as the document says.
fn fails(draft: Draft<Value>) -> Reaction {
    draft.run(|ctx| async move {
        let order = ctx.document().await?;
        if u64::from(ctx.attempt()) <= order["fails"].as_u64().unwrap_or(0) {
            return Err(format!("number {}", ctx.attempt()).into());
        }
        Ok(())
    })
}

#[tokio::test(start_paused = true)]
async fn what_became_of_runs_is_remembered() {
    let store = Memory::default();
    let retry = Retry::fixed(Duration::from_secs(1)).attempts(10);
    let reacting = start(&store, "one", fails(draft("tries").retry(retry).history(3))).await;
    put(&store, "a", &json!({ "fails": 0 }));
    reacting.idle().await.unwrap();
    let done_at = task(&reacting, "tries", "a").await.done_at;
    assert!(done_at.is_some());
    put(&store, "a", &json!({ "fails": 20 }));
    reacting.idle_within(Duration::from_mins(1)).await.unwrap();
    let failed = task(&reacting, "tries", "a").await;
    assert_eq!((failed.state, failed.attempts, failed.done_at), (State::Failed, 10, done_at));
    let errors: Vec<_> = failed.history.iter().map(|run| run.error.as_deref()).collect();
    assert_eq!(errors, [Some("number 8"), Some("number 9"), Some("number 10")]);
    // A changed document starts over.
    put(&store, "a", &json!({ "fails": 2 }));
    reacting.idle_within(Duration::from_mins(1)).await.unwrap();
    let done = task(&reacting, "tries", "a").await;
    assert_eq!((done.state, done.error.as_deref()), (State::Done, None));
    assert!(done.done_at > done_at && done.history.last().unwrap().error.is_none());
    reacting.stop(Duration::from_secs(1)).await;
}

#[tokio::test(start_paused = true)]
async fn a_change_need_not_reset_what_failed() {
    let store = Memory::default();
    let retry = Retry::fixed(Duration::from_hours(1)).attempts(3).reset_on_change(false);
    let reacting = start(&store, "one", fails(draft("tries").retry(retry))).await;
    for number in 1..=3 {
        put(&store, "a", &json!({ "fails": 20, "number": number }));
        reacting.idle().await.unwrap();
    }
    // Three document states, one attempt each.
    let task = task(&reacting, "tries", "a").await;
    assert_eq!((task.state, task.attempts), (State::Failed, 3));
}

#[tokio::test(start_paused = true)]
async fn new_code_tries_again_what_old_code_failed_at() {
    let (store, handled) = (Memory::default(), Handled::default());
    let old = start(&store, "old", fails(draft("work").retry(Retry::never()))).await;
    put(&store, "good", &json!({ "fails": 0 }));
    put(&store, "bad", &json!({ "fails": 1 }));
    old.idle().await.unwrap();
    assert_eq!(task(&old, "work", "bad").await.state, State::Failed);
    old.stop(Duration::from_secs(1)).await;
    let new = draft("work").version(2, Evolution::FailedAgain);
    let new = start(&store, "new", handled.by_one("new", new, Duration::ZERO)).await;
    new.idle().await.unwrap();
    assert_eq!((handled.times("bad"), handled.times("good")), (1, 0));
    assert_eq!(task(&new, "work", "bad").await.state, State::Done);
}

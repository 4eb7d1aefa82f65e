//! Reactions at moments that are hard to hit: between two calls of the store, something else
//! happens, or the process dies.

#![allow(clippy::unwrap_used, reason = "a step that fails fails the test")]

#[path = "common/held.rs"]
mod held;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use held::Held;
use jiff::Timestamp;
use leftfold::react::{
    Context, Evolution, ExternalCollection, Reaction, ReactionStore as _, Reactor, Retry, State, Task,
    TaskChange, TaskKey, TaskMoment,
};
use leftfold::{DocumentId, Event, Expected, Json, Leftfold, Memory, NewEvent};
use serde_json::json;
use tokio::sync::{Notify, mpsc};
use tokio::time::{Instant, timeout};

fn put(store: &Memory, body: Option<&str>) {
    let id = DocumentId::new("a").unwrap();
    store.write_plain(
        &ExternalCollection::new("orders").unwrap(),
        id,
        body.map(|body| Json::parse(body).unwrap()),
    );
}

fn key() -> TaskKey {
    TaskKey { reaction: "mail".to_owned(), document: DocumentId::new("a").unwrap() }
}

/// Returns a task as code of the first version plans it for the number 5.
fn planned(now: Timestamp) -> Task {
    let task = json!({
        "reaction": "mail", "document": "a", "version": 7, "state": "pending", "inside": true, "epoch": 1, "generation": 2,
        "watched": 5, "due": now, "since": now, "check_at": null, "needs": 1, "attempts": 0, "first_failed": null,
        "error": null, "owner": null, "claimed_at": null, "done_at": null, "changed_at": now, "history": [],
    });
    serde_json::from_value(task).unwrap()
}

/// A process runs the same task twice in a row while it checks its claims. The answer is about the
/// first run, and must not end the second.
#[tokio::test(start_paused = true)]
async fn a_run_is_not_ended_by_news_of_the_one_before() {
    let (store, go_on) = (Held::default(), Arc::new(Notify::new()));
    let (begin, mut started) = mpsc::unbounded_channel();
    let reaction = {
        let go_on = Arc::clone(&go_on);
        Reaction::on_plain("orders", "mail").run(move |_: Context<Json>| {
            let (begin, go_on) = (begin.clone(), Arc::clone(&go_on));
            async move {
                begin.send(())?;
                go_on.notified().await;
                Ok(())
            }
        })
    };
    let reacting = Reactor::on(store.clone()).reaction(reaction).start().await.unwrap();
    reacting.idle().await.unwrap();
    put(&store.memory, Some("1"));
    started.recv().await.unwrap();
    // The next load of tasks is the one that renews claims.
    store.holds_loads.store(true, Ordering::Relaxed);
    store.waiting.notified().await;
    store.holds_loads.store(false, Ordering::Relaxed);
    go_on.notify_one();
    while reacting.task(key()).await.unwrap().unwrap().state != State::Done {
        tokio::task::yield_now().await;
    }
    put(&store.memory, Some("2"));
    started.recv().await.unwrap();
    store.go_on.notify_one();
    // Renewed once more: the held request is answered by now.
    tokio::time::sleep(Duration::from_secs(2)).await;
    go_on.notify_one();
    reacting.idle().await.unwrap();
    let counts = reacting.counts();
    assert_eq!((counts.done, counts.lost, counts.takeovers), (2, 0, 0), "{counts:?}");
}

/// A planner that dies between saving tasks and waking the runners causes no longer wait than one
/// that dies at any other moment.
#[tokio::test(start_paused = true)]
async fn what_was_planned_by_one_who_died_before_saying_so_is_run_soon() {
    let store = Held::default();
    let (begin, mut started) = mpsc::unbounded_channel();
    let reaction = Reaction::on_plain("orders", "mail").run(move |_: Context<Json>| {
        let begin = begin.clone();
        async move { Ok(begin.send(())?) }
    });
    let none = Vec::<String>::new();
    let planner = Reactor::on(store.clone()).worker("planner").reaction(reaction.clone()).runs(none);
    let planner = planner.start().await.unwrap();
    planner.idle().await.unwrap();
    let runner = Reactor::on(store.memory.clone()).worker("runner").reaction(reaction).start().await.unwrap();
    // The runner finds nothing, and waits to be woken.
    tokio::time::sleep(Duration::from_millis(100)).await;
    store.holds_stirs.store(true, Ordering::Relaxed);
    put(&store.memory, Some("1"));
    store.waiting.notified().await;
    drop(planner);
    let died = Instant::now();
    timeout(Duration::from_mins(1), started.recv()).await.unwrap();
    assert!(died.elapsed() <= Duration::from_secs(5), "{:?}", died.elapsed());
    runner.idle().await.unwrap();
}

/// A claim whose answer was lost belongs to the claimer, even if a planner has changed the task
/// meanwhile.
#[tokio::test(start_paused = true)]
async fn a_claim_is_recognised_though_its_task_was_changed_since() {
    let store = Held::default();
    let reaction = Reaction::on_plain("orders", "mail").run(async |_: Context<Json>| Ok(()));
    let none = Vec::<String>::new();
    let planner = Reactor::on(store.memory.clone()).worker("planner").reaction(reaction.clone()).runs(none);
    let planner = planner.start().await.unwrap();
    put(&store.memory, Some("1"));
    while planner.task(key()).await.unwrap().is_none() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    store.loses_answers.store(true, Ordering::Relaxed);
    let runner = Reactor::on(store.clone()).worker("runner").plans(false).reaction(reaction);
    let runner = runner.start().await.unwrap();
    store.waiting.notified().await;
    let claimed = runner.task(key()).await.unwrap().unwrap();
    assert_eq!(claimed.state, State::Running);
    let moment = TaskMoment { now: store.memory.time().await.unwrap(), version: 1, random: 0.5 };
    let (seen, looked_at) = (claimed.version, Task::look_again(Some(claimed), &key(), moment));
    assert_eq!(store.memory.save_tasks(vec![TaskChange::Update(seen, looked_at)]).await.unwrap(), []);
    store.loses_answers.store(false, Ordering::Relaxed);
    store.go_on.notify_one();
    runner.idle().await.unwrap();
    let counts = runner.counts();
    assert_eq!((counts.done, counts.takeovers), (1, 0), "{counts:?}");
}

/// A plan may be written so late that the document has already left, and was seen to leave. The run
/// checks the document; if its handler does not, another check does.
#[tokio::test(start_paused = true)]
async fn what_is_planned_late_is_looked_at_though_its_handler_does_not() {
    for outcome in [Ok(()), Err("it always fails")] {
        let store = Memory::default();
        let retry = Retry::fixed(Duration::from_millis(5)).attempts(2);
        let reaction = Reaction::on_plain("orders", "mail")
            .retry(retry)
            .run(move |_: Context<u64>| async move { outcome.map_err(Into::into) });
        let reacting = Reactor::on(store.clone()).reaction(reaction).start().await.unwrap();
        reacting.idle().await.unwrap();
        let now = store.time().await.unwrap();
        assert_eq!(store.save_tasks(vec![TaskChange::Insert(planned(now))]).await.unwrap(), []);
        store.wake().await.unwrap();
        reacting.idle_within(Duration::from_secs(1)).await.unwrap();
        let task = reacting.task(key()).await.unwrap().unwrap();
        assert!(!task.inside, "nobody has looked: {task:?}");
    }
}

/// Old code may plan a task so late that newer code, which does not want it, has already compared
/// everything.
#[tokio::test(start_paused = true)]
async fn what_old_code_plans_late_is_looked_at_by_newer_code() {
    let store = Memory::default();
    let reaction = |version, most: u64| {
        Reaction::on_plain("orders", "mail")
            .version(version, Evolution::Nothing)
            .when(move |number: &u64| *number < most)
            .run(async |_: Context<u64>| Ok(()))
    };
    put(&store, Some("5"));
    let old = Reactor::on(store.clone()).worker("old").plans(false).reaction(reaction(1, 10));
    let old = old.start().await.unwrap();
    let new = Reactor::on(store.clone()).worker("new").reaction(reaction(2, 3)).start().await.unwrap();
    new.idle().await.unwrap();
    assert_eq!(new.task(key()).await.unwrap(), None);
    let now = store.time().await.unwrap();
    new.stop(Duration::ZERO).await;
    assert_eq!(store.save_tasks(vec![TaskChange::Insert(planned(now))]).await.unwrap(), []);
    store.wake().await.unwrap();
    while old.counts().done < 1 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let new = Reactor::on(store).worker("new").reaction(reaction(2, 3)).start().await.unwrap();
    new.idle().await.unwrap();
    assert!(!new.task(key()).await.unwrap().unwrap().inside, "newer code has not looked");
}

/// A handler reports success but has not committed the transaction that completes its task. Its
/// event is not skipped.
#[tokio::test(start_paused = true)]
async fn an_event_is_not_passed_if_its_transaction_was_not_committed() {
    let store = Memory::default();
    let app = Leftfold::on(store.clone()).open().await.unwrap();
    let paid = NewEvent::new("paid", Json::parse("{}").unwrap()).unwrap();
    app.append_events("a", Expected::Any, vec![paid]).await.unwrap();
    let retry = Retry::fixed(Duration::from_millis(5)).attempts(2);
    let reaction = Reaction::on_event(["paid"], "mail").from_start().retry(retry).for_each(
        async |ctx: Context<Event>| {
            // The completed task is computed, but never written.
            assert!(ctx.complete(ctx.task().clone()).is_some());
            Ok(())
        },
    );
    let reacting = Reactor::on(store).reaction(reaction).start().await.unwrap();
    reacting.idle_within(Duration::from_secs(1)).await.unwrap();
    let failed = reacting.task(key()).await.unwrap().unwrap();
    assert_eq!((failed.state, failed.attempts), (State::Failed, 2));
    assert!(failed.error.unwrap().contains("not committed"));
}

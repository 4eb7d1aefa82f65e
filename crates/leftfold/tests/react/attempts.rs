//! Runs that fail, are lost, or are stopped.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::fixtures::{Mails, draft, key, put, sends, start, state, until};
use leftfold::Memory;
use leftfold::react::{Filter, Query, Reactor, Retry, RunOutcome, State};
use serde_json::json;

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

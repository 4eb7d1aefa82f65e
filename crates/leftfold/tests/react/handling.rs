//! From a changed document to its handler.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::fixtures::{Mails, draft, key, put, sends, start, state, until};
use leftfold::Memory;
use leftfold::react::{Retry, State, Task};
use serde_json::json;
use tokio::sync::Notify;

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

//! Reactions to events and to the time.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::fixtures::start;
use leftfold::Memory;
use leftfold::react::{Every, Query, Reaction, Retry, State};
use serde::Deserialize;
use serde_json::Value;

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

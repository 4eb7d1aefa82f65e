//! Unknown outcomes, late or partial writes and stale reads of a store cost a retry, never a wrong
//! document.

mod common;
#[path = "common/shaky.rs"]
mod shaky;

use std::sync::atomic::Ordering;
use std::time::Duration;

use common::{Happened, Notes, assert_right, garbled};
use leftfold::documents::guarded::GuardedAnswer;
use leftfold::fold::FoldOptions;
use leftfold::{Backoff, Expected, Guarded, Lane, Leftfold, NewEvent, Rule};
use shaky::{Seeded, Shaky};

/// Time is paused, so that waiting costs nothing and a seed always gives the same run.
#[tokio::test(start_paused = true)]
async fn documents_are_right_whatever_the_store_does() {
    let mut unknowns = 0;
    for seed in 0..300 {
        for by_stream in [true, false] {
            let notes = if by_stream { Notes::by_stream() } else { Notes::by_content() };
            let store = Shaky::new(seed * 7919, seed % 2 == 0);
            let retry = Backoff::default().first(Duration::from_millis(1));
            let options = FoldOptions {
                lease: Duration::ZERO,
                page_bytes: 200,
                batch_bytes: 1_500,
                retry,
                ..FoldOptions::default()
            };
            let worker = |number: u64| {
                let env = Seeded((seed * 2 + number).into());
                Leftfold::on(store.clone())
                    .env(env)
                    .options(options.clone())
                    .projection(notes.clone())
                    .start()
            };
            let (one, two) = (worker(0).await.unwrap(), worker(1).await.unwrap());
            for round in 0..60 {
                let (a, b) = (format!("d{}", round % 3), format!("d{}", round % 4));
                let to = vec![a.clone(), b.clone()];
                let event = match round % 20 {
                    7 => NewEvent::encode(&Happened::Poison { to }).unwrap(),
                    11 => NewEvent::encode(&Happened::Cleared { to }).unwrap(),
                    13 => garbled(&[&a, &b]),
                    _ => NewEvent::encode(&Happened::Noted { to }).unwrap(),
                };
                one.append_events(&format!("s{}", round % 5), Expected::Any, vec![event]).await.unwrap();
                if round % 6 == 0 {
                    tokio::time::sleep(Duration::from_millis(2)).await;
                }
                if round == 40 {
                    notes.mended.now();
                    let _ = one.retry_all(notes.name, false, |_, _| ()).await;
                }
            }
            store.calm.store(true, Ordering::SeqCst);
            one.caught_up().await.unwrap();
            // Delayed commits arrive at last.
            tokio::time::sleep(Duration::from_millis(50)).await;
            while !one.parked(notes.name, None, 1).await.unwrap().is_empty() {
                one.retry_all(notes.name, false, |_, _| ()).await.unwrap();
            }
            assert_right(&one, &notes, &format!("seed {seed}")).await;
            unknowns += store.unknowns.load(Ordering::SeqCst);
            one.stop().await;
            two.stop().await;
        }
    }
    assert!(unknowns > 1_000, "only {unknowns} unknown outcomes were met: this test tests too little");
}

#[tokio::test(start_paused = true)]
async fn folding_by_hand_is_once_and_in_order_for_all_who_try() {
    for seed in 0..60 {
        let store = Shaky::new(seed * 104_729, true);
        let patient = Backoff::default().first(Duration::from_millis(1)).limit(60);
        let lists = Guarded::<Vec<u64>, _>::new(store.clone(), "lists").await.unwrap().retry(patient);
        let consumer = |offset: u64| {
            let lists = lists.clone();
            tokio::spawn(async move {
                let lane = Lane::named("cart-7");
                for delivery in 0..40 {
                    // Every number comes several times, and some come early.
                    let mut number = delivery / 2 + 1 + (delivery + offset) % 3;
                    loop {
                        let push = |list: Option<Vec<u64>>| {
                            let mut list = list.unwrap_or_default();
                            list.push(number);
                            Ok(Some(list))
                        };
                        match lists.fold("ann", &lane, number, Rule::Contiguous, push).await {
                            Ok(GuardedAnswer::Applied(_) | GuardedAnswer::Skipped) => break,
                            Ok(GuardedAnswer::Gap { expected }) => number = expected,
                            Err(error) => assert!(error.is_transient() || error.is_conflict(), "{error}"),
                        }
                    }
                }
            })
        };
        for task in [consumer(0), consumer(1), consumer(2)] {
            task.await.unwrap();
        }
        store.calm.store(true, Ordering::SeqCst);
        tokio::time::sleep(Duration::from_secs(1)).await;
        let list = lists.get("ann").await.unwrap().unwrap();
        assert_eq!(list, (1..=list.len() as u64).collect::<Vec<_>>(), "seed {seed}");
        assert!(list.len() >= 20);
    }
}

#[tokio::test]
async fn the_latest_rule_takes_gaps_and_leaves_what_is_old() {
    let store = leftfold::Memory::default();
    let prices = Guarded::<u64, _>::new(store, "prices").await.unwrap();
    let lane = Lane::named("shoes");
    let set = |price| move |_: Option<u64>| Ok(Some(price));
    assert_eq!(
        prices.fold("shoes", &lane, 700, Rule::Growing, set(70)).await.unwrap(),
        GuardedAnswer::Applied(Some(70))
    );
    assert_eq!(
        prices.fold("shoes", &lane, 300, Rule::Growing, set(30)).await.unwrap(),
        GuardedAnswer::Skipped
    );
    assert_eq!(
        prices.fold("shoes", &lane, 900, Rule::Growing, |_| Ok(None)).await.unwrap(),
        GuardedAnswer::Applied(None)
    );
    assert_eq!(
        prices.fold("shoes", &lane, 800, Rule::Growing, set(80)).await.unwrap(),
        GuardedAnswer::Skipped
    );
    assert_eq!(prices.get("shoes").await.unwrap(), None, "a deleted document stays deleted");
    let error = prices.fold("shoes", &lane, 901, Rule::Growing, |_| Err("no".into())).await.unwrap_err();
    assert!(error.to_string().contains("folding 901 of shoes into shoes of prices: no"), "{error}");
}

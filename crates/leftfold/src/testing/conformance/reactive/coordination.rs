//! Registrations, heartbeats, leases and wake-ups.

use std::collections::BTreeSet;
use std::time::Duration;

use super::fixtures::{A_WHILE, at, prepared, registered};
use crate::react::{ReactionStore, Registered};
use crate::store::Store;
use crate::testing::conformance::soon;

/// Registrations of reactions are written under guard.
pub async fn reactions_are_registered_under_guard<S: Store + ReactionStore>(store: S) {
    prepared(&store).await;
    assert_eq!(store.registered().await.unwrap(), []);
    assert!(!store.register(Some(1), registered("mail", 2)).await.unwrap(), "the reaction is not registered");
    assert!(store.register(None, registered("mail", 1)).await.unwrap());
    assert!(
        !store.register(None, registered("mail", 2)).await.unwrap(),
        "the reaction is registered already"
    );
    let because = Some("maintenance".to_owned());
    let changed = Registered {
        paused: true,
        paused_because: because,
        throttled: Some(at(5)),
        comparing: None,
        ..registered("mail", 2)
    };
    assert!(store.register(Some(1), changed.clone()).await.unwrap());
    assert!(!store.register(Some(1), registered("mail", 3)).await.unwrap(), "it has changed");
    assert!(store.register(None, registered("audit", 1)).await.unwrap());
    assert_eq!(store.registered().await.unwrap(), [registered("audit", 1), changed]);
}

/// A worker counts as alive for as long as its heartbeat says.
pub async fn workers_say_that_they_are_alive<S: Store + ReactionStore>(store: S) {
    prepared(&store).await;
    let living = async || store.living().await.unwrap();
    assert_eq!(living().await, BTreeSet::new());
    store.beat("one", Duration::from_hours(1)).await.unwrap();
    store.beat("two", Duration::from_hours(1)).await.unwrap();
    assert_eq!(living().await, ["one", "two"].map(str::to_owned).into());
    store.beat("one", Duration::ZERO).await.unwrap();
    assert_eq!(living().await, ["two".to_owned()].into());
    store.beat("one", Duration::from_hours(1)).await.unwrap();
    store.beat("two", Duration::from_millis(50)).await.unwrap();
    while living().await.contains("two") {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(living().await, ["one".to_owned()].into());
}

/// A lease has one owner. Its number identifies the owner, and guards the position of a feed.
pub async fn leases_are_numbered_and_guard_places<S: Store + ReactionStore>(store: S) {
    prepared(&store).await;
    let hour = Duration::from_hours(1);
    let take = async |name: &str, owner: &str, length| store.take_lease(name, owner, length).await.unwrap();
    let first = take("carts", "a", hour).await.unwrap();
    assert_eq!(take("carts", "b", hour).await, None);
    assert_eq!(take("carts", "a", hour).await, Some(first), "kept");
    assert!(take("other", "b", hour).await.is_some());
    assert_eq!(store.feed_place("carts").await.unwrap(), None);
    assert!(store.put_feed_place("carts", first, Some("here".to_owned())).await.unwrap());
    store.give_lease("carts", "b").await.unwrap();
    assert_eq!(take("carts", "b", hour).await, None, "a lease can only be released by its owner");
    store.give_lease("carts", "a").await.unwrap();
    let second = take("carts", "b", Duration::from_millis(1)).await.unwrap();
    assert!(second > first);
    assert!(
        !store.put_feed_place("carts", first, Some("there".to_owned())).await.unwrap(),
        "the lease has another owner"
    );
    assert_eq!(store.feed_place("carts").await.unwrap().as_deref(), Some("here"));
    let third = soon(async {
        loop {
            if let Some(number) = take("carts", "a", hour).await {
                return number;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    assert!(third > second, "it had ended");
    assert!(store.put_feed_place("carts", third, None).await.unwrap());
    assert_eq!(store.feed_place("carts").await.unwrap(), None);
    // Only one of many gets it.
    let all = (0..8).map(|owner| {
        let store = store.clone();
        async move { store.take_lease("new", &format!("o{owner}"), hour).await.unwrap() }
    });
    let mut taken = 0;
    let mut tasks: tokio::task::JoinSet<_> = all.collect();
    while let Some(one) = tasks.join_next().await {
        taken += usize::from(one.unwrap().is_some());
    }
    assert_eq!(taken, 1);
}

/// A worker that waits for tasks is woken by any process, even if the wake-up came before the wait.
pub async fn who_waits_is_stirred<S: Store + ReactionStore>(store: S) {
    prepared(&store).await;
    let begin = store.woken(u64::MAX, Duration::ZERO).await.unwrap();
    assert_eq!(store.woken(begin, Duration::from_millis(20)).await.unwrap(), begin, "nothing happened");
    let other = store.clone();
    let (heard, ()) = tokio::join!(soon(store.woken(begin, A_WHILE)), async {
        other.wake().await.unwrap();
    });
    let heard = heard.unwrap();
    assert_ne!(heard, begin);
    other.wake().await.unwrap();
    assert_ne!(soon(store.woken(heard, A_WHILE)).await.unwrap(), heard);
}

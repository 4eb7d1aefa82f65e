//! Waits for new events.

use super::fixtures::partitions;
use crate::event::Revision;
use crate::mark::Mark;
use crate::store::Store;
use crate::testing::conformance::{append, soon, waits};

/// A wait ends with an append to any partition, and not without one.
pub async fn waiting_for_growth_ends_with_an_append<S: Store>(store: S) {
    assert!(waits(store.grown(&Mark::default())).await, "nothing was appended");
    for number in 0..8 {
        let before = store.heads().await.unwrap();
        assert!(waits(store.grown(&before)).await, "nothing was appended since");
        let waiting = {
            let (store, before) = (store.clone(), before.clone());
            tokio::spawn(async move { store.grown(&before).await })
        };
        append(&store, &format!("s{number}"), &format!("e{number}")).await;
        soon(waiting).await.unwrap().unwrap();
        soon(store.grown(&before)).await.unwrap();
    }
    let far: Mark = partitions(&store).into_iter().map(|partition| (partition.into(), 1_000)).collect();
    assert!(waits(store.grown(&far)).await, "no partition is beyond that");
}

/// An append at the moment when a wait starts is not missed.
pub async fn no_wake_up_is_lost<S: Store>(store: S) {
    for round in 0..150 {
        let before = store.heads().await.unwrap();
        let waiting: Vec<_> = (0..3)
            .map(|_| {
                let (store, before) = (store.clone(), before.clone());
                tokio::spawn(async move { store.grown(&before).await })
            })
            .collect();
        if round % 2 == 0 {
            tokio::task::yield_now().await;
        }
        append(&store, &format!("s{}", round % 5), &format!("e{round}")).await;
        for waiter in waiting {
            soon(waiter).await.unwrap().unwrap();
        }
    }
}

/// Calls that are dropped half-way do no harm to the store.
pub async fn a_cancelled_wait_hurts_nobody<S: Store>(store: S) {
    for round in 0..40 {
        let before = store.heads().await.unwrap();
        let waiting = {
            let (store, before) = (store.clone(), before.clone());
            tokio::spawn(async move { store.grown(&before).await })
        };
        let appending = {
            let store = store.clone();
            tokio::spawn(async move { append(&store, "s", &format!("e{round}")).await })
        };
        tokio::task::yield_now().await;
        waiting.abort();
        appending.abort();
        let bookmark = append(&store, "s", &format!("e{round}")).await;
        assert_eq!(bookmark.revision, Revision(round + 1), "one event for each append");
        soon(store.grown(&before)).await.unwrap();
    }
}

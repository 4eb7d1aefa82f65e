//! Counters for producers without revisions.

use std::collections::BTreeSet;

use tokio::task::JoinSet;

use crate::revision::{Counter, Counters, Draw, REMEMBERED_CLIENTS};
use crate::store::Store;

/// Each number is returned once, without gaps, and a repeated request gets the same numbers.
pub async fn counters_count<S: Store + Counters>(store: S) {
    let draw = |counter: &str, client: &str, request, count| Draw {
        counter: counter.to_owned(),
        count,
        client: client.to_owned(),
        request,
    };
    assert_eq!(store.draw(draw("a", "x", 1, 1)).await.unwrap(), 1);
    assert_eq!(store.draw(draw("a", "y", 1, 10)).await.unwrap(), 2);
    assert_eq!(store.draw(draw("a", "x", 1, 1)).await.unwrap(), 1, "the same wish again");
    assert_eq!(store.draw(draw("a", "x", 2, 1)).await.unwrap(), 12);
    assert_eq!(store.draw(draw("b", "x", 2, 1)).await.unwrap(), 1, "another counter");
    let mut tasks = JoinSet::new();
    for _ in 0..4 {
        let counter = Counter::gapless(store.clone(), "c").unwrap();
        tasks.spawn(async move {
            let mut drawn = Vec::new();
            for _ in 0..50 {
                drawn.push(counter.next().await.unwrap().0);
            }
            assert!(drawn.is_sorted_by(|a, b| a < b));
            drawn
        });
    }
    let mut all = BTreeSet::new();
    while let Some(drawn) = tasks.join_next().await {
        all.extend(drawn.unwrap());
    }
    assert_eq!(all, (1..=200).collect(), "each once, and none left out");
    let blocks = Counter::in_blocks(store.clone(), "c", 100).unwrap();
    for expected in 201..=350 {
        assert_eq!(blocks.next().await.unwrap().0, expected);
    }
    assert_eq!(Counter::gapless(store.clone(), "c").unwrap().next().await.unwrap().0, 401);
    // Clients that drew long ago are dropped, but no recent ones.
    for client in 0..=REMEMBERED_CLIENTS {
        store.draw(draw("d", &client.to_string(), 1, 1)).await.unwrap();
    }
    assert_eq!(store.draw(draw("d", "1", 1, 1)).await.unwrap(), 2);
}

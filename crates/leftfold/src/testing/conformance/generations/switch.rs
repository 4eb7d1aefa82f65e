//! The stored generations, and switches between them.

use std::sync::Arc;
use std::time::Duration;

use super::fixtures::{carts, fill, id, mark, put, rebuilt, record};
use crate::documents::{
    Checkpoint, Collection, CollectionWrites, Commit, CommitOutcome, DocumentCounts, DocumentWrite,
    Generations,
};
use crate::event::Partition;
use crate::mark::Lane;
use crate::react::{DocumentFeed as _, DocumentSource, FeedItem, FoundDocument, ReactionStore};
use crate::store::Store;
use crate::testing::conformance::{json, soon, waits};

/// Generations change only if they are still as seen.
pub async fn generations_are_kept_under_guard(store: impl Store) {
    store.prepare(&carts()).await.unwrap();
    assert_eq!(store.generations(&carts()).await.unwrap(), Generations::default());
    let first = Generations::default().recorded("it's \"1\"").unwrap();
    assert!(!store.put_generations(&carts(), 7, first.clone()).await.unwrap());
    assert_eq!(store.generations(&carts()).await.unwrap(), Generations::default());
    put(&store, std::slice::from_ref(&first)).await;
    assert_eq!(store.generations(&carts()).await.unwrap(), first);
    let (one, other) = (first.building("a").unwrap(), first.building("b").unwrap());
    let carts = carts();
    let both = tokio::join!(
        store.put_generations(&carts, first.revision, one.clone()),
        store.put_generations(&carts, first.revision, other.clone())
    );
    let winner = match (both.0.unwrap(), both.1.unwrap()) {
        (true, false) => one,
        (false, true) => other,
        both => panic!("{both:?}"),
    };
    assert_eq!(store.generations(&carts).await.unwrap(), winner);
    let others = Collection::new("others").unwrap();
    store.prepare(&others).await.unwrap();
    assert_eq!(store.generations(&others).await.unwrap(), Generations::default(), "each has its own");
}

/// A collection's name alone means the live generation, for all reads and writes.
pub async fn a_name_alone_is_what_is_live(store: impl Store) {
    let (first, second) = (carts().generation(0), carts().generation(1));
    store.prepare(&carts()).await.unwrap();
    fill(&store, &carts(), 3, vec![record("a", 2, r#"{"n":1}"#), record("b", 3, r#"{"n":2}"#)]).await;
    let [building, switching, switched] = rebuilt();
    put(&store, &[building]).await;
    store.prepare(&second).await.unwrap();
    store.prepare(&second).await.unwrap();
    assert_eq!(store.checkpoint(&second).await.unwrap(), Checkpoint::default());
    fill(&store, &second, 5, vec![record("b", 4, r#"{"n":20}"#), record("c", 5, r#"{"n":30}"#)]).await;
    let seen = async |collection: &Collection| {
        let ids = ["a", "b", "c"].map(id).to_vec();
        let mut loaded = store.load(collection, ids.clone()).await.unwrap();
        loaded.sort_by(|one, other| one.id.cmp(&other.id));
        let mut current = store.load_current(collection, ids).await.unwrap();
        current.sort_by(|one, other| one.id.cmp(&other.id));
        let scanned = store.scan(collection, None, 9).await.unwrap();
        assert!(loaded == scanned && current == scanned, "{loaded:?} {scanned:?}");
        let counts = store.count(collection).await.unwrap();
        assert_eq!(counts, DocumentCounts { documents: scanned.len() as u64, ..DocumentCounts::default() });
        assert_eq!(store.count(&collection.streams()).await.unwrap(), DocumentCounts::default());
        let at = store.checkpoint(collection).await.unwrap();
        assert_eq!(at.tally.events, at.mark.get(&Lane::from(Partition(0))));
        let bodies = scanned.into_iter().map(|record| record.body.unwrap().as_str().to_owned());
        (at.tally.events, bodies.collect::<Vec<_>>())
    };
    let before = (3, [r#"{"n":1}"#, r#"{"n":2}"#].map(str::to_owned).to_vec());
    let after = (5, [r#"{"n":20}"#, r#"{"n":30}"#].map(str::to_owned).to_vec());
    for live in [&carts(), &first] {
        assert_eq!(seen(live).await, before, "readers do not see the generation that is being built");
    }
    put(&store, &[switching, switched.clone()]).await;
    assert_eq!(seen(&carts()).await, after);
    assert_eq!((seen(&first).await, seen(&second).await), (before, after.clone()));
    // A write by the name alone goes to the live generation.
    let write =
        DocumentWrite { expected: Some(record("b", 4, "{}").header), record: record("b", 6, r#"{"n":21}"#) };
    let changes = vec![CollectionWrites { collection: carts(), writes: vec![write] }];
    let outcome = store.commit(Arc::new(Commit { advance: None, changes })).await.unwrap();
    assert!(matches!(outcome, CommitOutcome::Applied), "{outcome:?}");
    assert_eq!(seen(&second).await.1[0], r#"{"n":21}"#);
    assert_eq!(seen(&first).await.1[1], r#"{"n":2}"#);
    // Each generation has its own lease.
    let lease = Duration::from_mins(1);
    assert_eq!(store.claim(&second, "ann", lease).await.unwrap(), crate::documents::Claim::Ours);
    assert_eq!(store.claim(&first, "bob", lease).await.unwrap(), crate::documents::Claim::Ours);
    assert_ne!(store.claim(&carts(), "bob", lease).await.unwrap(), crate::documents::Claim::Ours);
    store.release(&carts(), "ann").await.unwrap();
    assert_eq!(store.claim(&second, "bob", lease).await.unwrap(), crate::documents::Claim::Ours);
    // A generation that is not live can be deleted, even twice.
    for _ in 0..2 {
        store.drop_generation(&first).await.unwrap();
        assert_eq!(store.checkpoint(&first).await.unwrap(), Checkpoint::default());
    }
    assert_eq!(seen(&carts()).await.0, 5);
    store.prepare(&carts()).await.unwrap();
    assert_eq!(seen(&carts()).await.1[1], r#"{"n":30}"#);
}

/// A wait for a collection's checkpoint ends with a switch to a generation that is further.
pub async fn waiting_for_a_checkpoint_ends_with_a_switch(store: impl Store) {
    store.prepare(&carts()).await.unwrap();
    fill(&store, &carts(), 3, Vec::new()).await;
    let [building, switching, switched] = rebuilt();
    put(&store, &[building]).await;
    store.prepare(&carts().generation(1)).await.unwrap();
    let waiting = {
        let store = store.clone();
        tokio::spawn(async move { store.advanced(&carts(), &mark(3)).await })
    };
    fill(&store, &carts().generation(1), 5, Vec::new()).await;
    assert!(waits(store.advanced(&carts(), &mark(3))).await, "it is not live yet");
    put(&store, &[switching, switched]).await;
    assert_eq!(soon(waiting).await.unwrap().unwrap(), mark(5));
}

/// Followers of documents must compare them when another generation becomes live.
pub async fn a_switch_loses_changes(store: impl Store + ReactionStore) {
    let on = DocumentSource::Projection(carts());
    store.prepare(&carts()).await.unwrap();
    store.prepare_reactions(std::slice::from_ref(&on)).await.unwrap();
    let mut feed = store.follow(vec![on.clone()], None).await.unwrap();
    let place = match feed.next(10, Duration::ZERO).await.unwrap() {
        FeedItem::Changes(changes) => changes.through,
        // The loss may be reported before anything is followed.
        FeedItem::Lost(_) => {
            feed = store.follow(vec![on.clone()], None).await.unwrap();
            let FeedItem::Changes(changes) = feed.next(10, Duration::ZERO).await.unwrap() else {
                panic!("lost")
            };
            changes.through
        }
    };
    fill(&store, &carts(), 3, vec![record("a", 3, r#"{"n":1}"#)]).await;
    let FeedItem::Changes(changes) = soon(feed.next(10, Duration::from_secs(20))).await.unwrap() else {
        panic!("lost")
    };
    assert_eq!(changes.documents[&on].len(), 1);
    let [building, switching, switched] = rebuilt();
    put(&store, &[building]).await;
    store.prepare(&carts().generation(1)).await.unwrap();
    fill(&store, &carts().generation(1), 5, vec![record("b", 5, r#"{"n":2}"#)]).await;
    let quiet = feed.next(10, Duration::from_millis(50)).await.unwrap();
    assert!(
        matches!(&quiet, FeedItem::Changes(changes) if changes.documents.is_empty()),
        "a generation that is being built causes no changes: {quiet:?}"
    );
    put(&store, &[switching, switched]).await;
    let lost = soon(feed.next(10, Duration::from_secs(20))).await.unwrap();
    assert!(matches!(lost, FeedItem::Lost(_)), "{lost:?}");
    let mut late = store.follow(vec![on.clone()], Some(place.clone())).await.unwrap();
    let lost = loop {
        match soon(late.next(10, Duration::from_secs(20))).await.unwrap() {
            FeedItem::Changes(changes) if changes.documents.is_empty() => {
                panic!("the switch should lose changes")
            }
            FeedItem::Changes(_) => {}
            FeedItem::Lost(why) => break why,
        }
    };
    assert!(!lost.is_empty());
    assert!(store.has_changes(vec![on.clone()], place).await.unwrap());
    // From now on the feed follows and reads the other generation.
    let mut feed = store.follow(vec![on.clone()], None).await.unwrap();
    let FeedItem::Changes(_) = feed.next(10, Duration::ZERO).await.unwrap() else { panic!("lost again") };
    let found = store.current_documents(&on, vec![id("a"), id("b")], usize::MAX).await.unwrap();
    assert_eq!(found.documents, [FoundDocument::new(id("b"), json(r#"{"n":2}"#))]);
    assert_eq!(store.page_of_ids(&on, None, 9).await.unwrap(), [id("b")]);
    let write =
        DocumentWrite { expected: Some(record("b", 5, "{}").header), record: record("b", 6, r#"{"n":3}"#) };
    let changes = vec![CollectionWrites { collection: carts().generation(1), writes: vec![write] }];
    let outcome = store.commit(Arc::new(Commit { advance: None, changes })).await.unwrap();
    assert!(matches!(outcome, CommitOutcome::Applied), "{outcome:?}");
    let FeedItem::Changes(changes) = soon(feed.next(10, Duration::from_secs(20))).await.unwrap() else {
        panic!("lost")
    };
    assert_eq!(changes.documents[&on].iter().collect::<Vec<_>>(), [&id("b")]);
}

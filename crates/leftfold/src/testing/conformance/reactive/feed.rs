//! Change feeds, and reads of the changed documents.

use std::collections::BTreeSet;
use std::time::Duration;

use super::fixtures::{A_WHILE, id, on, prepared, write, write_to};
use crate::documents::Collection;
use crate::react::{DocumentFeed as _, DocumentSource, FeedItem, ReactionStore};
use crate::store::Store;
use crate::testing::conformance::{json, soon};

/// Reads a feed until all of these documents were named, and returns its position then.
async fn read_until<S: ReactionStore>(feed: &mut S::Feed, wanted: &[&str]) -> String {
    let wanted: BTreeSet<_> = wanted.iter().map(|name| id(name)).collect();
    let mut named = BTreeSet::new();
    soon(async {
        loop {
            match feed.next(100, A_WHILE).await.unwrap() {
                FeedItem::Changes(changes) => {
                    named.extend(changes.documents.into_values().flatten());
                    if named.is_superset(&wanted) {
                        assert_eq!(named, wanted, "nothing else has changed");
                        return changes.through;
                    }
                }
                FeedItem::Lost(why) => panic!("{why}"),
            }
        }
    })
    .await
}

/// A feed names each document that is written or deleted, and can resume from any position.
pub async fn changes_are_told<S: Store + ReactionStore>(store: S) {
    prepared(&store).await;
    write(&store, &[("before", Some("1"))]).await;
    let mut feed = store.follow(vec![on()], None).await.unwrap();
    // The feed starts here; its position is known even before the first change.
    let begin = match feed.next(100, Duration::ZERO).await.unwrap() {
        FeedItem::Changes(changes) => {
            assert!(changes.documents.is_empty(), "{changes:?}");
            changes.through
        }
        FeedItem::Lost(why) => panic!("{why}"),
    };
    assert!(!store.has_changes(vec![on()], begin.clone()).await.unwrap());
    write(&store, &[("a", Some("1")), ("b", Some("1")), ("a", Some("2"))]).await;
    assert!(store.has_changes(vec![on()], begin.clone()).await.unwrap(), "at once");
    let middle = read_until::<S>(&mut feed, &["a", "b"]).await;
    write(&store, &[("b", None), ("c", Some("1"))]).await;
    read_until::<S>(&mut feed, &["b", "c"]).await;
    let mut again = store.follow(vec![on()], Some(begin)).await.unwrap();
    read_until::<S>(&mut again, &["a", "b", "c"]).await;
    let mut later = store.follow(vec![on()], Some(middle)).await.unwrap();
    read_until::<S>(&mut later, &["b", "c"]).await;
}

/// Changes of other documents do not hide a later change.
pub async fn changes_behind_those_of_others_are_seen<S: Store + ReactionStore>(store: S) {
    prepared(&store).await;
    let others = Collection::new("others").unwrap();
    store.prepare(&others).await.unwrap();
    store.prepare_reactions(&[DocumentSource::Projection(others.clone())]).await.unwrap();
    let mut feed = store.follow(vec![on()], None).await.unwrap();
    let FeedItem::Changes(begin) = feed.next(100, Duration::ZERO).await.unwrap() else { panic!("lost") };
    for number in 0..150 {
        write_to(&store, &others, &[(&format!("o{number}"), Some("1"))]).await;
    }
    assert!(!store.has_changes(vec![on()], begin.through.clone()).await.unwrap());
    write(&store, &[("a", Some("1"))]).await;
    assert!(store.has_changes(vec![on()], begin.through).await.unwrap());
}

/// A wait ends with a change, even one before the wait; a cancelled wait loses nothing.
pub async fn a_waiting_feed_wakes_up<S: Store + ReactionStore>(store: S) {
    prepared(&store).await;
    let mut feed = store.follow(vec![on()], None).await.unwrap();
    assert!(tokio::time::timeout(Duration::from_millis(50), feed.next(100, A_WHILE)).await.is_err());
    let (_, ()) = tokio::join!(read_until::<S>(&mut feed, &["a"]), async {
        write(&store, &[("a", Some("1"))]).await;
    });
}

/// Many changes come in bounded pieces, and none is left out.
pub async fn many_changes_come_in_pieces<S: Store + ReactionStore>(store: S) {
    prepared(&store).await;
    let mut feed = store.follow(vec![on()], None).await.unwrap();
    let documents: Vec<_> = (0..40).map(|number| format!("d{number:02}")).collect();
    for name in &documents {
        write(&store, &[(name, Some("1"))]).await;
    }
    let mut named = BTreeSet::new();
    soon(async {
        while named.len() < documents.len() {
            let FeedItem::Changes(changes) = feed.next(7, A_WHILE).await.unwrap() else { panic!("lost") };
            let ids: Vec<_> = changes.documents.into_values().flatten().collect();
            assert!(ids.len() <= 7, "{ids:?}");
            named.extend(ids);
        }
    })
    .await;
}

/// Documents are read in their current state, and paged through by id.
pub async fn documents_are_read_and_paged<S: Store + ReactionStore>(store: S) {
    prepared(&store).await;
    write(
        &store,
        &[
            ("b", Some(r#"{"n":2}"#)),
            ("a", Some(r#"{"n":1}"#)),
            ("c", Some("{}")),
            ("d", Some("{}")),
            ("c", None),
        ],
    )
    .await;
    let ids = || ["a", "c", "b", "x"].map(id).to_vec();
    let found = store.current_documents(&on(), ids(), usize::MAX).await.unwrap();
    assert!(found.left.is_empty(), "{found:?}");
    let mut found = found.documents;
    found.sort_by(|one, other| one.id.cmp(&other.id));
    let names: Vec<_> = found.iter().map(|document| document.id.as_str()).collect();
    assert_eq!(names, ["a", "b"]);
    let body = found[1].body.as_ref().unwrap();
    assert!(body.json().same_as(&json(r#"{"n":2}"#)), "{body:?}");
    let mut after = None;
    let mut pages = Vec::new();
    loop {
        let page = store.page_of_ids(&on(), after, 2).await.unwrap();
        let Some(last) = page.last() else { break };
        after = Some(last.clone());
        pages.push(page.iter().map(ToString::to_string).collect::<Vec<_>>());
    }
    assert_eq!(pages, [vec!["a".to_owned(), "b".to_owned()], vec!["d".to_owned()]]);

    // With little room, all of them come one by one.
    let (mut left, mut one_by_one) = (ids(), Vec::new());
    while !left.is_empty() {
        let found = store.current_documents(&on(), left, 1).await.unwrap();
        assert!(found.documents.len() <= 1, "{found:?}");
        assert!(!found.documents.is_empty() || found.left.is_empty(), "it gets on: {found:?}");
        one_by_one.extend(found.documents.into_iter().map(|document| document.id.to_string()));
        left = found.left;
    }
    one_by_one.sort();
    assert_eq!(one_by_one, ["a", "b"]);
}

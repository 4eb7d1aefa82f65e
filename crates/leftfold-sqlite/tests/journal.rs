//! The journal of changes: places that it no longer has, and its bounds.
//!
//! The bugs this guards against: a feed that resumes at a place although later entries are gone,
//! and a journal that grows forever.

#![allow(clippy::unwrap_used, reason = "a step that fails fails the test")]

mod common;

use std::time::Duration;

use common::shop::{A_WHILE, Shop, lost, named, news, orders};
use leftfold::react::{DocumentFeed as _, FeedItem, ReactionStore as _};

#[tokio::test]
async fn a_place_whose_successors_are_gone_is_lost() {
    let shop = Shop::open().await;
    let mut feed = shop.follow().await;
    let (_, begin) = news(&mut feed).await;
    shop.run("INSERT INTO orders VALUES ('a', '1', 0), ('b', '1', 0), ('c', '1', 0)");
    let (_, end) = news(&mut feed).await;
    let from = async |place: &str| shop.store.follow(vec![orders()], Some(place.to_owned())).await.unwrap();
    assert_eq!(named(&mut from(&begin).await).await, ["a", "b", "c"]);
    assert!(lost(&mut from("no place").await).await.contains("no entries"));
    // First delete an entry in the middle, then the rest.
    shop.run("DELETE FROM leftfold_changes WHERE id = 'b'");
    assert!(lost(&mut from(&begin).await).await.contains("no entries between"));
    assert_eq!(named(&mut from(&end).await).await, [""; 0], "nothing that it has to know is gone");
    shop.run("DELETE FROM leftfold_changes");
    assert!(lost(&mut from(&begin).await).await.contains("no entries after"));
    assert_eq!(named(&mut feed).await, [""; 0]);
    shop.run("UPDATE orders SET body = '2' WHERE id = 'a'");
    assert_eq!(named(&mut feed).await, ["a"], "it goes on where it was");
}

#[tokio::test]
async fn a_journal_that_was_made_anew_is_not_taken_for_the_old_one() {
    let shop = Shop::open().await;
    let mut feed = shop.follow().await;
    let (_, place) = news(&mut feed).await;
    // The journal is dropped; the next look creates it again.
    shop.run("DROP TABLE leftfold_changes");
    assert!(lost(&mut feed).await.contains("dropped"));
    assert_eq!(shop.entries(), 0, "it is there again");
    shop.run("INSERT INTO orders VALUES ('a', '1', 0)");
    lost(&mut feed).await;
    lost(&mut shop.store.follow(vec![orders()], Some(place)).await.unwrap()).await;
    let mut feed = shop.store.follow(vec![orders()], None).await.unwrap();
    shop.run("INSERT INTO orders VALUES ('b', '1', 0)");
    assert_eq!(named(&mut feed).await, ["b"]);
    // The journal is created by hand, and its numbers start over.
    let tables =
        "SELECT group_concat(sql, ';' ORDER BY type) FROM sqlite_schema WHERE tbl_name = 'leftfold_changes'";
    let tables: String = shop.other.query_row(tables, [], |row| row.get(0)).unwrap();
    shop.run(&format!("DROP TABLE leftfold_changes; {tables}"));
    shop.run("UPDATE orders SET body = '2'");
    lost(&mut feed).await;
}

#[tokio::test]
async fn the_journal_is_trimmed_behind_the_last_feed() {
    let shop = Shop::open().await;
    let mut feed = shop.follow().await;
    let (_, begin) = news(&mut feed).await;
    shop.run("INSERT INTO orders VALUES ('a', '1', 0), ('b', '1', 0), ('c', '1', 0)");
    let FeedItem::Changes(first) = feed.next(1, Duration::ZERO).await.unwrap() else {
        panic!("nothing is lost")
    };
    let (_, end) = news(&mut feed).await;
    let lease = async |name| shop.store.take_lease(name, "me", A_WHILE).await.unwrap().unwrap();
    let (fast, slow) = (lease("fast").await, lease("slow").await);
    let put = async |name, lease, place: Option<&String>| {
        shop.store.put_feed_place(name, lease, place.cloned()).await.unwrap()
    };
    assert_eq!(shop.entries(), 4, "the gap at its beginning and three changes; no feed has a place yet");
    assert!(put("slow", slow, Some(&begin)).await);
    assert_eq!(shop.entries(), 3);
    assert!(put("fast", fast, Some(&end)).await);
    assert_eq!(shop.entries(), 3, "another feed still needs them");
    assert!(!put("slow", slow + 1, Some(&end)).await);
    assert_eq!(shop.entries(), 3, "the lease has another number");
    assert!(put("slow", slow, Some(&first.through)).await);
    assert_eq!(shop.entries(), 2);
    let mut again = shop.store.follow(vec![orders()], Some(first.through.clone())).await.unwrap();
    assert_eq!(named(&mut again).await, ["b", "c"]);
    lost(&mut shop.store.follow(vec![orders()], Some(begin)).await.unwrap()).await;
    assert!(put("slow", slow, None).await);
    assert_eq!(shop.entries(), 0, "a feed without a place is not waited for");
    shop.run("INSERT INTO orders VALUES ('d', '1', 0)");
    assert_eq!(named(&mut feed).await, ["d"], "numbers go on where they were");
    assert!(put("fast", fast, None).await);
    assert_eq!(shop.entries(), 1, "without any place, nothing is trimmed");
}

#[tokio::test]
async fn much_is_trimmed_in_steps() {
    let shop = Shop::open().await;
    let mut feed = shop.follow().await;
    shop.run(
        "INSERT INTO orders WITH RECURSIVE n (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < 12000) \
         SELECT 'd' || x, '1', 0 FROM n",
    );
    let (names, end) = news(&mut feed).await;
    assert_eq!(names.len(), 12_000);
    let lease = shop.store.take_lease("feed", "me", A_WHILE).await.unwrap().unwrap();
    for left in [2_001, 0] {
        assert!(shop.store.put_feed_place("feed", lease, Some(end.clone())).await.unwrap());
        assert_eq!(shop.entries(), left);
    }
}

/// This holds even if no Leftfold process ever runs again.
#[tokio::test]
async fn the_journal_bounds_itself() {
    let shop = Shop::open().await;
    let mut feed = shop.follow().await;
    shop.run("INSERT INTO orders VALUES ('a', '1', 0), ('b', '1', 0)");
    // As if there had been a million changes since.
    let far = "INSERT INTO leftfold_changes (seq, source, id) \
        SELECT (max(seq) / 1024 + 1) * 1024 + 1024 * 1024, 'plain orders', 'z' FROM leftfold_changes";
    shop.run(far);
    assert_eq!(shop.entries(), 1);
    lost(&mut feed).await;
}

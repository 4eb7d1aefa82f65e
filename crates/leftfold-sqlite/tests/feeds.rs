//! A feed reports each change, whichever program made it, or reports that some may be missing.
//!
//! The bug this guards against: a change by another program that is not reported.

#![allow(clippy::unwrap_used, reason = "a step that fails fails the test")]

mod common;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use common::shop::{A_WHILE, Shop, carts, id, lost, named, news, orders};
use common::{cart, closed, insert};
use leftfold::documents::{CollectionWrites as Written, Commit, CommitOutcome, DocumentWrite, Header};
use leftfold::react::{
    DocumentFeed as _, DocumentSource, ExternalCollection, FeedItem, FoundDocument, ReactionStore as _,
};
use leftfold::{Documents as _, Json, Kind, Lane, Partition};
use leftfold_sqlite::Sqlite;

fn commit(writes: Vec<DocumentWrite>) -> Arc<Commit> {
    Arc::new(Commit { advance: None, changes: vec![Written { collection: cart(), writes }] })
}

#[tokio::test]
async fn what_another_program_writes_is_told() {
    let shop = Shop::open().await;
    shop.run("INSERT INTO orders VALUES ('before', '1', 0)");
    let mut feed = shop.follow().await;
    assert_eq!(named(&mut feed).await, [""; 0]);
    shop.run(
        "INSERT INTO orders VALUES ('a', '{\"n\":1}', 0), ('b', '2', 0), ('none', NULL, 0), (NULL, '3', 0)",
    );
    assert_eq!(named(&mut feed).await, ["a", "b"], "without a body, and without an id, there is no document");
    shop.run("UPDATE orders SET body = '3' WHERE id = 'b'");
    assert_eq!(named(&mut feed).await, ["b"]);
    shop.run("UPDATE orders SET seen = seen + 1; UPDATE orders SET body = body");
    assert_eq!(named(&mut feed).await, [""; 0], "no body is another one");
    shop.run("UPDATE orders SET id = 'c' WHERE id = 'b'");
    assert_eq!(named(&mut feed).await, ["b", "c"]);
    shop.run("UPDATE orders SET body = NULL WHERE id = 'c'; UPDATE orders SET body = '5' WHERE id = 'none'");
    assert_eq!(named(&mut feed).await, ["c", "none"]);
    shop.run("INSERT OR REPLACE INTO orders VALUES ('a', '7', 0)");
    assert_eq!(named(&mut feed).await, ["a"]);
    shop.run("INSERT INTO orders VALUES ('a', '8', 0) ON CONFLICT (id) DO UPDATE SET body = excluded.body");
    assert_eq!(named(&mut feed).await, ["a"]);
    shop.run("BEGIN; INSERT INTO orders VALUES ('never', '1', 0); ROLLBACK");
    assert_eq!(named(&mut feed).await, [""; 0]);
    shop.run("DELETE FROM orders");
    assert_eq!(named(&mut feed).await, ["a", "before", "none"], "what was there is gone");
}

#[tokio::test]
async fn what_another_program_writes_is_read() {
    let shop = Shop::open().await;
    shop.follow().await;
    shop.run(
        "INSERT INTO orders VALUES ('a', '{\"n\":1}', 0), ('b', 'no json', 0), ('c', NULL, 0), (NULL, '1', 0), \
         ('', '1', 0), ('d', x'00', 0), ('e', '[2]', 0), (x'66', '1', 0)",
    );
    let ids = ["a", "b", "c", "d", "e", "x"].map(id).to_vec();
    let found = shop.store.current_documents(&orders(), ids, usize::MAX).await.unwrap();
    let [a, b, d, e] = &found.documents[..] else { panic!("{found:?}") };
    assert_eq!(*a, FoundDocument::new(id("a"), Json::stored("{\"n\":1}")));
    assert_eq!(*e, FoundDocument::new(id("e"), Json::stored("[2]")));
    for (one, name, why) in [(b, "b", "valid JSON"), (d, "d", "not text")] {
        assert!(one.id == id(name) && one.body.as_ref().is_err_and(|said| said.contains(why)), "{one:?}");
    }
    let there = ["a", "b", "d", "e"].map(id);
    assert_eq!(shop.store.page_of_ids(&orders(), None, 9).await.unwrap(), there);
    assert_eq!(shop.store.page_of_ids(&orders(), None, 1).await.unwrap(), there[..1]);
    assert_eq!(shop.store.page_of_ids(&orders(), Some(id("a")), 9).await.unwrap(), there[1..]);
}

/// The collation of a table may treat different texts as equal.
#[tokio::test]
async fn a_table_that_overlooks_case_is_followed_all_the_same() {
    let shop = Shop::open().await;
    shop.run(
        "DROP TABLE orders; \
         CREATE TABLE orders (id TEXT PRIMARY KEY COLLATE NOCASE, body TEXT COLLATE NOCASE); \
         INSERT INTO orders VALUES ('a', '\"x\"'), ('b', '1')",
    );
    let mut feed = shop.follow().await;
    shop.run("UPDATE orders SET body = '\"X\"' WHERE id = 'a'");
    assert_eq!(named(&mut feed).await, ["a"]);
    shop.run("UPDATE orders SET id = 'A' WHERE id = 'a'");
    assert_eq!(named(&mut feed).await, ["A", "a"]);
    let ids = ["a", "A"].map(id).to_vec();
    let found = shop.store.current_documents(&orders(), ids, usize::MAX).await.unwrap();
    assert_eq!(found.documents, [FoundDocument::new(id("A"), Json::stored("\"X\""))]);
}

/// Reactions can't see changes of guards or of the parked state alone.
#[tokio::test]
async fn of_a_projection_only_bodies_are_told() {
    let shop = Shop::open().await;
    shop.store.prepare_reactions(&[carts()]).await.unwrap();
    let mut feed = shop.store.follow(vec![carts()], None).await.unwrap();
    let mut absent = insert("absent", "");
    absent.record.body = None;
    let writes = vec![insert("a", "1"), absent];
    assert!(matches!(shop.store.commit(commit(writes)).await.unwrap(), CommitOutcome::Applied));
    assert_eq!(named(&mut feed).await, ["a"]);
    let mut moved = insert("a", "1");
    moved.expected = Some(Header { mark: moved.record.header.mark.clone(), parked: None });
    moved.record.header.mark = [(Lane::from(Partition(0)), 2)].into_iter().collect();
    assert!(matches!(shop.store.commit(commit(vec![moved.clone()])).await.unwrap(), CommitOutcome::Applied));
    assert_eq!(named(&mut feed).await, [""; 0], "its body is the same");
    moved.expected = Some(moved.record.header.clone());
    moved.record.body = None;
    assert!(matches!(shop.store.commit(commit(vec![moved])).await.unwrap(), CommitOutcome::Applied));
    assert_eq!(named(&mut feed).await, ["a"]);
}

#[tokio::test]
async fn a_feed_passes_what_is_not_its_own() {
    let shop = Shop::open().await;
    let mut feed = shop.follow().await;
    shop.store.prepare_reactions(&[carts()]).await.unwrap();
    let (_, begin) = news(&mut feed).await;
    assert!(matches!(
        shop.store.commit(commit(vec![insert("a", "1")])).await.unwrap(),
        CommitOutcome::Applied
    ));
    let (names, through) = news(&mut feed).await;
    assert_eq!(names, BTreeSet::new());
    assert_eq!(
        through.parse::<i64>().unwrap(),
        begin.parse::<i64>().unwrap() + 1,
        "there is no need to look at it again"
    );
}

#[tokio::test]
async fn changes_are_noted_while_nobody_has_the_file_open() {
    let shop = Shop::open().await;
    let (_, place) = news(&mut shop.follow().await).await;
    let Shop { store, path, other, _directory } = shop;
    closed(store).await;
    other.execute_batch("INSERT INTO orders VALUES ('a', '1', 0)").unwrap();
    let store = Sqlite::open(&path).await.unwrap();
    store.prepare_reactions(&[orders()]).await.unwrap();
    let mut feed = store.follow(vec![orders()], Some(place)).await.unwrap();
    assert_eq!(named(&mut feed).await, ["a"], "told, and not lost");
}

/// Only followed tables have triggers, and following them again changes nothing.
#[tokio::test]
async fn only_followed_tables_have_triggers() {
    let shop = Shop::open().await;
    shop.run("CREATE TABLE others (id TEXT PRIMARY KEY, body TEXT)");
    shop.follow().await;
    let triggers = "SELECT group_concat(DISTINCT tbl_name) || count(*) FROM sqlite_schema \
        WHERE type = 'trigger' AND tbl_name <> 'leftfold_changes'";
    let triggers = || shop.other.query_row(triggers, [], |row| row.get::<_, String>(0)).unwrap();
    assert_eq!(triggers(), "orders3");
    let before = (shop.entries(), shop.number("PRAGMA schema_version"));
    shop.store.prepare_reactions(&[orders()]).await.unwrap();
    assert_eq!((shop.entries(), shop.number("PRAGMA schema_version")), before);
    assert_eq!(triggers(), "orders3");
}

#[tokio::test]
async fn what_is_no_table_of_documents_is_refused() {
    let shop = Shop::open().await;
    shop.store.prepare(&cart()).await.unwrap();
    shop.run(
        "CREATE TABLE numbered (id INTEGER PRIMARY KEY, body TEXT); CREATE TABLE keyless (id TEXT, body TEXT); \
         CREATE TABLE bodiless (id TEXT PRIMARY KEY, content TEXT); CREATE TABLE unnamed (name TEXT PRIMARY KEY, body TEXT); \
         CREATE TABLE pairs (id TEXT, part TEXT, body TEXT, PRIMARY KEY (id, part))",
    );
    let shown = shop.path.to_str().unwrap();
    for (name, words) in [
        ("missing", ["there is no table missing", "create the table"]),
        ("numbered", ["numbered has no column `id TEXT PRIMARY KEY`", "create the table"]),
        ("keyless", ["keyless has no column `id TEXT PRIMARY KEY`", "create the table"]),
        ("unnamed", ["unnamed has no column `id TEXT PRIMARY KEY`", "create the table"]),
        ("pairs", ["pairs has no column `id TEXT PRIMARY KEY`", "create the table"]),
        ("bodiless", ["bodiless has no column `body`", "create the table"]),
        ("cart", ["cart is a view", "the projection if"]),
        ("Orders", ["Orders is called orders", "exact name"]),
    ] {
        let on = DocumentSource::External(ExternalCollection::new(name).unwrap());
        let error = shop.store.prepare_reactions(&[orders(), on]).await.unwrap_err();
        assert_eq!(error.kind(), Kind::Invalid, "{error}");
        for word in words.iter().chain([&"could not follow documents in", &shown]) {
            assert!(error.to_string().contains(word), "{error} should say {word:?}");
        }
    }
    assert_eq!(
        shop.number("SELECT count(*) FROM sqlite_schema WHERE tbl_name = 'orders' AND type = 'trigger'"),
        0
    );
    let missing = DocumentSource::External(ExternalCollection::new("missing").unwrap());
    let error = shop.store.page_of_ids(&missing, None, 1).await.unwrap_err();
    assert!(error.kind() == Kind::Invalid && error.to_string().contains("create the table"), "{error}");
    // A generated body works, and so does a table without row numbers.
    shop.run(
        "CREATE TABLE made (id VARCHAR(20) PRIMARY KEY, n INTEGER, body TEXT AS (json_object('n', n))) WITHOUT ROWID",
    );
    let made = DocumentSource::External(ExternalCollection::new("made").unwrap());
    shop.store.prepare_reactions(std::slice::from_ref(&made)).await.unwrap();
    let mut feed = shop.store.follow(vec![made.clone()], None).await.unwrap();
    shop.run("INSERT INTO made VALUES ('a', 1); UPDATE made SET n = 2");
    assert_eq!(named(&mut feed).await, ["a"]);
    let found = shop.store.current_documents(&made, vec![id("a")], usize::MAX).await.unwrap();
    assert_eq!(found.documents, [FoundDocument::new(id("a"), Json::stored(r#"{"n":2}"#))]);
}

/// Dropping a table also drops its triggers. The journal misses changes until the triggers exist
/// again.
#[tokio::test]
async fn a_table_that_was_made_anew_is_lost_for_all_who_follow_it() {
    let shop = Shop::open().await;
    let mut feed = shop.follow().await;
    let beside = Sqlite::open(&shop.path).await.unwrap();
    let mut second = beside.follow(vec![orders()], None).await.unwrap();
    assert_eq!((named(&mut feed).await, named(&mut second).await), (Vec::new(), Vec::new()));
    shop.run("DROP TABLE orders");
    let error = feed.next(10, Duration::ZERO).await.unwrap_err();
    assert!(error.to_string().contains("there is no table orders"), "{error}");
    shop.run(
        "CREATE TABLE orders (id TEXT PRIMARY KEY, body TEXT); INSERT INTO orders VALUES ('unseen', '1')",
    );
    assert!(lost(&mut feed).await.contains("dropped"));
    assert!(lost(&mut second).await.contains("not recorded"), "though the triggers are there again");
    let mut again = beside.follow(vec![orders()], None).await.unwrap();
    shop.run("INSERT INTO orders VALUES ('a', '1')");
    assert_eq!(named(&mut again).await, ["a"]);
    // The same if the table was renamed: triggers move with the table.
    shop.run("ALTER TABLE orders RENAME TO old; CREATE TABLE orders (id TEXT PRIMARY KEY, body TEXT)");
    assert!(lost(&mut again).await.contains("dropped"));
    let mut again = beside.follow(vec![orders()], None).await.unwrap();
    shop.run("UPDATE old SET body = '2'; INSERT INTO orders VALUES ('b', '1')");
    assert_eq!(named(&mut again).await, ["b"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_feed_that_waits_hears_of_a_dropped_trigger() {
    let shop = Shop::open().await;
    let mut feed = shop.follow().await;
    named(&mut feed).await;
    let waiting = tokio::spawn(async move { feed.next(10, A_WHILE).await });
    shop.run("DROP TRIGGER \"leftfold_changes_update plain orders\"");
    let told = tokio::time::timeout(A_WHILE / 2, waiting).await.expect("a wake-up").unwrap().unwrap();
    assert!(matches!(told, FeedItem::Lost(_)), "{told:?}");
}

/// Handles that opened the file separately see each other's commits as separate processes do.
#[tokio::test(flavor = "multi_thread")]
async fn a_feed_wakes_up_by_what_others_write() {
    let shop = Shop::open().await;
    let beside = Sqlite::open(&shop.path).await.unwrap();
    shop.store.prepare_reactions(&[orders(), carts()]).await.unwrap();
    let mut feed = shop.store.follow(vec![orders(), carts()], None).await.unwrap();
    for number in 0..10 {
        let name = format!("d{number}");
        let waiting = tokio::spawn(async move {
            let told = feed.next(10, A_WHILE).await;
            (told, feed)
        });
        if number % 2 == 0 {
            tokio::task::yield_now().await;
        }
        let on = if number % 3 == 0 {
            shop.run(&format!("INSERT INTO orders VALUES ('{name}', '1', 0)"));
            orders()
        } else {
            let commit = commit(vec![insert(&name, "1")]);
            assert!(matches!(beside.commit(commit).await.unwrap(), CommitOutcome::Applied));
            carts()
        };
        let (told, back) = tokio::time::timeout(A_WHILE / 2, waiting).await.expect("a wake-up").unwrap();
        feed = back;
        let FeedItem::Changes(changes) = told.unwrap() else { panic!("nothing is lost") };
        assert_eq!(changes.documents, [(on, [id(&name)].into())].into());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wake_up_is_heard_by_other_handles() {
    let shop = Shop::open().await;
    let beside = Sqlite::open(&shop.path).await.unwrap();
    let mut since = shop.store.woken(u64::MAX, Duration::ZERO).await.unwrap();
    for _ in 0..10 {
        let store = shop.store.clone();
        let waiting = tokio::spawn(async move { store.woken(since, A_WHILE).await });
        tokio::task::yield_now().await;
        beside.wake().await.unwrap();
        let heard = tokio::time::timeout(A_WHILE / 2, waiting).await.expect("a wake-up").unwrap().unwrap();
        assert_ne!(heard, since);
        since = heard;
    }
    // Other writes wake no runner.
    shop.run("INSERT INTO orders VALUES ('a', '1', 0)");
    assert_eq!(shop.store.woken(since, Duration::from_millis(50)).await.unwrap(), since);
}

//! Documents that reactions follow: ids of all types, lost places, server failures, and wake-ups.

#![allow(clippy::unwrap_used, reason = "a step that fails fails the test")]

mod common;

use std::collections::BTreeSet;
use std::time::Duration;

use bson::oid::ObjectId;
use bson::{Bson, DateTime, Document, doc};
use common::{REPLICA_SET, STANDALONE, failing, heal, soon};
use leftfold::react::{
    DocumentFeed as _, DocumentSource, ExternalCollection, FeedItem, FoundDocument, ReactionStore as _,
};
use leftfold::{DocumentId, Documents as _, Json, Kind};
use leftfold_mongodb::{Mongo, MongoFeed};
use leftfold_testbed::mongodb::Server;

const A_WHILE: Duration = Duration::from_secs(20);

fn plain(name: &str) -> DocumentSource {
    DocumentSource::External(ExternalCollection::new(name).unwrap())
}

fn id(text: &str) -> DocumentId {
    DocumentId::new(text).unwrap()
}

async fn prepared(on: &[DocumentSource]) -> Mongo {
    let store = REPLICA_SET.store(Mongo::options()).await;
    store.prepare_reactions(on).await.unwrap();
    store
}

async fn insert(store: &Mongo, collection: &str, documents: Vec<Document>) {
    store.database().collection::<Document>(collection).insert_many(documents).await.unwrap();
}

/// Reads the feed until it has named exactly these documents, and returns its place. Panics if the
/// feed is lost.
async fn told(feed: &mut MongoFeed, wanted: &[&str]) -> String {
    let wanted: BTreeSet<_> = wanted.iter().map(|text| DocumentId::stored(text)).collect();
    let mut named = BTreeSet::new();
    soon(async {
        loop {
            let FeedItem::Changes(changes) = feed.next(100, A_WHILE).await.unwrap() else { panic!("lost") };
            named.extend(changes.documents.into_values().flatten());
            if named.is_superset(&wanted) {
                assert_eq!(named, wanted);
                return changes.through;
            }
        }
    })
    .await
}

/// Returns the reason why a feed is lost, and checks that the feed repeats it.
async fn lost(feed: &mut MongoFeed) -> String {
    soon(async {
        loop {
            if let FeedItem::Lost(why) = feed.next(100, A_WHILE).await.unwrap() {
                assert_eq!(feed.next(100, Duration::ZERO).await.unwrap(), FeedItem::Lost(why.clone()));
                return why;
            }
        }
    })
    .await
}

#[tokio::test]
async fn documents_of_any_program_are_followed_read_and_paged() {
    let on = plain("orders");
    let store = prepared(std::slice::from_ref(&on)).await;
    assert_eq!(store.page_of_ids(&on, None, 9).await.unwrap(), [], "it is not there yet");
    assert_eq!(store.page_of_ids(&on, Some(id("a")), 9).await.unwrap(), []);
    let oid = ObjectId::parse_str("0123456789abcdef01234567").unwrap();
    // All types in MongoDB's sort order, each with the text of its id.
    let all: Vec<(Bson, &str)> = vec![
        (Bson::MinKey, r#"{"$minKey":1}"#),
        (Bson::Null, "null"),
        (5.into(), r#"{"$numberInt":"5"}"#),
        (5_000_000_000_i64.into(), r#"{"$numberLong":"5000000000"}"#),
        ("a".into(), "a"),
        ("true".into(), r#""true""#),
        (r#"{"$oid":"0123456789abcdef01234567"}"#.into(), r#""{\"$oid\":\"0123456789abcdef01234567\"}""#),
        (doc! { "z": "at", "number": 7 }.into(), r#"{"z":"at","number":{"$numberInt":"7"}}"#),
        (oid.into(), r#"{"$oid":"0123456789abcdef01234567"}"#),
        (true.into(), "true"),
        (DateTime::from_millis(7).into(), r#"{"$date":{"$numberLong":"7"}}"#),
        (Bson::MaxKey, r#"{"$maxKey":1}"#),
    ];
    let texts: Vec<_> = all.iter().map(|(_, text)| *text).collect();
    let mut feed = store.follow(vec![on.clone()], None).await.unwrap();
    let documents = all.iter().map(|(key, text)| doc! { "_id": key.clone(), "n": *text });
    insert(&store, "orders", documents.rev().collect()).await;
    told(&mut feed, &texts).await;

    let mut paged = Vec::new();
    let mut after = None;
    loop {
        let page = store.page_of_ids(&on, after, 3).await.unwrap();
        let Some(last) = page.last() else { break };
        after = Some(last.clone());
        assert!(page.len() <= 3);
        paged.extend(page.into_iter().map(|id| id.to_string()));
    }
    assert_eq!(paged, texts);
    let ids = || texts.iter().chain(&["missing", "{nonsense"]).map(|text| id(text)).collect();
    let found = store.current_documents(&on, ids(), usize::MAX).await.unwrap().documents;
    assert_eq!(found.len(), texts.len());
    for FoundDocument { id, body } in found {
        let body: serde_json::Value = body.unwrap().json().to().unwrap();
        assert_eq!(body["n"], id.as_str());
    }

    // The feed reports every kind of change.
    let orders = store.database().collection::<Document>("orders");
    let body = doc! { "z": 1_i64, "at": DateTime::from_millis(1_700_000_000_123), "by": oid, "a": [1.5, Bson::Null] };
    orders.replace_one(doc! { "_id": oid }, body).await.unwrap();
    orders.update_one(doc! { "_id": 5 }, doc! { "$set": { "n": 1 } }).await.unwrap();
    orders.delete_one(doc! { "_id": "a" }).await.unwrap();
    let of_oid = r#"{"$oid":"0123456789abcdef01234567"}"#;
    told(&mut feed, &[of_oid, r#"{"$numberInt":"5"}"#, "a"]).await;
    let found = store.current_documents(&on, vec![id("a"), id(of_oid)], usize::MAX).await.unwrap().documents;
    let text = r#"{"_id":{"$oid":"0123456789abcdef01234567"},"z":1,"at":{"$date":"2023-11-14T22:13:20.123Z"},"by":{"$oid":"0123456789abcdef01234567"},"a":[1.5,null]}"#;
    let [FoundDocument { id: found, body: Ok(body) }] = &found[..] else { panic!("{found:?}") };
    assert_eq!((found, body.json()), (&id(of_oid), &Json::parse(text).unwrap()));
    // Filters see the server's types.
    assert_eq!(
        body.value().unwrap().get("z").map(ToString::to_string),
        Some(r#"{"$numberLong":"1"}"#.to_owned())
    );
}

/// Covers an id longer than users may enter.
#[tokio::test]
async fn documents_with_long_ids_are_followed_and_read() {
    let on = plain("pages");
    let store = prepared(std::slice::from_ref(&on)).await;
    let mut feed = store.follow(vec![on.clone()], None).await.unwrap();
    let long = format!("https://example.com/{}", "x".repeat(900));
    insert(&store, "pages", vec![doc! { "_id": &long }]).await;
    told(&mut feed, &[&long]).await;
    let found = store.current_documents(&on, vec![DocumentId::stored(&long)], 1).await.unwrap().documents;
    assert_eq!((found.len(), found[0].id.as_str()), (1, long.as_str()));
}

/// An operator adds a reaction to another collection, or removes one, and the feed continues at its
/// place.
#[tokio::test]
async fn a_place_is_good_for_other_collections_than_it_was_made_with() {
    let store = prepared(&[]).await;
    let (one, other) = (plain("one"), plain("other"));
    let mut feed = store.follow(vec![one.clone()], None).await.unwrap();
    insert(&store, "one", vec![doc! { "_id": "a" }]).await;
    let place = told(&mut feed, &["a"]).await;
    insert(&store, "other", vec![doc! { "_id": "b" }]).await;
    insert(&store, "one", vec![doc! { "_id": "c" }]).await;
    let mut both = store.follow(vec![one, other.clone()], Some(place.clone())).await.unwrap();
    let further = told(&mut both, &["b", "c"]).await;
    insert(&store, "other", vec![doc! { "_id": "d" }]).await;
    told(&mut store.follow(vec![other.clone()], Some(further)).await.unwrap(), &["d"]).await;
    told(&mut store.follow(vec![other], Some(place)).await.unwrap(), &["b", "d"]).await;
}

/// A feed without matching changes still advances, so that the server scans other changes only
/// once.
#[tokio::test]
async fn a_place_moves_on_when_nothing_matches() {
    let store = prepared(&[]).await;
    let mut feed = store.follow(vec![plain("quiet")], None).await.unwrap();
    let place = |told: FeedItem| match told {
        FeedItem::Changes(changes) => changes.through,
        FeedItem::Lost(why) => panic!("{why}"),
    };
    let begin = place(feed.next(10, Duration::ZERO).await.unwrap());
    insert(&store, "noisy", vec![doc! {}]).await;
    let moved = soon(async {
        loop {
            let now = place(feed.next(10, Duration::from_millis(100)).await.unwrap());
            if now != begin {
                return now;
            }
        }
    });
    let moved = moved.await;
    insert(&store, "quiet", vec![doc! { "_id": "a" }]).await;
    told(&mut store.follow(vec![plain("quiet")], Some(moved)).await.unwrap(), &["a"]).await;
}

/// Each feed reports all changes after its first one, no matter when it was opened.
#[tokio::test(flavor = "multi_thread")]
async fn a_feed_that_is_opened_amid_changes_leaves_none_out() {
    let store = prepared(&[]).await;
    let writer = tokio::spawn({
        let numbers = store.database().collection::<Document>("numbers");
        async move {
            for number in 0_i64.. {
                let hasty = mongodb::options::WriteConcern::nodes(1);
                numbers.insert_one(doc! { "_id": number }).write_concern(hasty).await.unwrap();
            }
        }
    });
    for _ in 0..20 {
        let mut feed = store.follow(vec![plain("numbers")], None).await.unwrap();
        let mut named = BTreeSet::new();
        let read = async {
            while named.len() < 30 {
                let FeedItem::Changes(changes) = feed.next(7, A_WHILE).await.unwrap() else { panic!("lost") };
                let number = |id: DocumentId| -> i64 {
                    let id: serde_json::Value = serde_json::from_str(id.as_str()).unwrap();
                    id["$numberLong"].as_str().unwrap().parse().unwrap()
                };
                named.extend(changes.documents.into_values().flatten().map(number));
            }
        };
        soon(read).await;
        let (first, last) = (*named.first().unwrap(), *named.last().unwrap());
        assert_eq!(usize::try_from(last - first).unwrap() + 1, named.len(), "{named:?}");
    }
    writer.abort();
}

#[tokio::test]
async fn a_place_that_the_server_does_not_know_is_lost() {
    let store = prepared(&[]).await;
    let on = || vec![plain("orders")];
    let mut feed = store.follow(on(), None).await.unwrap();
    insert(&store, "orders", vec![doc! { "_id": "a" }]).await;
    let place = told(&mut feed, &["a"]).await;
    // A place begins with the seconds since 1970; this time is long ago.
    let (begin, rest) = place.split_once("\"82").unwrap();
    let old = format!("{begin}\"825F000000{}", &rest[8..]);
    // The number within the second follows: use another one than the change has.
    let increment = if &rest[8..16] == "00000001" { "00000002" } else { "00000001" };
    let other = format!("{begin}\"82{}{increment}{}", &rest[..8], &rest[16..]);
    let made_up = [r#"{"_data":"8263"}"#, r#"{"_data":"nonsense"}"#, "{}", "5"];
    let made_up = made_up.map(|token| format!(r#"{{"token":{token}}}"#));
    for place in
        made_up.iter().map(String::as_str).chain(["{}", "nonsense", ""]).chain([old.as_str(), other.as_str()])
    {
        let mut feed = store.follow(on(), Some(place.to_owned())).await.unwrap();
        let why = lost(&mut feed).await;
        assert!(!why.is_empty(), "{place}");
    }
    insert(&store, "orders", vec![doc! { "_id": "b" }]).await;
    told(&mut store.follow(on(), Some(place)).await.unwrap(), &["b"]).await;
}

#[tokio::test]
async fn a_collection_that_is_dropped_or_renamed_is_lost() {
    let store = prepared(&[]).await;
    let database = store.database();
    let rename = async |from: &str, to: &str| {
        let name = |collection: &str| format!("{}.{collection}", database.name());
        let command = doc! { "renameCollection": name(from), "to": name(to), "dropTarget": true };
        database.client().database("admin").run_command(command).await.unwrap();
    };
    for (number, says) in ["was dropped", "was renamed", "was renamed"].into_iter().enumerate() {
        insert(&store, "orders", vec![doc! { "_id": "a" }]).await;
        insert(&store, "others", vec![doc! { "_id": "b" }]).await;
        let mut feed = store.follow(vec![plain("orders")], None).await.unwrap();
        let FeedItem::Changes(begin) = feed.next(1, Duration::ZERO).await.unwrap() else { panic!("lost") };
        match number {
            0 => database.collection::<Document>("orders").drop().await.unwrap(),
            1 => rename("orders", "gone").await,
            _ => rename("others", "orders").await,
        }
        insert(&store, "orders", vec![doc! { "_id": "c" }]).await;
        let why = lost(&mut feed).await;
        assert!(why.contains(says), "{why}");
        // A feed opened after the event is lost, too.
        let mut later = store.follow(vec![plain("orders")], Some(begin.through)).await.unwrap();
        assert_eq!(lost(&mut later).await, why);
        for name in ["orders", "others"] {
            database.collection::<Document>(name).drop().await.unwrap();
        }
    }
    // Events in other collections do not matter.
    let mut feed = store.follow(vec![plain("orders")], None).await.unwrap();
    database.collection::<Document>("gone").drop().await.unwrap();
    insert(&store, "orders", vec![doc! { "_id": "d" }]).await;
    told(&mut feed, &["d"]).await;
}

/// Starts a server for one test, because its failpoints would disturb other tests. Returns it with
/// a healthy store and one that hits the failpoints.
async fn fragile() -> (Server, Mongo, Mongo) {
    let server = Server::replica_set(1).await.unwrap();
    let store = Mongo::connect(server.url()).await.unwrap();
    store.prepare_reactions(&[]).await.unwrap();
    let hurt = Mongo::connect(format!("{}&appName=hurt", server.url())).await.unwrap();
    (server, store, hurt)
}

#[tokio::test]
async fn a_feed_goes_on_after_trouble_and_leaves_nothing_out() {
    let (server, store, hurt) = fragile().await;
    let mut feed = hurt.follow(vec![plain("orders")], None).await.unwrap();
    let mut number = 0;
    for trouble in [doc! { "errorCode": 262 }, doc! { "closeConnection": true }, doc! { "errorCode": 6 }] {
        let mut trouble = trouble;
        trouble.insert("appName", "hurt");
        // The feed recovers from a few failures, and reports many.
        for times in [1, 3, 100_000] {
            let command = failing(&["getMore", "aggregate"], doc! { "times": times }, trouble.clone());
            server.fail_point(command).await.unwrap();
            number += 1;
            let name = format!("d{number}");
            insert(&store, "orders", vec![doc! { "_id": &name }]).await;
            if times > 3 {
                // A pending request may still succeed.
                let mut waits = 0;
                let error = soon(async {
                    loop {
                        match feed.next(10, Duration::from_millis(200)).await {
                            Ok(FeedItem::Changes(changes)) => {
                                waits += 1;
                                assert!(waits < 50 && changes.documents.is_empty(), "{changes:?}");
                            }
                            Ok(FeedItem::Lost(why)) => panic!("{why}"),
                            Err(error) => return error,
                        }
                    }
                });
                let error = error.await;
                assert!(error.is_transient() && error.to_string().contains("follow changes in"), "{error}");
                heal(&server).await;
            }
            let name = name.as_str();
            soon(async {
                loop {
                    match feed.next(10, A_WHILE).await {
                        Ok(FeedItem::Changes(changes)) if changes.documents.is_empty() => {}
                        Ok(FeedItem::Changes(changes)) => {
                            let named: Vec<_> = changes.documents.into_values().flatten().collect();
                            assert_eq!(named, [id(name)]);
                            return;
                        }
                        Ok(FeedItem::Lost(why)) => panic!("{why}"),
                        Err(error) => assert!(error.is_transient(), "{error}"),
                    }
                }
            })
            .await;
            heal(&server).await;
        }
    }
    // A server that has lost its history can report that at any time.
    let forgotten = doc! { "errorCode": 286, "appName": "hurt" };
    server.fail_point(failing(&["getMore", "aggregate"], doc! { "times": 1 }, forgotten)).await.unwrap();
    insert(&store, "orders", vec![doc! { "_id": "last" }]).await;
    let mut named = BTreeSet::new();
    soon(async {
        while let FeedItem::Changes(changes) = feed.next(10, A_WHILE).await.unwrap() {
            named.extend(changes.documents.into_values().flatten());
        }
    })
    .await;
    assert!(named.iter().all(|named| *named == id("last")), "{named:?}");
    heal(&server).await;
}

/// Returns the number of commands of these kinds that the server has run.
async fn commands(server: &Server, names: &[&str]) -> i64 {
    let status = server.command(0, doc! { "serverStatus": 1 }).await.unwrap();
    let run = status.get_document("metrics").unwrap().get_document("commands").unwrap();
    names.iter().map(|name| run.get_document(name).unwrap().get_i64("total").unwrap()).sum()
}

/// Waiting for changes or wake-ups does not poll, and wake-ups from another process still arrive.
#[tokio::test]
async fn who_waits_asks_seldom_and_is_woken_at_once() {
    let (server, store, other) = fragile().await;
    store.wake().await.unwrap();
    let at = other.woken(u64::MAX, Duration::ZERO).await.unwrap();
    let mut feed = other.follow(vec![plain("orders")], None).await.unwrap();
    let before = commands(&server, &["find", "aggregate", "getMore"]).await;
    let waits = Duration::from_millis(1_500);
    let (stirred, told) = tokio::join!(other.woken(at, waits), async {
        for _ in 0..15 {
            feed.next(10, waits / 15).await.unwrap();
        }
        feed.next(10, Duration::ZERO).await.unwrap()
    });
    assert_eq!(stirred.unwrap(), at);
    assert!(matches!(told, FeedItem::Changes(changes) if changes.documents.is_empty()));
    let run = commands(&server, &["find", "aggregate", "getMore"]).await - before;
    assert!(run <= 12, "{run} commands");
    let (heard, ()) = tokio::join!(soon(other.woken(at, Duration::from_hours(1))), async {
        store.wake().await.unwrap();
    });
    assert_eq!(heard.unwrap(), at + 1);
}

#[tokio::test]
async fn without_a_change_stream_stirs_are_looked_for() {
    let (server, store, hurt) = fragile().await;
    let broken = doc! { "errorCode": 286, "appName": "hurt" };
    server.fail_point(failing(&["aggregate", "getMore"], doc! { "times": 100_000 }, broken)).await.unwrap();
    let mut at = hurt.woken(u64::MAX, Duration::ZERO).await.unwrap();
    for _ in 0..3 {
        let (heard, ()) = tokio::join!(soon(hurt.woken(at, Duration::from_hours(1))), async {
            store.wake().await.unwrap();
        });
        assert_eq!(heard.unwrap(), at + 1);
        at += 1;
    }
}

#[tokio::test]
async fn what_can_not_be_followed_is_refused() {
    let store = STANDALONE.store(Mongo::options()).await;
    let error = store.prepare_reactions(&[plain("orders")]).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Store);
    assert!(error.to_string().contains("not a replica set; start it with --replSet"), "{error}");

    let store = prepared(&[]).await;
    let database = store.database();
    database.run_command(doc! { "create": "view", "viewOn": "orders", "pipeline": [] }).await.unwrap();
    database.run_command(doc! { "create": "series", "timeseries": { "timeField": "at" } }).await.unwrap();
    for name in ["view", "series"] {
        let error = store.prepare_reactions(&[plain("orders"), plain(name)]).await.unwrap_err();
        assert_eq!(error.kind(), Kind::Invalid);
        assert!(error.to_string().contains(&format!("could not follow plain {name} in")), "{error}");
    }
    let cart = leftfold::Collection::new("cart").unwrap();
    store.prepare(&cart).await.unwrap();
    store.prepare_reactions(&[plain("orders"), DocumentSource::Projection(cart)]).await.unwrap();
}

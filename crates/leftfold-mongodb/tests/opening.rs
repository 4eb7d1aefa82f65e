//! The checks when a database is opened, the error messages, and that data of others stays
//! untouched.

#![allow(clippy::unwrap_used, reason = "a step that fails fails the test")]

mod common;

use std::sync::Arc;

use bson::{Document, doc};
use common::{REPLICA_SET, STANDALONE, failing, heal};
use leftfold::log::{Entry, Limit, Log as _};
use leftfold::sequence::Rejected;
use leftfold::{
    Append as _, Collection, Documents as _, EventId, EventKind, Expected, Json, Kind, Mark, Revision,
    Sequences as _, StreamId,
};
use leftfold_mongodb::Mongo;
use leftfold_testbed::mongodb::Server;
use mongodb::Client;

async fn refused(url: &str) -> leftfold::Error {
    Mongo::connect(url).await.expect_err("it should be refused")
}

fn cart() -> Collection {
    Collection::new("cart").unwrap()
}

fn entry(id: &str) -> Entry {
    Entry {
        id: EventId::new(id).unwrap(),
        kind: EventKind::new("opened").unwrap(),
        time: "2026-01-01T00:00:00.000001Z".parse().unwrap(),
        data: Json::parse("{}").unwrap(),
        metadata: None,
    }
}

#[tokio::test]
async fn a_url_that_makes_no_sense_is_explained_without_its_password() {
    for url in [
        "nonsense",
        "http://localhost",
        "mongodb://",
        "mongodb://ann:s3cret@",
        "mongodb://ann:s3cret@localhost:notaport/shop",
        "mongodb://ann:s3cret@localhost/?w=-1&s3cret=1",
        "mongodb://ann:s3c/ret@localhost/shop",
        "mongodb+srv://ann:s3cret@localhost:27017/shop",
    ] {
        let error = refused(url).await;
        let text = format!("{error} {error:?}");
        assert_eq!(error.kind(), Kind::Invalid, "{url}: {text}");
        assert!(text.contains("write it as mongodb://user:password@host:27017/database"), "{text}");
        assert!(!text.contains("s3c") && !text.contains("ann:"), "{text}");
    }
}

/// Connecting waits for an election.
#[tokio::test]
async fn what_passes_is_tried_again() {
    let server = Server::replica_set(1).await.unwrap();
    // More failures than the driver retries by itself.
    let stepped_down = doc! { "errorCode": 189, "errorLabels": ["RetryableWriteError"] };
    server.fail_point(failing(&["find", "create"], doc! { "times": 5 }, stepped_down)).await.unwrap();
    let connected = Mongo::connect(server.url().replacen("/?", "/shop?", 1)).await;
    heal(&server).await;
    connected.unwrap();
}

#[tokio::test]
async fn a_server_that_can_not_be_reached_is_named() {
    let error =
        refused("mongodb://ann:s3cret@127.0.0.1:9/shop?replicaSet=rs0&serverSelectionTimeoutMS=200").await;
    let text = format!("{error} {error:?}");
    assert_eq!(error.kind(), Kind::Unavailable);
    assert!(text.starts_with("could not connect to database shop at 127.0.0.1:9: "), "{text}");
    assert!(text.contains("check that the server runs"), "{text}");
    assert!(!text.contains("s3cret"), "{text}");
}

#[tokio::test]
async fn rights_and_passwords_are_checked_and_never_shown() {
    let server = Server::with_access_control().await.unwrap();
    let root = Client::with_uri_str(server.url()).await.unwrap();
    let user = |name: &str, role: &str| {
        doc! { "createUser": name, "pwd": "s3cret", "roles": [{ "role": role, "db": "shop" }] }
    };
    for (name, role) in [("reader", "read"), ("writer", "readWrite")] {
        root.database("admin").run_command(user(name, role)).await.unwrap();
    }
    let url = |user: &str, password: &str| server.url_as(user, password).replacen("/?", "/shop?", 1);

    let wrong = refused(&url("writer", "s3kret")).await;
    let nobody = refused(&server.url_without_user().replacen("/?", "/shop?", 1)).await;
    let reader = refused(&url("reader", "s3cret")).await;
    for (error, says) in [
        (wrong, "check the user, the password and `authSource` in the URL"),
        (nobody, "give the user the role `readWrite` on this database"),
        (reader, "give the user the role `readWrite` on this database"),
    ] {
        let text = format!("{error} {error:?}");
        assert!(text.contains(says), "{text}");
        assert!(!text.contains("s3cret") && !text.contains("s3kret"), "{text}");
    }

    // The role `readWrite` is enough for everything except rebuilds.
    let store = Mongo::connect(url("writer", "s3cret")).await.unwrap();
    store.prepare(&cart()).await.unwrap();
    store.append(StreamId::new("s").unwrap(), Expected::NONE, vec![entry("e")]).await.unwrap();
    assert!(!format!("{store:?}").contains("s3cret"));
}

#[tokio::test]
async fn a_log_keeps_its_partitions_and_its_format() {
    let url = REPLICA_SET.url().await;
    let store = Mongo::options().partitions(3).connect(&url).await.unwrap();
    assert_eq!(Mongo::connect(&url).await.unwrap().partitions(), 3);
    let error = Mongo::options().partitions(2).connect(&url).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Invalid);
    assert!(error.to_string().contains("has 3 partitions, not 2"), "{error}");
    let error = Mongo::options().partitions(0).connect(&url).await.unwrap_err();
    assert!(error.to_string().contains("number of partitions \"0\": expected 1 to 1024"), "{error}");
    let error = Mongo::options().max_event_bytes(8 << 20).connect(&url).await.unwrap_err();
    assert!(error.to_string().contains("max_event_bytes"), "{error}");

    let metas = store.database().collection::<Document>("leftfold.meta");
    metas.update_one(doc! { "_id": "log" }, doc! { "$set": { "format": 2 } }).await.unwrap();
    let error = refused(&url).await;
    assert_eq!(error.kind(), Kind::Format);
    assert!(
        error.to_string().contains("it has format 2, and this version of Leftfold reads format 1"),
        "{error}"
    );
}

#[tokio::test]
async fn many_who_make_the_same_log_agree_on_it() {
    let url = REPLICA_SET.url().await;
    let makers: Vec<_> = (1..=4_u16)
        .map(|partitions| {
            let url = url.clone();
            tokio::spawn(async move { Mongo::options().partitions(partitions).connect(url).await })
        })
        .collect();
    let mut made = Vec::new();
    for maker in makers {
        if let Ok(store) = maker.await.unwrap() {
            made.push(store.partitions());
        }
    }
    assert_eq!(made.len(), 1, "each wanted another number: {made:?}");
    assert_eq!(Mongo::connect(&url).await.unwrap().partitions(), made[0]);
}

#[tokio::test]
async fn a_log_without_its_indexes_is_not_opened() {
    for index in ["leftfold_id", "leftfold_stream_revision"] {
        let url = REPLICA_SET.url().await;
        let store = Mongo::connect(&url).await.unwrap();
        let events = store.database().collection::<Document>("leftfold.events");
        events.drop_index(index).await.unwrap();
        let error = refused(&url).await;
        assert_eq!(error.kind(), Kind::Format);
        assert!(error.to_string().contains("createIndex("), "{error}");
        assert!(error.to_string().contains(index), "{error}");

        // An index that is not unique does not count.
        let keys = if index == "leftfold_id" {
            doc! { "id": 1 }
        } else {
            doc! { "stream": 1, "revision": -1 }
        };
        let plain = |unique: bool| {
            doc! { "createIndexes": "leftfold.events",
            "indexes": [{ "key": keys.clone(), "name": index, "unique": unique }] }
        };
        store.database().run_command(plain(false)).await.unwrap();
        assert_eq!(refused(&url).await.kind(), Kind::Format);
        events.drop_index(index).await.unwrap();
        store.database().run_command(plain(true)).await.unwrap();
        Mongo::connect(&url).await.unwrap();
    }
}

/// A log from before the sequencer existed.
#[tokio::test]
async fn what_the_sequencer_needs_is_made_where_it_is_missing() {
    let url = REPLICA_SET.url().await;
    let store = Mongo::connect(&url).await.unwrap();
    let names = ["held", "sequences", "conflicts", "skipped", "rejected"];
    for name in names {
        store.database().collection::<Document>(&format!("leftfold.{name}")).drop().await.unwrap();
    }
    let metas = store.database().collection::<Document>("leftfold.meta");
    metas.delete_one(doc! { "_id": "rejected" }).await.unwrap();
    let store = Mongo::connect(&url).await.unwrap();
    let indexes = async |name: &str| {
        let collection = store.database().collection::<Document>(&format!("leftfold.{name}"));
        collection.list_index_names().await.unwrap().len()
    };
    for (name, count) in names.into_iter().zip([2, 3, 2, 1, 1]) {
        assert_eq!(indexes(name).await, count, "{name}");
    }
    let rejected = Rejected {
        source: "orders".to_owned(),
        reason: "it is no JSON".to_owned(),
        since: "2026-01-01T00:00:00Z".parse().unwrap(),
        attributes: [].into(),
        content: Vec::new(),
    };
    store.reject(vec![rejected]).await.unwrap();
    assert_eq!(store.rejected(None, 9).await.unwrap().len(), 1);
}

#[tokio::test]
async fn what_has_the_name_of_a_projection_is_left_as_it_is() {
    let store = REPLICA_SET.store(Mongo::options()).await;
    let theirs = store.database().collection::<Document>("cart");
    theirs.insert_one(doc! { "_id": "mine", "since": 2019 }).await.unwrap();
    let error = store.prepare(&cart()).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Conflict);
    assert!(error.to_string().contains("a collection of that name that Leftfold did not make"), "{error}");
    assert_eq!(theirs.find_one(doc! {}).await.unwrap().unwrap(), doc! { "_id": "mine", "since": 2019 });

    let view = doc! { "create": "view", "viewOn": "cart", "pipeline": [] };
    store.database().run_command(view).await.unwrap();
    let error = store.prepare(&Collection::new("view").unwrap()).await.unwrap_err();
    assert!(error.to_string().contains("a view of that name that Leftfold did not make"), "{error}");
}

#[tokio::test]
async fn a_document_that_is_not_ours_is_neither_read_nor_overwritten() {
    for shared in [&REPLICA_SET, &STANDALONE] {
        let store = shared.store(Mongo::options()).await;
        store.prepare(&cart()).await.unwrap();
        let records = store.database().collection::<Document>("leftfold.docs.cart");
        records.insert_one(doc! { "_id": "x", "mine": true }).await.unwrap();
        let error = store.load(&cart(), vec![leftfold::DocumentId::new("x").unwrap()]).await.unwrap_err();
        assert!(
            error.to_string().contains("\"x\"") && error.to_string().contains("it has no _fold"),
            "{error}"
        );
        let totals = leftfold::Guarded::<u64, _>::new(store.clone(), "cart").await.unwrap();
        let answer = totals
            .fold("x", &leftfold::Lane::named("a"), 1, leftfold::Rule::Contiguous, |_| Ok(Some(1)))
            .await;
        assert!(answer.unwrap_err().to_string().contains("it has no _fold"));
        assert_eq!(records.find_one(doc! {}).await.unwrap().unwrap(), doc! { "_id": "x", "mine": true });
    }
}

#[tokio::test]
async fn a_standalone_server_holds_documents_and_no_log() {
    let store = STANDALONE.store(Mongo::options()).await;
    store.prepare(&cart()).await.unwrap();
    let says = "this server is not a replica set; start it with --replSet and run rs.initiate(), one member is enough";
    let stream = StreamId::new("s").unwrap();
    let append = store.append(stream.clone(), Expected::Any, vec![entry("e")]).await.unwrap_err();
    assert!(append.to_string().contains(says), "{append}");
    for error in [
        store.heads().await.unwrap_err(),
        store.read(leftfold::Partition(0), leftfold::Position(0), Limit::default()).await.unwrap_err(),
        store.read_stream(&stream, Revision(0), Limit::default()).await.unwrap_err(),
        store.grown(&Mark::default()).await.unwrap_err(),
        store.survey(vec![stream.clone()]).await.unwrap_err(),
        store.settle(Arc::default()).await.unwrap_err(),
        store.reject(Vec::new()).await.unwrap_err(),
    ] {
        assert!(error.to_string().contains(says), "{error}");
    }
}

//! Documents without events: their stored form, which other programs read, and idempotency after
//! lost replies.

#![allow(clippy::unwrap_used, reason = "a step that fails fails the test")]

mod common;
mod proxy;

use bson::{Bson, Document, doc};
use common::{REPLICA_SET, STANDALONE, failing, heal, soon};
use leftfold::content::{
    ContentGuard, ContentWrite, Contents as _, Operated, Operation, OperationId, Stored, Version, Versioned,
    WriteAnswer, Wrote,
};
use leftfold::react::ExternalCollection;
use leftfold::{DocumentId, Json, Kind};
use leftfold_mongodb::Mongo;
use leftfold_testbed::mongodb::Server;
use proxy::Proxy;

fn things() -> ExternalCollection {
    ExternalCollection::new("things").unwrap()
}

fn id(name: &str) -> DocumentId {
    DocumentId::new(name).unwrap()
}

fn json(text: &str) -> Json {
    Json::parse(text).unwrap()
}

fn operation(number: u64) -> Operation {
    Operation::new(OperationId::new(number).unwrap())
}

fn write(name: &str, expected: Option<&str>, to: Option<(&str, &str)>) -> ContentWrite {
    let to = to.map(|(guard, body)| (ContentGuard::stored(guard.as_bytes()), json(body)));
    ContentWrite { id: id(name), expected: expected.map(|guard| ContentGuard::stored(guard.as_bytes())), to }
}

async fn raw(store: &Mongo, key: impl Into<Bson>) -> Document {
    let found = store.database().collection::<Document>("things").find_one(doc! { "_id": key.into() }).await;
    found.unwrap().unwrap()
}

async fn found(store: &Mongo, name: &str) -> Option<Stored> {
    store.contents(&things(), vec![id(name)]).await.unwrap().pop()
}

async fn versioned(store: &Mongo) -> Versioned<Json, Mongo> {
    Versioned::new(store.clone(), "things").await.unwrap()
}

async fn inserted(things: &Versioned<Json, Mongo>, name: &str, body: &str) -> Version {
    let WriteAnswer::Applied(version) = things.insert(name, &json(body)).await.unwrap() else {
        panic!("{name}")
    };
    version
}

/// Other programs can query the fields, and all of Leftfold's own data is in one field.
#[tokio::test(flavor = "multi_thread")]
async fn fields_stand_at_the_top_level() {
    let store = REPLICA_SET.store(Mongo::options()).await;
    let things = versioned(&store).await;
    let version =
        inserted(&things, "shoes", r#"{"price":4900,"at":{"$date":"1970-01-01T00:00:01Z"},"in":{"n":7}}"#)
            .await;
    let mut stored = raw(&store, "shoes").await;
    let content = stored.get_document_mut("_content").unwrap();
    assert!(matches!(content.remove("by"), Some(Bson::Int64(_))));
    let bytes = ContentGuard::from(version).as_bytes().to_owned();
    let guard = bson::Binary { subtype: bson::spec::BinarySubtype::Generic, bytes };
    assert_eq!(*content, doc! { "guard": guard, "operations": [], "last": 0_i64 });
    stored.remove("_content");
    let at = bson::DateTime::from_millis(1_000);
    assert_eq!(stored, doc! { "_id": "shoes", "price": 4_900, "at": at, "in": { "n": 7 } });

    let step = operation(9).increment("price", -1_000).unwrap().increment("in.n", 1).unwrap();
    things.operate("shoes", step).await.unwrap();
    let by = raw(&store, "shoes").await.get_document("_content").unwrap().get_i64("by").unwrap();
    let step = operation(7).set("tags", &["new"]).unwrap();
    things.operate("shoes", step).await.unwrap();
    let mut stored = raw(&store, "shoes").await;
    let content = stored.get_document_mut("_content").unwrap();
    assert!(matches!(content.remove("guard"), Some(Bson::Binary(guard)) if guard.bytes.len() == 8));
    assert_eq!(*content, doc! { "by": by, "operations": [7_i64, 9_i64], "last": 9_i64 });
    stored.remove("_content");
    // 32-bit numbers stay 32-bit.
    let expected = doc! { "_id": "shoes", "price": 3_900, "at": at, "in": { "n": 8 }, "tags": ["new"] };
    assert_eq!(stored, expected);

    let current = things.get("shoes").await.unwrap().unwrap();
    let WriteAnswer::Applied(_) =
        things.update("shoes", current.version, &json(r#"{"only":1}"#)).await.unwrap()
    else {
        panic!("refused")
    };
    let mut stored = raw(&store, "shoes").await;
    let content = stored.remove("_content").unwrap();
    assert_eq!(
        content.as_document().unwrap().get_array("operations").unwrap()[..],
        [7_i64.into(), 9_i64.into()]
    );
    assert_eq!(stored, doc! { "_id": "shoes", "only": 1 });
}

/// A body with fields that can't be stored at the top level also has its text, until those fields
/// are gone.
#[tokio::test(flavor = "multi_thread")]
async fn odd_documents_have_their_text_beside_them() {
    let store = STANDALONE.store(Mongo::options()).await;
    let things = versioned(&store).await;
    let text = r#"{"_id":"mine","n":1}"#;
    let version = inserted(&things, "a", text).await;
    let stored = raw(&store, "a").await;
    assert_eq!(stored.get_document("_content").unwrap().get_str("json").unwrap(), text);
    assert_eq!(stored.get_i32("n").unwrap(), 1);
    things.operate("a", operation(1).increment("n", 1).unwrap()).await.unwrap();
    let stored = raw(&store, "a").await;
    assert_eq!(stored.get_document("_content").unwrap().get_str("json").unwrap(), r#"{"_id":"mine","n":2}"#);
    assert_eq!(stored.get_i32("n").unwrap(), 2);
    let WriteAnswer::Conflict(Some(current)) = things.update("a", version, &json("{}")).await.unwrap() else {
        panic!("written")
    };
    let WriteAnswer::Applied(_) = things.update("a", current.version, &json(r#"{"n":5}"#)).await.unwrap()
    else {
        panic!("refused")
    };
    assert!(!raw(&store, "a").await.get_document("_content").unwrap().contains_key("json"));
    // The server's own update would turn this increment into infinity.
    inserted(&things, "huge", r#"{"n":1.7e308}"#).await;
    let error = things.operate("huge", operation(1).increment("n", 1e308).unwrap()).await.unwrap_err();
    assert!(error.to_string().contains("within its range"), "{error}");
    things.operate("huge", operation(1).increment("n", -1e308).unwrap()).await.unwrap();
}

/// Ids have the same form as in reactions: types other than strings are given as JSON.
#[tokio::test(flavor = "multi_thread")]
async fn ids_stand_for_values_of_any_type() {
    let store = REPLICA_SET.store(Mongo::options()).await;
    let things = versioned(&store).await;
    let oid = bson::oid::ObjectId::from_bytes([7; 12]);
    let of_sub = r#"{"of":{"$numberInt":"5"}}"#;
    for (name, key) in [
        ("5", Bson::from("5")),
        (r#"{"$oid":"070707070707070707070707"}"#, oid.into()),
        (r#"{"$numberInt":"5"}"#, 5.into()),
        (of_sub, doc! { "of": 5 }.into()),
        ("true", true.into()),
    ] {
        let version = inserted(&things, name, r#"{"n":1}"#).await;
        assert_eq!(raw(&store, doc! { "$eq": key }).await.get_i32("n").unwrap(), 1);
        assert_eq!(found(&store, name).await.unwrap().id, id(name));
        things.operate(name, operation(1).increment("n", 1).unwrap()).await.unwrap();
        let WriteAnswer::Conflict(Some(current)) = things.delete(name, version).await.unwrap() else {
            panic!("{name}")
        };
        let WriteAnswer::Applied(_) = things.delete(name, current.version).await.unwrap() else {
            panic!("{name}")
        };
    }
    for none in ["{", "{abc}", r#"{ "$numberInt": "5" }"#] {
        let error = things.insert(none, &json("{}")).await.unwrap_err();
        assert_eq!(error.kind(), Kind::Invalid, "{error}");
        assert_eq!(things.get(none).await.unwrap(), None);
        let wrote =
            store.write_contents(&self::things(), [write(none, Some("v"), None)].into()).await.unwrap();
        assert_eq!(wrote, [Wrote::Refused(None)]);
        let operated = store.operate(&self::things(), [(id(none), operation(1))].into()).await.unwrap();
        assert_eq!(operated, [Operated::Missing]);
    }
}

/// Documents of other programs are not touched, and views can't be written.
#[tokio::test(flavor = "multi_thread")]
async fn documents_of_others_are_left_alone() {
    let store = REPLICA_SET.store(Mongo::options()).await;
    let database = store.database();
    database.collection("things").insert_one(doc! { "_id": "theirs", "n": 1 }).await.unwrap();
    let things = versioned(&store).await;
    inserted(&things, "ours", r#"{"n":1}"#).await;
    let operated = things.operate("theirs", operation(1).increment("n", 1).unwrap()).await.map(|_| ());
    let written = things.insert("theirs", &json("{}")).await.map(|_| ());
    for failed in [operated, written, things.get("theirs").await.map(|_| ())] {
        let error = failed.unwrap_err();
        assert_eq!(error.kind(), Kind::Format, "{error}");
        assert!(error.to_string().contains("was not written by Leftfold"), "{error}");
    }
    assert_eq!(raw(&store, "theirs").await, doc! { "_id": "theirs", "n": 1 });
    database.create_collection("seen").view_on("things".to_owned()).await.unwrap();
    let error = store.prepare_contents(&ExternalCollection::new("seen").unwrap()).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Invalid, "{error}");
    assert!(error.to_string().contains("it is a view"), "{error}");
}

/// A clustered collection, which is stored in `_id` order, has no index named `_id_`.
#[tokio::test(flavor = "multi_thread")]
async fn a_clustered_collection_will_do() {
    let store = REPLICA_SET.store(Mongo::options()).await;
    let clustered = doc! { "create": "things", "clusteredIndex": { "key": { "_id": 1 }, "unique": true, "name": "mine" } };
    store.database().run_command(clustered).await.unwrap();
    let things = versioned(&store).await;
    let version = inserted(&things, "a", r#"{"n":1}"#).await;
    let WriteAnswer::Applied(_) = things.update("a", version, &json(r#"{"n":2}"#)).await.unwrap() else {
        panic!("refused")
    };
    things.operate("a", operation(1).increment("n", 1).unwrap()).await.unwrap();
    let more = (2..40).map(|number| (id("a"), operation(number).increment("n", 1).unwrap())).collect();
    assert_eq!(things.operate_all(more).await.unwrap(), vec![Operated::Applied; 38]);
    assert_eq!(raw(&store, "a").await.get_i32("n").unwrap(), 41);
}

/// Returns the number of read and write commands that the server has run.
async fn commands(server: &Server) -> i64 {
    let status = server.command(0, doc! { "serverStatus": 1 }).await.unwrap();
    let run = status.get_document("metrics").unwrap().get_document("commands").unwrap();
    let count = |name: &&str| run.get_document(name).unwrap().get_i64("total").unwrap();
    ["find", "getMore", "insert", "update", "delete"].iter().map(count).sum()
}

#[tokio::test]
async fn what_holds_takes_one_command() {
    let server = Server::standalone().await.unwrap();
    let store = Mongo::connect(server.url()).await.unwrap();
    store.prepare_contents(&things()).await.unwrap();
    let before = commands(&server).await;
    let names: Vec<_> = (0..100).map(|number| format!("d{number}")).collect();
    for count in [1, 99] {
        let names = || names.iter().rev().take(count);
        let inserts = names().map(|name| write(name, None, Some(("v1", r#"{"n":1}"#))));
        let wrote = store.write_contents(&things(), inserts.collect()).await.unwrap();
        assert!(count > 1 || wrote == [Wrote::Written]);
        let wrote: Vec<_> = wrote.iter().filter(|wrote| **wrote != Wrote::Written).collect();
        assert!(wrote.len() <= 1, "{wrote:?}");
        let updates = names().map(|name| write(name, Some("v1"), Some(("v2", r#"{"n":1}"#))));
        store.write_contents(&things(), updates.collect()).await.unwrap();
        let operations = names()
            .map(|name| (id(name), operation(u64::try_from(count).unwrap()).increment("n", 1).unwrap()));
        let operated = store.operate(&things(), operations.collect()).await.unwrap();
        assert_eq!(operated, vec![Operated::Applied; count]);
    }
    // Six commands, plus one query for each of the two refused writes: the existing document and
    // the changed guard.
    assert_eq!(commands(&server).await - before, 8);
}

/// Replies get lost: a repeated request is not carried out twice.
#[tokio::test]
async fn what_is_repeated_is_done_once() {
    let server = Server::replica_set(1).await.unwrap();
    let others = Mongo::connect(server.url()).await.unwrap();
    let proxy = Proxy::to(server.port(0).unwrap()).await;
    let things = versioned(&Mongo::connect(proxy.url()).await.unwrap()).await;
    let first = inserted(&things, "a", r#"{"n":0}"#).await;

    proxy.lose_replies_to("update", 2);
    let operated = soon(things.operate("a", operation(1).increment("n", 1).unwrap())).await.unwrap();
    assert_eq!(operated, Operated::AlreadyApplied);
    proxy.lose_replies_to("update", 1);
    let many: Vec<_> =
        (2..10).map(|number| (id("a"), operation(number).increment("n", 1).unwrap())).collect();
    let operated = soon(things.operate_all(many)).await.unwrap();
    assert_eq!(operated, vec![Operated::AlreadyApplied; 8]);
    assert_eq!(found(&others, "a").await.unwrap().body, json(r#"{"n":9}"#));

    let current = things.get("a").await.unwrap().unwrap();
    let WriteAnswer::Applied(five) = things.update("a", current.version, &json(r#"{"n":5}"#)).await.unwrap()
    else {
        panic!("refused")
    };
    proxy.lose_replies_to("update", 1);
    let answer = soon(things.update("a", five, &json(r#"{"n":0}"#))).await.unwrap();
    assert_eq!(answer, WriteAnswer::AlreadyApplied(first));
    proxy.lose_replies_to("update", 1);
    let counted = |body: Option<Json>| {
        let n: serde_json::Value = body.unwrap().to()?;
        Ok(Some(Json::of(&serde_json::json!({ "n": n["n"].as_i64().unwrap() + 1 }))?))
    };
    soon(things.change("a", counted)).await.unwrap();
    assert_eq!(found(&others, "a").await.unwrap().body, json(r#"{"n":1}"#));
    let version = things.get("a").await.unwrap().unwrap().version;
    proxy.lose_replies_to("delete", 1);
    assert_eq!(soon(things.delete("a", version)).await.unwrap(), WriteAnswer::AlreadyApplied(version));

    // The server does not report whether a majority has the write.
    let unheard = doc! { "writeConcernError": { "code": 64, "errmsg": "waiting for replication timed out" } };
    for (number, (command, write)) in [
        ("insert", write("b", None, Some(("v1", r#"{"n":1}"#)))),
        ("update", write("b", Some("v1"), Some(("v2", r#"{"n":2}"#)))),
        ("delete", write("b", Some("v2"), None)),
    ]
    .into_iter()
    .enumerate()
    {
        server.fail_point(failing(&[command], doc! { "times": 1 }, unheard.clone())).await.unwrap();
        let error = others.write_contents(&self::things(), [write].into()).await.unwrap_err();
        assert!(error.is_unknown(), "{command}: {error}");
        heal(&server).await;
        // The majority of one member has it a moment later.
        let expected =
            [Some("v1"), Some("v2"), None][number].map(|guard| ContentGuard::stored(guard.as_bytes()));
        let is_there = async || found(&others, "b").await.map(|stored| stored.guard) == expected;
        soon(async { while !is_there().await {} }).await;
    }
}

//! A reaction's filter selects a value of each type as MongoDB does.

#![allow(clippy::unwrap_used, reason = "a step that fails fails the test")]

mod common;

use std::collections::BTreeSet;

use bson::{Bson, Document, doc};
use common::REPLICA_SET;
use jiff::Timestamp;
use leftfold::react::{DocumentSource, ExternalCollection, Filter, ReactionStore as _, Value};
use leftfold_mongodb::Mongo;
use mongodb::Collection;

/// Returns the ids of the documents that MongoDB selects.
async fn selected(collection: &Collection<Document>, query: Document) -> BTreeSet<String> {
    let mut cursor = collection.find(query).projection(doc! { "_id": 1 }).await.unwrap();
    let mut ids = BTreeSet::new();
    while cursor.advance().await.unwrap() {
        ids.insert(id(&Bson::from(cursor.deserialize_current().unwrap()).into()));
    }
    ids
}

fn id(document: &Value) -> String {
    document.get("_id").unwrap().to_string()
}

/// Covers a value of each type on its way to a reaction's filter: from the server through the
/// store.
#[tokio::test]
async fn reactions_see_the_types_that_documents_have() {
    let store = REPLICA_SET.store(Mongo::options()).await;
    let collection = store.database().collection::<Document>("any");
    let oid = bson::oid::ObjectId::from_bytes([7; 12]);
    let values: Vec<Bson> = vec![
        Bson::Double(1.0),
        "one".into(),
        doc! { "n": 1 }.into(),
        vec![Bson::Int64(1)].into(),
        bson::Binary { subtype: bson::spec::BinarySubtype::Generic, bytes: vec![1, 2] }.into(),
        Bson::Undefined,
        oid.into(),
        true.into(),
        bson::DateTime::from_millis(1_000).into(),
        Bson::Null,
        bson::Regex { pattern: "a".try_into().unwrap(), options: "i".try_into().unwrap() }.into(),
        Bson::JavaScriptCode("1".into()),
        Bson::Symbol("one".into()),
        bson::JavaScriptCodeWithScope { code: "1".into(), scope: doc! { "n": 1 } }.into(),
        Bson::Int32(1),
        bson::Timestamp { time: 1, increment: 2 }.into(),
        Bson::Int64(1),
        Bson::Decimal128("1".parse().unwrap()),
        Bson::MinKey,
        Bson::MaxKey,
        // Objects that only look like extended JSON.
        doc! { "$date": "1970-01-01T00:00:01Z" }.into(),
        doc! { "$oid": oid.to_hex() }.into(),
        doc! { "$numberLong": "1" }.into(),
    ];
    let documents = values.iter().zip(0..).map(|(value, id)| doc! { "_id": id, "v": value.clone() });
    collection.insert_many(documents).await.unwrap();

    let on = DocumentSource::External(ExternalCollection::new("any").unwrap());
    let ids = store.page_of_ids(&on, None, 100).await.unwrap();
    let read = store.current_documents(&on, ids, usize::MAX).await.unwrap().documents;
    assert_eq!(read.len(), values.len());
    let read: Vec<_> = read.into_iter().map(|one| one.body.unwrap().value().unwrap().into_owned()).collect();
    let types = [
        "double",
        "string",
        "object",
        "array",
        "binData",
        "undefined",
        "objectId",
        "bool",
        "date",
        "null",
        "regex",
        "javascript",
        "symbol",
        "javascriptWithScope",
        "int",
        "timestamp",
        "long",
        "decimal",
        "minKey",
        "maxKey",
        "number",
    ];
    let mut filters: Vec<Document> = types.iter().map(|name| doc! { "v": { "$type": *name } }).collect();
    // Servers refuse to compare with some of the types.
    let compared =
        values.iter().filter(|value| !matches!(value, Bson::Undefined | Bson::RegularExpression(_)));
    filters.extend(compared.map(|value| doc! { "v": { "$eq": value.clone() } }));
    filters.push(doc! { "v": { "$gte": bson::DateTime::from_millis(0) } });
    let now: Timestamp = "1970-01-01T00:00:01Z".parse().unwrap();
    for query in filters {
        let filter: Filter = Value::from(Bson::from(query.clone())).to_string().parse().unwrap();
        // Compare only queries that both sides read alike: here, an object that looks like a date
        // is a date.
        if Value::from(Bson::from(query.clone())) != filter.to_query(now) {
            continue;
        }
        let there = selected(&collection, query.clone()).await;
        let here = read.iter().filter(|document| filter.matches(document, now)).map(id);
        assert_eq!(here.collect::<BTreeSet<_>>(), there, "{query}");
    }
}

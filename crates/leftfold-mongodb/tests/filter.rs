//! Filters and watched paths behave as in MongoDB: the tests compare both on documents of any
//! shape.
//!
//! `LEFTFOLD_FILTERS` sets the number of filters, `LEFTFOLD_SEED` the first seed.

#![allow(clippy::unwrap_used, reason = "a step that fails fails the test")]

mod common;
mod random;

use std::collections::BTreeSet;

use bson::{Bson, Document, doc};
use common::{REPLICA_SET, STANDALONE};
use jiff::Timestamp;
use leftfold::react::{DocumentSource, ExternalCollection, Filter, Paths, ReactionStore as _, Value};
use leftfold_mongodb::Mongo;
use leftfold_mongodb::value::{from_bson, to_bson};
use mongodb::Collection;
use random::Random;

const DOCUMENTS: i32 = 300;
/// The number of filters after which new documents are generated.
const ROUND: u64 = 1_000;

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |value| value.parse().unwrap())
}

fn document(value: &Value) -> Document {
    match to_bson(value.clone()) {
        Ok(Bson::Document(document)) => document,
        other => panic!("{value} is not a document: {other:?}"),
    }
}

/// Creates a collection of documents, and returns it with the documents as read back.
async fn collection(made: impl Iterator<Item = Value>) -> (Collection<Document>, Vec<Value>) {
    let store = STANDALONE.store(Mongo::options()).await;
    let collection = store.database().collection::<Document>("any");
    collection.insert_many(made.map(|value| document(&value))).await.unwrap();
    let documents = found(&collection, doc! {}, doc! {}).await.unwrap();
    assert_eq!(documents.len(), usize::try_from(DOCUMENTS).unwrap());
    (collection, documents)
}

async fn found(
    collection: &Collection<Document>,
    query: Document,
    projection: Document,
) -> mongodb::error::Result<Vec<Value>> {
    let mut cursor = collection.find(query).projection(projection).batch_size(1_000).await?;
    let mut found = Vec::new();
    while cursor.advance().await? {
        found.push(from_bson(cursor.deserialize_current()?.into()));
    }
    Ok(found)
}

fn id(document: &Value) -> String {
    document.get("_id").unwrap().to_string()
}

/// Returns whether the documentation of [`Filter`] lists this refusal as a difference to MongoDB.
fn documented(refused: &str) -> bool {
    [
        "a name that does not begin with $",
        "which can't be done here as MongoDB does it",
        "a regular expression: ",
        "the options i, m, s and x",
        "options in one place",
    ]
    .iter()
    .any(|reason| refused.contains(reason))
}

/// The results of the comparisons.
#[derive(Default)]
struct Tally {
    compared: usize,
    selected: usize,
    refused: usize,
    different: usize,
}

impl Tally {
    async fn ask(
        &mut self,
        source: &Value,
        collection: &Collection<Document>,
        documents: &[Value],
        seed: u64,
    ) {
        let now: Timestamp = "1970-01-01T00:00:01Z".parse().unwrap();
        let parsed: Result<Filter, _> = source.to_string().parse();
        let query = match &parsed {
            Ok(filter) => filter.to_query(now),
            Err(_) => source.clone(),
        };
        let there = found(collection, document(&query), doc! { "_id": 1 }).await;
        let difference = match (parsed, there) {
            (Ok(filter), Ok(there)) => {
                self.compared += 1;
                self.selected += usize::from(!there.is_empty());
                let there: BTreeSet<_> = there.iter().map(id).collect();
                let other =
                    |document: &&Value| filter.matches(document, now) != there.contains(&id(document));
                documents.iter().find(other).map(|document| {
                    let here = filter.matches(document, now);
                    format!("on {document}\n here {here}, there {}", !here)
                })
            }
            (Err(_), Err(_)) => None,
            (Err(here), Ok(_)) => {
                self.refused += 1;
                let here = here.to_string();
                (!documented(&here)).then(|| format!("refused here: {here}"))
            }
            (Ok(_), Err(there)) => {
                Some(format!("refused there: {}", there.to_string().chars().take(200).collect::<String>()))
            }
        };
        if let Some(difference) = difference {
            self.different += 1;
            eprintln!("seed {seed}: {source}\n {difference}");
        }
    }

    fn check(&self) {
        let Self { compared, selected, refused, different } = self;
        eprintln!(
            "{compared} filters compared, {selected} of them select something; {refused} refused only here"
        );
        assert_eq!(*different, 0, "filters on which they differ; they are above, with their seeds");
        assert!(selected * 3 > *compared, "too few select anything");
    }
}

#[tokio::test]
async fn filters_select_what_mongodb_selects() {
    let (count, mut seed) = (setting("LEFTFOLD_FILTERS", 3_000), setting("LEFTFOLD_SEED", 1));
    let mut tally = Tally::default();
    for _ in 0..count.div_ceil(ROUND) {
        let mut random = Random::new(seed);
        let (collection, documents) = collection((0..DOCUMENTS).map(|id| random.document(id))).await;
        for _ in 0..ROUND {
            tally.ask(&random.filter(&documents), &collection, &documents, seed).await;
        }
        seed += 1;
    }
    tally.check();
}

#[tokio::test]
async fn patterns_match_what_mongodb_matches() {
    let (count, seed) = (setting("LEFTFOLD_FILTERS", 3_000), setting("LEFTFOLD_SEED", 1));
    let mut random = Random::new(seed);
    let text = |id| {
        let text = Value::String(random.characters());
        Value::Object(vec![("_id".into(), Value::Int32(id)), ("text".into(), text)])
    };
    let (collection, documents) = collection((0..DOCUMENTS).map(text)).await;
    let mut tally = Tally::default();
    for _ in 0..count {
        let source = Value::Object(vec![("text".into(), random.regex())]);
        tally.ask(&source, &collection, &documents, seed).await;
    }
    tally.check();
}

#[tokio::test]
async fn watched_paths_give_what_mongodb_projects() {
    let seed = setting("LEFTFOLD_SEED", 1);
    let mut random = Random::new(seed);
    let (collection, documents) = collection((0..DOCUMENTS).map(|id| random.document(id))).await;
    let mut compared = 0;
    for _ in 0..300 {
        let count = 1 + random.below(3);
        let list: Vec<_> =
            (0..count).map(|_| random.path()).chain(std::iter::once("_id".to_owned())).collect();
        let projection: Document = list.iter().map(|path| (path.clone(), Bson::Int32(1))).collect();
        let there = found(&collection, doc! {}, projection.clone()).await;
        let paths = match (Paths::new(list.clone()), there) {
            (Ok(paths), Ok(there)) => Some((paths, there)),
            (Err(_), Err(_)) => None,
            // A projection document can have each path only once.
            (Err(_), Ok(_)) if projection.len() < list.len() => None,
            (here, there) => panic!("seed {seed}: {list:?}: here {here:?}, MongoDB {there:?}"),
        };
        let Some((paths, there)) = paths else { continue };
        for (document, there) in documents.iter().zip(there) {
            let here = paths.values(document);
            assert_eq!(here.to_string(), there.to_string(), "seed {seed}: {list:?} of {document}");
            compared += 1;
        }
    }
    eprintln!("{compared} projections compared");
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

    let on = DocumentSource::Plain(ExternalCollection::new("any").unwrap());
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
        let filter: Filter = from_bson(query.clone().into()).to_string().parse().unwrap();
        // Compare only queries that both sides read alike: here, an object that looks like a date
        // is a date.
        if from_bson(query.clone().into()) != filter.to_query(now) {
            continue;
        }
        let there = found(&collection, query.clone(), doc! { "_id": 1 }).await.unwrap();
        let there: BTreeSet<_> = there.iter().map(id).collect();
        let here = read.iter().filter(|document| filter.matches(document, now)).map(id);
        assert_eq!(here.collect::<BTreeSet<_>>(), there, "{query}");
    }
}

//! Filters and watched paths behave as in MongoDB: the tests compare both on documents of any
//! shape.
//!
//! `LEFTFOLD_FILTERS` sets the number of filters, `LEFTFOLD_SEED` the first seed.

#![allow(clippy::unwrap_used, reason = "a step that fails fails the test")]

mod random;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU32, Ordering};

use bson::{Bson, Document, doc};
use jiff::Timestamp;
use leftfold_filter::{Filter, Paths, Value};
use leftfold_testbed::mongodb::Server;
use mongodb::{Client, Collection};
use random::Random;
use tokio::sync::OnceCell;

const DOCUMENTS: i32 = 300;
/// The number of filters after which new documents are generated.
const ROUND: u64 = 1_000;

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |value| value.parse().unwrap())
}

fn document(value: &Value) -> Document {
    match value.clone().try_into() {
        Ok(Bson::Document(document)) => document,
        other => panic!("{value} is not a document: {other:?}"),
    }
}

/// Creates a collection of documents, and returns it with the documents as read back.
async fn collection(made: impl Iterator<Item = Value>) -> (Collection<Document>, Vec<Value>) {
    static SERVER: OnceCell<Server> = OnceCell::const_new();
    static NEXT: AtomicU32 = AtomicU32::new(1);
    let server = SERVER.get_or_init(async || Server::standalone().await.unwrap()).await;
    let client = Client::with_uri_str(server.url()).await.unwrap();
    let name = format!("test_{}", NEXT.fetch_add(1, Ordering::Relaxed));
    let collection = client.database(&name).collection::<Document>("any");
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
        found.push(Bson::from(cursor.deserialize_current()?).into());
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
        "which matches differently in MongoDB",
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

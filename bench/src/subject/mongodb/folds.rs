//! Hand-written folds of carts.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use bson::{RawDocument, RawDocumentBuf, doc};
use mongodb::{Collection, Database};
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;

use super::Databases;
use crate::carts::{Cart, fold};
use crate::report::Result;
use crate::subject::OneByOne;

pub(super) async fn raw_catch_up(databases: &Databases, place: &str) -> Result<Duration> {
    let database = databases.database(place);
    let begun = Instant::now();
    let mut carts: HashMap<String, Cart> = HashMap::new();
    let mut events = events(&database).find(doc! {}).sort(doc! { "_id": 1 }).await?;
    while events.advance().await? {
        let event = Stored::of(events.current())?;
        match fold(carts.remove(event.stream), event.kind, event.data, event.time)? {
            Some(cart) => carts.insert(event.stream.to_owned(), cart),
            None => None,
        };
    }
    let rows = carts.into_iter().map(|(id, cart)| Row { id, revision: 0, cart: Some(cart) });
    let rows: Vec<_> = rows.collect();
    database.collection::<Row>("raw_carts").insert_many(rows).ordered(false).await?;
    Ok(begun.elapsed())
}

pub(super) async fn one_by_one(databases: &Databases, place: &str, mode: &OneByOne) -> Result<Duration> {
    let database = databases.database(place);
    let limit = i64::try_from(mode.events)?;
    let mut found = events(&database).find(doc! {}).sort(doc! { "_id": 1 }).limit(limit).await?;
    // A cart's events stay in one queue, so they are folded in order.
    let mut queues: Vec<Vec<RawDocumentBuf>> = (0..mode.at_once).map(|_| Vec::new()).collect();
    let mut queue_of: HashMap<String, usize> = HashMap::new();
    while found.advance().await? {
        let event = found.current();
        let next = queue_of.len() % mode.at_once;
        let queue = *queue_of.entry(event.get_str("stream")?.to_owned()).or_insert(next);
        queues[queue].push(event.to_owned());
    }
    let carts = database.collection::<Row>(&format!("guarded_carts_{}", mode.at_once));
    let begun = Instant::now();
    let mut tasks: JoinSet<Result<()>> = JoinSet::new();
    for queue in queues {
        let carts = carts.clone();
        tasks.spawn(async move {
            for event in &queue {
                fold_one(&carts, &Stored::of(event)?).await?;
            }
            Ok(())
        });
    }
    while let Some(done) = tasks.join_next().await {
        done??;
    }
    Ok(begun.elapsed())
}

/// A cart as hand-written code stores it.
#[derive(Serialize, Deserialize)]
struct Row {
    #[serde(rename = "_id")]
    id: String,
    revision: i64,
    cart: Option<Cart>,
}

/// Folds an event into its cart, unless the cart already has it.
async fn fold_one(carts: &Collection<Row>, event: &Stored<'_>) -> Result<()> {
    let found = carts.find_one(doc! { "_id": event.stream }).await?;
    let seen = found.as_ref().map_or(0, |row| row.revision);
    if event.revision != seen + 1 {
        return Ok(());
    }
    let cart = fold(found.and_then(|row| row.cart), event.kind, event.data, event.time)?;
    let row = Row { id: event.stream.to_owned(), revision: event.revision, cart };
    if seen == 0 {
        carts.insert_one(row).await?;
    } else {
        let guard = doc! { "_id": event.stream, "revision": seen };
        let replaced = carts.replace_one(guard, row).await?;
        if replaced.matched_count == 0 {
            return Err("the cart changed between its read and its write".into());
        }
    }
    Ok(())
}

/// The parts of an event in Leftfold's log that a fold needs.
struct Stored<'a> {
    stream: &'a str,
    revision: i64,
    kind: &'a str,
    data: &'a str,
    time: i64,
}

impl<'a> Stored<'a> {
    fn of(event: &'a RawDocument) -> Result<Self> {
        Ok(Self {
            stream: event.get_str("stream")?,
            revision: event.get_i64("revision")?,
            kind: event.get_str("type")?,
            data: event.get_str("data")?,
            time: event.get_datetime("time")?.timestamp_millis(),
        })
    }
}

fn events(database: &Database) -> Collection<RawDocumentBuf> {
    database.collection("leftfold.events")
}

//! Plain writes, and the time until a change stream shows them.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bson::{Document, doc};
use mongodb::IndexModel;
use mongodb::options::IndexOptions;
use tokio::sync::Mutex;
use tokio::task::JoinSet;
use tokio::time::interval;

use super::Databases;
use crate::append::CALLERS;
use crate::report::{Result, float};
use crate::subject::DATA;
use crate::writes::{DOCUMENTS, Product, WriteKind, WriteMode, id};

/// The number of events that each caller inserts.
const INSERTED: u64 = 150;

pub(super) async fn inserts(databases: &Databases, place: &str) -> Result<f64> {
    let database = databases.database(place);
    let plain = database.collection::<Document>("raw_events");
    // Every log needs these indexes to store an event only once.
    let unique = |keys: Document| {
        IndexModel::builder().keys(keys).options(IndexOptions::builder().unique(true).build()).build()
    };
    plain.create_indexes([unique(doc! { "stream": 1, "revision": 1 }), unique(doc! { "id": 1 })]).await?;
    let next = Arc::new(AtomicU64::new(0));
    let begun = Instant::now();
    let mut tasks: JoinSet<Result<()>> = JoinSet::new();
    for _ in 0..CALLERS {
        let (plain, next) = (plain.clone(), next.clone());
        tasks.spawn(async move {
            for _ in 0..INSERTED {
                let stream = format!("cart-{:07}", next.fetch_add(1, Ordering::Relaxed));
                plain.insert_one(event(&stream)).await?;
            }
            Ok(())
        });
    }
    while let Some(done) = tasks.join_next().await {
        done??;
    }
    Ok(float(CALLERS * INSERTED) / begun.elapsed().as_secs_f64())
}

pub(super) async fn plain_writes(databases: &Databases, place: &str, mode: WriteMode) -> Result<f64> {
    let database = databases.database(place);
    let products = database.collection::<Document>("products");
    let product = |number, round| -> Result<Document> {
        let mut product = bson::serialize_to_document(&Product::new(number, round))?;
        product.insert("_id", id(number));
        Ok(product)
    };
    products
        .insert_many((0..DOCUMENTS).map(|number| product(number, 0)).collect::<Result<Vec<_>>>()?)
        .await?;
    let sale = doc! { "$inc": { "stock": -1 } };
    let begun = Instant::now();
    for (round, numbers) in mode.batches() {
        match (mode.kind, &numbers[..]) {
            (WriteKind::Content, &[number]) => {
                products.replace_one(doc! { "_id": id(number) }, product(number, round)?).await?;
            }
            (WriteKind::Operation, &[number]) => {
                products.update_one(doc! { "_id": id(number) }, sale.clone()).await?;
            }
            (kind, many) => {
                let updates = many.iter().map(|number| {
                    let update = match kind {
                        WriteKind::Content => product(*number, round)?,
                        WriteKind::Operation => sale.clone(),
                    };
                    Ok(doc! { "q": { "_id": id(*number) }, "u": update })
                });
                let updates = updates.collect::<Result<Vec<_>>>()?;
                let concern = doc! { "w": "majority", "j": true };
                let command = doc! { "update": "products", "updates": updates, "ordered": false, "writeConcern": concern };
                database.run_command(command).await?;
            }
        }
    }
    Ok(mode.per_second(begun))
}

pub(super) async fn bare_latencies(
    databases: &Databases,
    place: &str,
    events: usize,
    every: Duration,
) -> Result<Vec<f64>> {
    let plain = databases.database(place).collection::<Document>("raw_events");
    plain.insert_one(event("the first")).await?;
    let mut changes = plain.watch().await?;
    let begun = Arc::new(Mutex::new(HashMap::new()));
    let mut inserts: JoinSet<Result<()>> = JoinSet::new();
    let mut tick = interval(every);
    let insert = async {
        for number in 0..events {
            tick.tick().await;
            let (plain, begun) = (plain.clone(), begun.clone());
            inserts.spawn(async move {
                let stream = format!("cart-{number:07}");
                begun.lock().await.insert(stream.clone(), Instant::now());
                plain.insert_one(event(&stream)).await?;
                Ok(())
            });
        }
        while let Some(done) = inserts.join_next().await {
            done??;
        }
        Ok(())
    };
    let see = async {
        let mut took = Vec::with_capacity(events);
        while took.len() < events {
            let Some(change) = changes.next_if_any().await? else { continue };
            let seen = Instant::now();
            let inserted = change.full_document.ok_or("a change event has no document")?;
            let begun = begun.lock().await.remove(inserted.get_str("stream")?);
            took.extend(begun.map(|begun| seen.duration_since(begun).as_secs_f64()));
        }
        Ok(took)
    };
    let (inserted, took): (Result<()>, Result<Vec<f64>>) = tokio::join!(insert, see);
    inserted?;
    took
}

/// Returns an event as a plain document.
fn event(stream: &str) -> Document {
    doc! {
        "stream": stream,
        "revision": 1_i64,
        "id": format!("{stream}-1"),
        "type": "product-item-added",
        "time": bson::DateTime::now(),
        "data": DATA,
    }
}

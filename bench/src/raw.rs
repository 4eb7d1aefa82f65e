//! The references: what one would write by hand, with plain rusqlite on one thread.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::time::{Duration, Instant};

use rusqlite::{Connection, params};
use serde::{Deserialize, Serialize};

use crate::report::Result;

/// A cart, by hand.
#[derive(Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Cart {
    client_id: String,
    status: String,
    items: BTreeMap<String, Item>,
    total: u64,
    confirmed_at: Option<i64>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Item {
    name: String,
    quantity: u32,
    unit_price: u32,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Opened {
    client_id: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Added {
    product_id: String,
    name: String,
    quantity: u32,
    unit_price: u32,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Removed {
    product_id: String,
    quantity: u32,
}

fn fold(cart: Option<Cart>, kind: &str, data: &str, time: i64) -> Result<Option<Cart>> {
    if kind == "shopping-cart-opened" {
        let Opened { client_id } = serde_json::from_str(data)?;
        return Ok(Some(Cart { client_id, status: "open".to_owned(), ..Cart::default() }));
    }
    let Some(mut cart) = cart else { return Ok(None) };
    match kind {
        "product-item-added" => {
            let Added { product_id, name, quantity, unit_price } = serde_json::from_str(data)?;
            let item = cart.items.entry(product_id).or_insert(Item { name, quantity: 0, unit_price });
            item.quantity += quantity;
            item.unit_price = unit_price;
        }
        "product-item-removed" => {
            let Removed { product_id, quantity } = serde_json::from_str(data)?;
            if let Some(item) = cart.items.get_mut(&product_id) {
                item.quantity = item.quantity.saturating_sub(quantity);
                if item.quantity == 0 {
                    cart.items.remove(&product_id);
                }
            }
        }
        "shopping-cart-confirmed" => {
            cart.status = "confirmed".to_owned();
            cart.confirmed_at = Some(time);
        }
        _ => return Ok(None),
    }
    cart.total = cart.items.values().map(|item| u64::from(item.quantity) * u64::from(item.unit_price)).sum();
    Ok(Some(cart))
}

pub(crate) fn open(file: &Path) -> Result<Connection> {
    let connection = Connection::open(file)?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    Ok(connection)
}

/// Reads all events, parses them, folds them in a hash map, and writes the final documents in one transaction.
pub(crate) fn catch_up(file: &Path) -> Result<Duration> {
    let mut connection = open(file)?;
    connection.execute_batch("CREATE TABLE raw_carts (id TEXT PRIMARY KEY NOT NULL, body TEXT NOT NULL)")?;
    let begun = Instant::now();
    let mut carts: HashMap<String, Cart> = HashMap::new();
    {
        let mut statement =
            connection.prepare("SELECT stream, kind, data, time FROM leftfold_events ORDER BY position")?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let (stream, kind, data) =
                (row.get_ref(0)?.as_str()?, row.get_ref(1)?.as_str()?, row.get_ref(2)?.as_str()?);
            let time = row.get(3)?;
            match fold(carts.remove(stream), kind, data, time)? {
                Some(cart) => carts.insert(stream.to_owned(), cart),
                None => None,
            };
        }
    }
    let transaction = connection.transaction()?;
    {
        let mut upsert = transaction.prepare(
            "INSERT INTO raw_carts VALUES (?1, ?2) ON CONFLICT (id) DO UPDATE SET body = excluded.body",
        )?;
        for (id, cart) in &carts {
            upsert.execute(params![id, serde_json::to_string(cart)?])?;
        }
    }
    transaction.commit()?;
    Ok(begun.elapsed())
}

/// The pattern of the articles: for each event read its document, check the revision, write it guarded by that, in a
/// transaction of its own.
pub(crate) fn per_event(file: &Path, events: usize) -> Result<Duration> {
    let mut connection = open(file)?;
    connection.execute_batch(
        "CREATE TABLE guarded_carts (id TEXT PRIMARY KEY NOT NULL, revision INTEGER NOT NULL, body TEXT)",
    )?;
    let taken: Vec<(String, i64, String, String, i64)> = connection
        .prepare("SELECT stream, revision, kind, data, time FROM leftfold_events ORDER BY position LIMIT ?1")?
        .query_map([i64::try_from(events)?], |row| {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?))
        })?
        .collect::<Result<_, _>>()?;
    let begun = Instant::now();
    for (stream, revision, kind, data, time) in &taken {
        let transaction = connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
        {
            let mut read =
                transaction.prepare_cached("SELECT revision, body FROM guarded_carts WHERE id = ?1")?;
            let found: Option<(i64, Option<String>)> =
                match read.query_row([stream], |row| Ok((row.get(0)?, row.get(1)?))) {
                    Ok(found) => Some(found),
                    Err(rusqlite::Error::QueryReturnedNoRows) => None,
                    Err(error) => return Err(error.into()),
                };
            let seen = found.as_ref().map_or(0, |(revision, _)| *revision);
            if *revision == seen + 1 {
                let cart =
                    found.and_then(|(_, body)| body).map(|body| serde_json::from_str(&body)).transpose()?;
                let body =
                    fold(cart, kind, data, *time)?.map(|cart| serde_json::to_string(&cart)).transpose()?;
                transaction
                    .prepare_cached(
                        "INSERT INTO guarded_carts VALUES (?1, ?2, ?3) ON CONFLICT (id) DO UPDATE \
                         SET revision = excluded.revision, body = excluded.body WHERE revision = ?4",
                    )?
                    .execute(params![stream, revision, body, seen])?;
            }
        }
        transaction.commit()?;
    }
    Ok(begun.elapsed())
}

/// Inserts events one by one, each in a commit of its own; how long each took, in seconds.
pub(crate) fn append_one_by_one(file: &Path, events: usize) -> Result<Vec<f64>> {
    let connection = open(file)?;
    connection.execute_batch(
        "CREATE TABLE IF NOT EXISTS raw_events (position INTEGER PRIMARY KEY, stream TEXT NOT NULL, \
         revision INTEGER NOT NULL, id TEXT NOT NULL UNIQUE, kind TEXT NOT NULL, time INTEGER NOT NULL, \
         data TEXT NOT NULL, UNIQUE (stream, revision))",
    )?;
    let mut took = Vec::with_capacity(events);
    let mut insert = connection.prepare("INSERT INTO raw_events VALUES (NULL, ?1, 1, ?2, ?3, ?4, ?5)")?;
    let data = r#"{"productId":"shoes","name":"Shoes","quantity":2,"unitPrice":4900}"#;
    for number in 0..events {
        let stream = format!("cart-{number:07}");
        let begun = Instant::now();
        insert.execute(params![
            stream,
            format!("{stream}-1"),
            "product-item-added",
            1_767_225_600_000_000_i64,
            data
        ])?;
        took.push(begun.elapsed().as_secs_f64());
    }
    Ok(took)
}

//! SQLite, and hand-written code: plain rusqlite on one thread.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use leftfold_sqlite::Sqlite;
use rusqlite::{Connection, params};

use super::{DATA, Inserts, OneByOne, Subject};
use crate::carts::{Cart, fold};
use crate::fold::Part;
use crate::report::{Result, float};
use crate::writes::{DOCUMENTS, Product, WriteKind, WriteMode, id};

/// Files in a directory.
pub(crate) struct Files {
    pub(crate) directory: PathBuf,
}

/// The number of events inserted one by one.
const INSERTED: usize = 4_000;

impl Files {
    fn file(&self, place: &str) -> PathBuf {
        self.directory.join(format!("{place}.db"))
    }
}

impl Subject for Files {
    type Store = Sqlite;

    const PARTS: &[Part] = &[Part::CatchUp, Part::PerEvent, Part::Append, Part::Latency, Part::Growth];
    const EVENTS: u64 = 1_000_000;
    const RAW_GOAL: f64 = 0.6;
    const ONE_BY_ONE: &[OneByOne] =
        &[OneByOne { name: "one transaction per event", at_once: 1, events: 3_000, goal: 50.0 }];
    const INSERTS: Inserts =
        Inserts { name: "plain inserts, one commit each", goal: None, alone_goal: Some(20.0) };
    const BARE: &str = "a bare commit";
    const IS_SHARED: bool = false;

    fn argument(&self, place: &str) -> String {
        self.file(place).display().to_string()
    }

    async fn open(&self, place: &str) -> Result<Sqlite> {
        Ok(Sqlite::open(self.file(place)).await?)
    }

    async fn close(&self, store: Sqlite) {
        store.close().await;
    }

    async fn unfolded(&self, prepared: &str) -> Result<String> {
        let copied = format!("{prepared}-copy");
        let (from, to) = (self.argument(prepared), self.argument(&copied));
        self.remove(&copied).await?;
        for end in ENDS {
            let from = format!("{from}{end}");
            if Path::new(&from).exists() {
                std::fs::copy(from, format!("{to}{end}"))?;
            }
        }
        Ok(copied)
    }

    async fn remove(&self, place: &str) -> Result<()> {
        for end in ENDS {
            let path = format!("{}{end}", self.argument(place));
            if Path::new(&path).exists() {
                std::fs::remove_file(path)?;
            }
        }
        Ok(())
    }

    async fn raw_catch_up(&self, place: &str) -> Result<Duration> {
        catch_up(&self.file(place))
    }

    async fn one_by_one(&self, place: &str, mode: &OneByOne) -> Result<Duration> {
        per_event(&self.file(place), mode.events)
    }

    async fn inserts(&self, place: &str) -> Result<f64> {
        let took: f64 = append_one_by_one(&self.file(place), INSERTED)?.iter().sum();
        Ok(float(INSERTED as u64) / took)
    }

    async fn plain_writes(&self, place: &str, mode: WriteMode) -> Result<f64> {
        write(&self.file(place), mode)
    }

    async fn bare_latencies(&self, place: &str, events: usize, _: Duration) -> Result<Vec<f64>> {
        append_one_by_one(&self.file(place), events)
    }
}

/// The suffixes of a database's files.
const ENDS: [&str; 3] = ["", "-wal", "-shm"];

fn open(file: &Path) -> Result<Connection> {
    let connection = Connection::open(file)?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    Ok(connection)
}

/// Reads and parses all events, folds them in a hash map, and writes the final documents in one
/// transaction.
fn catch_up(file: &Path) -> Result<Duration> {
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

/// Folds as articles suggest: for each event, reads the document, checks the revision and does a
/// guarded write, in one transaction per event.
fn per_event(file: &Path, events: usize) -> Result<Duration> {
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

/// Writes documents, `at_once` per transaction.
fn write(file: &Path, mode: WriteMode) -> Result<f64> {
    let mut connection = open(file)?;
    connection
        .execute_batch("CREATE TABLE products (id TEXT PRIMARY KEY NOT NULL, body TEXT NOT NULL) STRICT")?;
    let transaction = connection.transaction()?;
    for number in 0..DOCUMENTS {
        let body = serde_json::to_string(&Product::new(number, 0))?;
        transaction
            .prepare_cached("INSERT INTO products VALUES (?1, ?2)")?
            .execute(params![id(number), body])?;
    }
    transaction.commit()?;
    let begun = Instant::now();
    for (round, numbers) in mode.batches() {
        let transaction = connection.transaction()?;
        for number in numbers {
            match mode.kind {
                WriteKind::Content => transaction
                    .prepare_cached("UPDATE products SET body = ?2 WHERE id = ?1")?
                    .execute(params![id(number), serde_json::to_string(&Product::new(number, round))?])?,
                WriteKind::Operation => transaction
                    .prepare_cached(
                        "UPDATE products SET body = json_set(body, '$.stock', body ->> '$.stock' - 1) WHERE id = ?1",
                    )?
                    .execute([id(number)])?,
            };
        }
        transaction.commit()?;
    }
    Ok(mode.per_second(begun))
}

/// Inserts events one by one, each in its own commit. Returns the seconds that each took.
fn append_one_by_one(file: &Path, events: usize) -> Result<Vec<f64>> {
    let connection = open(file)?;
    connection.execute_batch(
        "CREATE TABLE IF NOT EXISTS raw_events (position INTEGER PRIMARY KEY, stream TEXT NOT NULL, \
         revision INTEGER NOT NULL, id TEXT NOT NULL UNIQUE, kind TEXT NOT NULL, time INTEGER NOT NULL, \
         data TEXT NOT NULL, UNIQUE (stream, revision))",
    )?;
    let mut took = Vec::with_capacity(events);
    let mut insert = connection.prepare("INSERT INTO raw_events VALUES (NULL, ?1, 1, ?2, ?3, ?4, ?5)")?;
    for number in 0..events {
        let stream = format!("cart-{number:07}");
        let begun = Instant::now();
        insert.execute(params![
            stream,
            format!("{stream}-1"),
            "product-item-added",
            1_767_225_600_000_000_i64,
            DATA
        ])?;
        took.push(begun.elapsed().as_secs_f64());
    }
    Ok(took)
}

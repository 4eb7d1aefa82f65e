//! MongoDB, and hand-written code with the plain driver.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bson::{Document, RawDocument, RawDocumentBuf, doc};
use leftfold_mongodb::Mongo;
use leftfold_testbed::mongodb::Server;
use mongodb::options::{DatabaseOptions, IndexOptions, ReadConcern, WriteConcern};
use mongodb::{Client, Collection, Database, IndexModel};
use serde::{Deserialize, Serialize};
use tokio::sync::Mutex;
use tokio::task::JoinSet;
use tokio::time::interval;

use super::{DATA, Inserts, OneByOne, Subject};
use crate::append::CALLERS;
use crate::carts::{Cart, fold};
use crate::report::{Figure, Result, float};
use crate::writes::{DOCUMENTS, Product, Way, What, id};
use crate::{Part, traffic};

/// The databases of one server. All their names begin with `leftfold_bench_`.
pub(crate) struct Databases {
    url: String,
    client: Client,
    /// The private server, if there is one.
    _server: Option<Server>,
}

/// The number of events that each caller inserts.
const INSERTED: u64 = 150;

impl Databases {
    /// Starts a private server.
    pub(crate) async fn private() -> Result<Self> {
        let server = Server::replica_set(1).await?;
        let databases = Self::at(&server.url()).await?;
        Ok(Self { _server: Some(server), ..databases })
    }

    /// Connects to the server with this URL and ignores the database that it names.
    pub(crate) async fn at(url: &str) -> Result<Self> {
        Ok(Self { url: url.to_owned(), client: Client::with_uri_str(url).await?, _server: None })
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// Returns the database of a place, with the write and read concerns that Leftfold uses.
    pub(crate) fn database(&self, place: &str) -> Database {
        let mut durable = WriteConcern::majority();
        durable.journal = Some(true);
        let mut options = DatabaseOptions::default();
        options.write_concern = Some(durable);
        options.read_concern = Some(ReadConcern::majority());
        self.client.database_with_options(&name(place), options)
    }
}

fn name(place: &str) -> String {
    format!("leftfold_bench_{place}")
}

impl Subject for Databases {
    type Store = Mongo;

    const PARTS: &[Part] = &[Part::CatchUp, Part::PerEvent, Part::Append, Part::Latency, Part::Traffic];
    const EVENTS: u64 = 200_000;
    const RAW_GOAL: f64 = 0.5;
    const ONE_BY_ONE: &[OneByOne] = &[
        OneByOne { name: "one guarded update per event", at_once: 1, events: 1_500, goal: 100.0 },
        OneByOne { name: "the same, 64 carts in parallel", at_once: 64, events: 10_000, goal: 50.0 },
    ];
    const INSERTS: Inserts =
        Inserts { name: "plain inserts of as many callers", goal: Some(3.0), alone_goal: None };
    const BARE: &str = "a bare change stream";
    const IS_SHARED: bool = true;

    fn argument(&self, place: &str) -> String {
        let (base, options) = self.url.split_once('?').unwrap_or((&self.url, ""));
        let (scheme, rest) = base.split_once("://").unwrap_or(("mongodb", base));
        let hosts = rest.split_once('/').map_or(rest, |(hosts, _)| hosts);
        format!("{scheme}://{hosts}/{}?{options}", name(place))
    }

    async fn open(&self, place: &str) -> Result<Mongo> {
        Ok(Mongo::connect(self.argument(place)).await?)
    }

    async fn close(&self, _: Mongo) {}

    async fn unfolded(&self, prepared: &str) -> Result<String> {
        const LOG: [&str; 3] = ["leftfold.events", "leftfold.heads", "leftfold.meta"];
        let database = self.database(prepared);
        for name in database.list_collection_names().await? {
            if !LOG.contains(&name.as_str()) && !name.starts_with("system.") {
                database.collection::<Document>(&name).drop().await?;
            }
        }
        Ok(prepared.to_owned())
    }

    async fn remove(&self, place: &str) -> Result<()> {
        Ok(self.database(place).drop().await?)
    }

    async fn raw_catch_up(&self, place: &str) -> Result<Duration> {
        let database = self.database(place);
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

    async fn one_by_one(&self, place: &str, way: &OneByOne) -> Result<Duration> {
        let database = self.database(place);
        let limit = i64::try_from(way.events)?;
        let mut found = events(&database).find(doc! {}).sort(doc! { "_id": 1 }).limit(limit).await?;
        // A cart's events stay in one queue, so they are folded in order.
        let mut queues: Vec<Vec<RawDocumentBuf>> = (0..way.at_once).map(|_| Vec::new()).collect();
        let mut queue_of: HashMap<String, usize> = HashMap::new();
        while found.advance().await? {
            let event = found.current();
            let next = queue_of.len() % way.at_once;
            let queue = *queue_of.entry(event.get_str("stream")?.to_owned()).or_insert(next);
            queues[queue].push(event.to_owned());
        }
        let carts = database.collection::<Row>(&format!("guarded_carts_{}", way.at_once));
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

    async fn inserts(&self, place: &str) -> Result<f64> {
        let database = self.database(place);
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

    async fn plain_writes(&self, place: &str, way: Way) -> Result<f64> {
        let database = self.database(place);
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
        for (round, numbers) in way.batches() {
            match (way.what, &numbers[..]) {
                (What::Content, &[number]) => {
                    products.replace_one(doc! { "_id": id(number) }, product(number, round)?).await?;
                }
                (What::Operation, &[number]) => {
                    products.update_one(doc! { "_id": id(number) }, sale.clone()).await?;
                }
                (what, many) => {
                    let updates = many.iter().map(|number| {
                        let update = match what {
                            What::Content => product(*number, round)?,
                            What::Operation => sale.clone(),
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
        Ok(way.per_second(begun))
    }

    async fn bare_latencies(&self, place: &str, events: usize, every: Duration) -> Result<Vec<f64>> {
        let plain = self.database(place).collection::<Document>("raw_events");
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
                let inserted = change.full_document.ok_or("an insert without its document")?;
                let begun = begun.lock().await.remove(inserted.get_str("stream")?);
                took.extend(begun.map(|begun| seen.duration_since(begun).as_secs_f64()));
            }
            Ok(took)
        };
        let (inserted, took): (Result<()>, Result<Vec<f64>>) = tokio::join!(insert, see);
        inserted?;
        took
    }

    async fn traffic(&self) -> Result<Vec<Figure>> {
        traffic::measure(self).await
    }
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
            return Err("somebody else changed the cart".into());
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

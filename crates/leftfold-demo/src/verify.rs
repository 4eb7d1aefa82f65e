//! The check: folds the log again with separate code, and compares every document.
//!
//! **Invariant**: nothing here is shared with the projections or with the engine. The check reads
//! the log, parses its JSON by hand, and sums up each read model in maps.

use std::collections::{BTreeMap, BTreeSet};

use leftfold::inspect::doctor::Examine;
use leftfold::log::Limit;
use leftfold::{Collection, Documents, Event, Log, Partition, Position};
use leftfold_terminal::{Exit, Failure};
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::shop::COLLECTIONS;

/// The maximum number of differences to show.
const SHOWN: usize = 10;

/// The result of the check.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Verdict {
    /// `true` if the store has exactly the expected documents, with the expected content.
    pub(crate) equal: bool,
    /// Events in the log.
    pub(crate) events: u64,
    /// Expected documents by read model.
    pub(crate) documents: BTreeMap<&'static str, u64>,
    /// The number of wrong documents.
    pub(crate) differing: u64,
    /// The first differences.
    pub(crate) differences: Vec<Difference>,
}

/// A document that differs from the expected one.
#[derive(Debug, Serialize)]
pub(crate) struct Difference {
    pub(crate) collection: &'static str,
    pub(crate) id: String,
    pub(crate) stored: Option<Value>,
    pub(crate) expected: Option<Value>,
}

pub(crate) async fn verify<S: Log + Documents + Examine>(store: &S) -> Result<Verdict, Failure> {
    let mut shop = Shop::default();
    let mut events = 0;
    for partition in (0..store.partitions()).map(Partition) {
        let mut after = Position(0);
        loop {
            let page = store.read(partition, after, Limit::default()).await?;
            for event in &page.events {
                let foreign = || {
                    let message = format!(
                        "checking revision {} of {}: the demo does not append such an event; \
                         check a store that only the demo has written to",
                        event.revision, event.stream
                    );
                    Failure::new(Exit::No, message)
                };
                shop.take(event).ok_or_else(foreign)?;
                events += 1;
            }
            if page.through == after {
                break;
            }
            after = page.through;
        }
    }
    let mut verdict = Verdict { events, ..Verdict::default() };
    for (collection, expected) in COLLECTIONS.into_iter().zip(shop.into_documents()) {
        compare(store, collection, expected, &mut verdict).await?;
    }
    verdict.equal = verdict.differing == 0;
    Ok(verdict)
}

/// Compares all documents of a collection, in both directions.
async fn compare<S: Documents + Examine>(
    store: &S,
    collection: &'static str,
    mut expected: BTreeMap<String, Value>,
    verdict: &mut Verdict,
) -> Result<(), Failure> {
    const PAGE: usize = 1_000;
    verdict.documents.insert(collection, expected.len() as u64);
    let name = Collection::new(collection)?;
    let exists = store.collections().await?.contains(&name);
    let mut after = None;
    loop {
        let page = if exists { store.scan(&name, after, PAGE).await? } else { Vec::new() };
        let Some(last) = page.last() else { break };
        after = Some(last.id.clone());
        for record in page {
            let stored = record.body.map(|body| serde_json::from_str(body.as_str()).unwrap_or(Value::Null));
            let wanted = expected.remove(record.id.as_str());
            if stored != wanted {
                verdict.differ(collection, record.id.as_str(), stored, wanted);
            }
        }
    }
    for (id, missing) in expected {
        verdict.differ(collection, &id, None, Some(missing));
    }
    Ok(())
}

impl Verdict {
    fn differ(&mut self, collection: &'static str, id: &str, stored: Option<Value>, expected: Option<Value>) {
        self.differing += 1;
        if self.differences.len() < SHOWN {
            self.differences.push(Difference { collection, id: id.to_owned(), stored, expected });
        }
    }
}

/// All read models at once.
#[derive(Debug, Default)]
struct Shop {
    carts: BTreeMap<String, Cart>,
    clients: BTreeMap<String, Client>,
    /// Carts and cents by day, and of all days.
    days: BTreeMap<String, (u64, u64)>,
    open: BTreeMap<String, BTreeSet<String>>,
}

#[derive(Debug, Default)]
struct Cart {
    client: String,
    /// Name, quantity and price by product.
    items: BTreeMap<String, (String, u64, u64)>,
    confirmed: Option<String>,
}

#[derive(Debug, Default)]
struct Client {
    opened: u64,
    confirmed: u64,
    canceled: u64,
    spent: u64,
}

impl Shop {
    /// Applies an event. Returns `None` if the demo could not have written it.
    fn take(&mut self, event: &Event) -> Option<()> {
        let data: Map<String, Value> = serde_json::from_str(event.data.as_str()).ok()?;
        let text = |field: &str| data.get(field).and_then(Value::as_str);
        let number = |field: &str| data.get(field).and_then(Value::as_u64);
        let stream = event.stream.as_str();
        match event.kind.as_str() {
            "shopping-cart-opened" => {
                let client = text("clientId")?;
                let cart = Cart { client: client.to_owned(), ..Cart::default() };
                self.carts.insert(stream.to_owned(), cart);
                self.clients.entry(client.to_owned()).or_default().opened += 1;
                self.open.entry(client.to_owned()).or_default().insert(stream.to_owned());
            }
            "product-item-added" => {
                let items = &mut self.carts.get_mut(stream)?.items;
                let (name, price) = (text("name")?, number("unitPrice")?);
                let item = items.entry(text("productId")?.to_owned()).or_insert((name.to_owned(), 0, price));
                item.1 += number("quantity")?;
                item.2 = price;
            }
            "product-item-removed" => {
                let items = &mut self.carts.get_mut(stream)?.items;
                let product = text("productId")?;
                let item = items.get_mut(product)?;
                item.1 = item.1.checked_sub(number("quantity")?)?;
                if item.1 == 0 {
                    items.remove(product);
                }
            }
            "shopping-cart-confirmed" => {
                let (client, total, time) = (text("clientId")?, number("total")?, event.time.to_string());
                for day in [time.get(..10)?, "all"] {
                    let (carts, cents) = self.days.entry(day.to_owned()).or_default();
                    *carts += 1;
                    *cents += total;
                }
                let of_client = self.clients.entry(client.to_owned()).or_default();
                of_client.confirmed += 1;
                of_client.spent += total;
                self.close(client, stream);
                self.carts.get_mut(stream)?.confirmed = Some(time);
            }
            "shopping-cart-canceled" => {
                let client = text("clientId")?;
                self.clients.entry(client.to_owned()).or_default().canceled += 1;
                self.close(client, stream);
                self.carts.remove(stream)?;
            }
            _ => return None,
        }
        Some(())
    }

    fn close(&mut self, client: &str, stream: &str) {
        if let Some(open) = self.open.get_mut(client) {
            open.remove(stream);
            if open.is_empty() {
                self.open.remove(client);
            }
        }
    }

    /// Returns the documents, in the order of [`COLLECTIONS`].
    fn into_documents(self) -> [BTreeMap<String, Value>; 4] {
        let client = |client: Client| {
            let Client { opened, confirmed, canceled, spent } = client;
            json!({ "opened": opened, "confirmed": confirmed, "canceled": canceled, "spent": spent })
        };
        let day = |(carts, revenue)| json!({ "carts": carts, "revenue": revenue });
        let open = |carts| json!({ "carts": carts });
        [
            self.carts.into_iter().map(|(id, cart)| (id, cart.into_document())).collect(),
            self.clients.into_iter().map(|(id, of)| (id, client(of))).collect(),
            self.days.into_iter().map(|(id, of)| (id, day(of))).collect(),
            self.open.into_iter().map(|(id, of)| (id, open(of))).collect(),
        ]
    }
}

impl Cart {
    fn into_document(self) -> Value {
        let total: u64 = self.items.values().map(|(_, quantity, price)| quantity * price).sum();
        let item = |(product, (name, quantity, price))| {
            (product, json!({ "name": name, "quantity": quantity, "unitPrice": price }))
        };
        let items: Map<String, Value> = self.items.into_iter().map(item).collect();
        let status = if self.confirmed.is_some() { "confirmed" } else { "open" };
        json!({
            "clientId": self.client,
            "status": status,
            "items": items,
            "total": total,
            "confirmedAt": self.confirmed,
        })
    }
}

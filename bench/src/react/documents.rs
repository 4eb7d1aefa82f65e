//! The documents, which other programs write.

use std::time::Duration;

use bson::{Document, doc};
use leftfold::react::ReactionStore;
use serde::Deserialize;

use crate::report::Result;
use crate::subject::Subject;
use crate::subject::mongodb::Databases;
use crate::subject::sqlite::Files;

#[derive(Deserialize)]
pub(super) struct Order {
    pub(super) number: u64,
}

/// A store in which other programs write plain documents.
pub(crate) trait ExternalDocuments: Subject<Store: ReactionStore> {
    /// Creates the collection or table for the documents.
    async fn make(&self, place: &str) -> Result<()>;

    /// Writes `count` documents, numbered from `from`.
    async fn write(&self, place: &str, from: u64, count: u64) -> Result<()>;
}

impl ExternalDocuments for Files {
    async fn make(&self, place: &str) -> Result<()> {
        let file = rusqlite::Connection::open(self.argument(place))?;
        file.execute_batch("CREATE TABLE orders (id TEXT PRIMARY KEY, body TEXT)")?;
        Ok(())
    }

    async fn write(&self, place: &str, from: u64, count: u64) -> Result<()> {
        let path = self.argument(place);
        tokio::task::spawn_blocking(move || {
            let mut file = rusqlite::Connection::open(path)?;
            file.busy_timeout(Duration::from_secs(10))?;
            let transaction = file.transaction()?;
            {
                let mut insert = transaction.prepare("INSERT INTO orders VALUES (?1, ?2)")?;
                for number in from..from + count {
                    insert.execute((format!("o{number:07}"), format!(r#"{{"number":{number}}}"#)))?;
                }
            }
            Ok(transaction.commit()?)
        })
        .await?
    }
}

impl ExternalDocuments for Databases {
    async fn make(&self, place: &str) -> Result<()> {
        Ok(self.database(place).create_collection("orders").await?)
    }

    async fn write(&self, place: &str, from: u64, count: u64) -> Result<()> {
        let orders = self.database(place).collection::<Document>("orders");
        let numbers: Vec<_> = (from..from + count).collect();
        for numbers in numbers.chunks(1_000) {
            let order =
                |number: &u64| doc! { "_id": format!("o{number:07}"), "number": number.cast_signed() };
            orders.insert_many(numbers.iter().map(order)).await?;
        }
        Ok(())
    }
}

//! MongoDB, and hand-written code with the plain driver.

mod databases;
mod folds;
mod writes;

use std::time::Duration;

use bson::Document;
use leftfold_mongodb::Mongo;

use super::{Inserts, OneByOne, Subject};
use crate::fold::Part;
use crate::report::{Measurement, Result};
use crate::traffic;
use crate::writes::WriteMode;

pub(crate) use databases::Databases;

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
        self.url_of(place)
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
        folds::raw_catch_up(self, place).await
    }

    async fn one_by_one(&self, place: &str, mode: &OneByOne) -> Result<Duration> {
        folds::one_by_one(self, place, mode).await
    }

    async fn inserts(&self, place: &str) -> Result<f64> {
        writes::inserts(self, place).await
    }

    async fn plain_writes(&self, place: &str, mode: WriteMode) -> Result<f64> {
        writes::plain_writes(self, place, mode).await
    }

    async fn bare_latencies(&self, place: &str, events: usize, every: Duration) -> Result<Vec<f64>> {
        writes::bare_latencies(self, place, events, every).await
    }

    async fn traffic(&self) -> Result<Vec<Measurement>> {
        traffic::measure(self).await
    }
}

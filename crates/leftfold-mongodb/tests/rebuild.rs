//! Rebuilds in a database shared by several processes, as seen by programs that read it directly.

#![allow(clippy::unwrap_used, reason = "a step that fails fails the test")]

mod common;

use std::time::Duration;

use bson::{Document, doc};
use common::REPLICA_SET;
use leftfold::documents::Documents as _;
use leftfold::fold::Error;
use leftfold::inspect::Sample;
use leftfold::{App, Collection, Event, Leftfold, Projection};
use leftfold_mongodb::Mongo;
use leftfold_testbed::mongodb::Server;
use mongodb::Client;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Happened {
    Added { by: u64 },
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Total {
    sum: u64,
}

/// A projection of sums, multiplied by the version of its code.
struct Totals(u32);

impl Projection for Totals {
    type Event = Happened;
    type Document = Total;

    fn name(&self) -> &'static str {
        "totals"
    }

    fn version(&self) -> u32 {
        self.0
    }

    fn fold(&self, total: Option<Total>, event: &Event<Happened>) -> Result<Option<Total>, Error> {
        let Happened::Added { by } = event.data;
        Ok(Some(Total { sum: total.map_or(0, |total| total.sum) + u64::from(self.0) * by }))
    }
}

async fn start(store: &Mongo, version: u32) -> App<Mongo> {
    Leftfold::on(store.clone()).projection(Totals(version)).start().await.unwrap()
}

/// Returns the sum of all totals, as read from the view.
async fn sum(store: &Mongo) -> i64 {
    let view = store.database().collection::<Document>("totals");
    let pipeline = [doc! { "$group": { "_id": null, "sum": { "$sum": { "$toLong": "$sum" } } } }];
    let mut found = view.aggregate(pipeline).await.unwrap();
    if found.advance().await.unwrap() {
        found.deserialize_current().unwrap().get_i64("sum").unwrap()
    } else {
        0
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_view_follows_what_is_live() {
    let (store, _guard) = REPLICA_SET.guarded(Mongo::options()).await;
    let old = start(&store, 1).await;
    for number in 0..60 {
        old.append(&format!("s{}", number % 6), [Happened::Added { by: 1 }]).await.unwrap();
    }
    old.caught_up().await.unwrap();
    assert_eq!(sum(&store).await, 60);
    let new = start(&store, 2).await;
    let rebuild = new.rebuild("totals").await.unwrap();
    rebuild.built().await.unwrap();
    assert_eq!(sum(&store).await, 60, "what is built is not seen");
    rebuild.switch().await.unwrap();
    assert_eq!(sum(&store).await, 120);
    // The other process has old code: it stands by, reads the live generation, and may append.
    let bookmark = old.append("s0", [Happened::Added { by: 5 }]).await.unwrap();
    let total = old.get(Totals(1), "s0").at_least(bookmark).within(Duration::from_secs(20)).await.unwrap();
    assert_eq!(total, Some(Total { sum: 30 }));
    old.stop().await;
    let verified = new.verify("totals", Sample::All, |wrong| panic!("{wrong:?}")).await.unwrap();
    assert_eq!((verified.checked, verified.differing), (6, 0));
    new.undo("totals").await.unwrap();
    assert_eq!(sum(&store).await, 70, "with what has come since, folded by the code there is");
    new.forget_kept("totals").await.unwrap();
    let names = store.database().list_collection_names().await.unwrap();
    assert!(!names.iter().any(|name| name.contains('~')), "{names:?}");
    new.stop().await;
}

/// The process that switched died before it changed the view. The next process that prepares the
/// collection changes it.
#[tokio::test(flavor = "multi_thread")]
async fn a_view_that_was_left_behind_follows() {
    let (store, _guard) = REPLICA_SET.guarded(Mongo::options()).await;
    let app = start(&store, 1).await;
    app.append("s0", [Happened::Added { by: 1 }]).await.unwrap();
    app.caught_up().await.unwrap();
    app.stop().await;
    let app = start(&store, 2).await;
    app.rebuild("totals").await.unwrap().finish(0).await.unwrap();
    let back = doc! { "collMod": "totals", "viewOn": "leftfold.docs.totals", "pipeline": [] };
    store.database().run_command(back).await.unwrap();
    assert_eq!(sum(&store).await, 1);
    store.prepare(&Collection::new("totals").unwrap()).await.unwrap();
    assert_eq!(sum(&store).await, 2);
    app.stop().await;
}

/// Otherwise the switch would happen, but readers of the view would keep seeing the old generation.
#[tokio::test(flavor = "multi_thread")]
async fn who_may_not_change_the_view_does_not_begin_to_switch() {
    let server = Server::with_access_control().await.unwrap();
    let root = Client::with_uri_str(server.url()).await.unwrap().database("admin");
    let role = |role: &str| doc! { "role": role, "db": "shop" };
    let user = doc! { "createUser": "writer", "pwd": "s3cret", "roles": [role("readWrite")] };
    root.run_command(user).await.unwrap();
    let url = server.url_as("writer", "s3cret").replacen("/?", "/shop?", 1);
    let app = start(&Mongo::connect(&url).await.unwrap(), 1).await;
    app.append("s0", [Happened::Added { by: 1 }]).await.unwrap();
    let error = app.rebuild("totals").await.unwrap().finish(0).await.unwrap_err().to_string();
    assert!(error.contains("`dbAdmin` to rebuild"), "{error}");
    let generations = app.status().await.unwrap().remove(0).generations;
    assert_eq!((generations.live.number, generations.switching), (0, None));
    let bookmark = app.append("s0", [Happened::Added { by: 1 }]).await.unwrap();
    assert_eq!(app.get(Totals(1), "s0").at_least(bookmark).await.unwrap(), Some(Total { sum: 2 }));
    app.stop().await;

    root.run_command(doc! { "grantRolesToUser": "writer", "roles": [role("dbAdmin")] }).await.unwrap();
    let store = Mongo::connect(&url).await.unwrap();
    let app = start(&store, 1).await;
    app.rebuild("totals").await.unwrap().finish(0).await.unwrap();
    assert_eq!((app.status().await.unwrap()[0].generations.live.number, sum(&store).await), (1, 2));
    app.stop().await;
}

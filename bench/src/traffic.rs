//! Measures the commands sent to a MongoDB server, per event and when idle.

use std::collections::BTreeMap;
use std::time::Duration;

use bson::{Bson, doc};
use leftfold::Leftfold;
use shopping_cart::workload::Order;
use shopping_cart::{CartDetails, ClientSummary, DailyTotals};
use tokio::time::sleep;

use crate::catch_up::in_a_process;
use crate::latency;
use crate::report::{Measurement, Result, float};
use crate::stores::fill;
use crate::subject::Subject;
use crate::subject::mongodb::Databases;

const EVENTS: u64 = 100_000;
const IDLE: Duration = Duration::from_secs(20);
/// The limit of commands per second for an idle process.
const IDLE_LIMIT: f64 = 2.0;
/// The commands for one event, by hand: find the document and replace it. `ALL_BY_HAND` also counts
/// inserting the event and reading the document.
const FOLD_BY_HAND: f64 = 2.0;
const ALL_BY_HAND: f64 = 4.0;

pub(crate) async fn measure(databases: &Databases) -> Result<Vec<Measurement>> {
    let place = "traffic";
    databases.remove(place).await?;
    fill(databases, place, EVENTS, Order::Interleaved { open: 5_000 }).await?;
    eprintln!("traffic …");
    let before = commands(databases).await?;
    in_a_process(&databases.argument(place))?;
    let folded = sent_since(databases, &before, "catch-up").await?;

    let idle = idle_commands(databases, place).await?;
    databases.remove(place).await?;

    let store = databases.open(place).await?;
    let before = commands(databases).await?;
    latency::latencies(&store, &store).await?;
    let trickled = sent_since(databases, &before, "at 200 events a second").await?;
    databases.remove(place).await?;
    Ok(vec![
        Measurement::less(
            "commands per event, catch-up (2 by hand)",
            float(folded) / float(EVENTS),
            FOLD_BY_HAND,
            None,
        ),
        Measurement::less(
            "commands per event, appended, folded and read at 200 a second (4 by hand)",
            float(trickled) / float(latency::EVENTS as u64),
            ALL_BY_HAND,
            None,
        ),
        Measurement::less(
            "commands per second, idle, three projections (at most 2)",
            float(idle) / IDLE.as_secs_f64(),
            IDLE_LIMIT,
            Some(1.0),
        ),
    ])
}

/// Returns the number of commands that a process with three idle projections sends.
async fn idle_commands(databases: &Databases, place: &str) -> Result<u64> {
    let app = Leftfold::on(databases.open(place).await?)
        .projection(CartDetails)
        .projection(ClientSummary)
        .projection(DailyTotals)
        .start()
        .await?;
    app.caught_up().await?;
    sleep(Duration::from_secs(2)).await;
    let before = commands(databases).await?;
    sleep(IDLE).await;
    let sent = sent_since(databases, &before, "idle").await?;
    app.stop().await;
    Ok(sent)
}

/// Returns the number of commands that all clients have sent since `before`. Prints the count of
/// each command to standard error.
pub(crate) async fn sent_since(
    databases: &Databases,
    before: &BTreeMap<String, u64>,
    when: &str,
) -> Result<u64> {
    let mut sent = commands(databases).await?;
    for (name, count) in &mut sent {
        *count -= before.get(name).copied().unwrap_or(0);
    }
    let named: Vec<_> = sent.iter().filter(|(_, count)| **count > 0).collect();
    let named: Vec<_> = named.iter().map(|(name, count)| format!("{name} {count}")).collect();
    eprintln!("commands, {when}: {}", named.join(", "));
    Ok(sent.values().sum())
}

/// Returns the number of times the server has received each command, except the one that asks.
pub(crate) async fn commands(databases: &Databases) -> Result<BTreeMap<String, u64>> {
    let status = databases.client().database("admin").run_command(doc! { "serverStatus": 1 }).await?;
    let mut sent = BTreeMap::new();
    for (name, counted) in status.get_document("metrics")?.get_document("commands")? {
        if let Bson::Document(counted) = counted
            && name != "serverStatus"
        {
            sent.insert(name.clone(), counted.get_i64("total")?.unsigned_abs());
        }
    }
    Ok(sent)
}

//! What is sent to a MongoDB server: for an event, and when nothing happens.

use std::time::Duration;

use bson::{Bson, doc};
use leftfold::Leftfold;
use shopping_cart::workload::Order;
use shopping_cart::{CartDetails, ClientSummary, DailyTotals};
use tokio::time::sleep;

use crate::catch_up::in_a_process;
use crate::latency;
use crate::report::{Figure, Result, float};
use crate::stores::fill;
use crate::subject::Subject;
use crate::subject::mongodb::Databases;

const EVENTS: u64 = 100_000;
const IDLE: Duration = Duration::from_secs(20);
/// How many commands a second an idle program may send.
const IDLE_LIMIT: f64 = 2.0;
/// For one event, by hand: find the document, replace it; and before that, insert the event.
const FOLD_BY_HAND: f64 = 2.0;
const APPEND_AND_FOLD_BY_HAND: f64 = 3.0;

pub(crate) async fn measure(databases: &Databases) -> Result<Vec<Figure>> {
    let place = "traffic";
    databases.remove(place).await?;
    fill(databases, place, EVENTS, Order::Interleaved { open: 5_000 }).await?;
    eprintln!("traffic …");
    let before = commands(databases).await?;
    in_a_process(&databases.argument(place))?;
    let folded = commands(databases).await? - before;

    let idle = idle_commands(databases, place).await?;
    databases.remove(place).await?;

    let store = databases.open(place).await?;
    let before = commands(databases).await?;
    latency::latencies(&store, &store).await?;
    let trickled = commands(databases).await? - before;
    databases.remove(place).await?;
    Ok(vec![
        Figure::less(
            "commands per event, catch-up (2 by hand)",
            float(folded) / float(EVENTS),
            FOLD_BY_HAND,
            None,
        ),
        Figure::less(
            "commands per event, appended, folded and read one by one (3 by hand, without the read)",
            float(trickled) / float(latency::EVENTS as u64),
            APPEND_AND_FOLD_BY_HAND,
            None,
        ),
        Figure::less(
            "commands per second, idle, three projections (at most 2)",
            float(idle) / IDLE.as_secs_f64(),
            IDLE_LIMIT,
            Some(1.0),
        ),
    ])
}

/// What a program with three projections that have nothing to do sends.
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
    let sent = commands(databases).await? - before;
    app.stop().await;
    Ok(sent)
}

/// How many commands the server was sent since it was started, by anybody, but for those that ask for this.
async fn commands(databases: &Databases) -> Result<u64> {
    let status = databases.client().database("admin").run_command(doc! { "serverStatus": 1 }).await?;
    let all = status.get_document("metrics")?.get_document("commands")?;
    let mut sent = 0;
    for (name, counted) in all {
        if let Bson::Document(counted) = counted
            && name != "serverStatus"
        {
            sent += counted.get_i64("total")?.unsigned_abs();
        }
    }
    Ok(sent)
}

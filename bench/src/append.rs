//! Appends of many callers at once against one commit per call.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use leftfold::{Expected, Json, Leftfold, NewEvent};
use leftfold_sqlite::Sqlite;
use tokio::task::JoinSet;

use crate::raw;
use crate::report::{Figure, Result, float, median};
use crate::stores::{remove, runtime};

const CALLERS: u64 = 64;
const EACH: u64 = 2_000;
const ONE_BY_ONE: u64 = 4_000;

pub(crate) fn measure(directory: &Path, rounds: usize) -> Result<Vec<Figure>> {
    let (mut ours, mut alone, mut plain) = (Vec::new(), Vec::new(), Vec::new());
    let file = directory.join("append.db");
    for round in 1..=rounds {
        eprintln!("append, round {round} of {rounds} …");
        remove(&file)?;
        let took: f64 = raw::append_one_by_one(&file, usize::try_from(ONE_BY_ONE)?)?.iter().sum();
        plain.push(float(ONE_BY_ONE) / took);
        remove(&file)?;
        alone.push(runtime()?.block_on(per_second(&file, 1, ONE_BY_ONE))?);
        remove(&file)?;
        ours.push(runtime()?.block_on(per_second(&file, CALLERS, EACH))?);
    }
    remove(&file)?;
    let (ours, alone, plain) = (median(ours), median(alone), median(plain));
    let bench = |with: &str| format!("append, {CALLERS} callers of one event each, events/s ({with})");
    Ok(vec![
        Figure::more(bench("one caller, so one commit per call"), ours, alone, Some(20.0)),
        Figure::more(bench("plain inserts, one commit each"), ours, plain, None),
    ])
}

/// How many events a second so many callers append, each one event after the other.
async fn per_second(file: &Path, callers: u64, each: u64) -> Result<f64> {
    let app = Leftfold::on(Sqlite::open(file).await?).open().await?;
    let data = Json::parse(r#"{"productId":"shoes","name":"Shoes","quantity":2,"unitPrice":4900}"#)?;
    // New carts, numbered as they come, as in the references.
    let next = Arc::new(AtomicU64::new(0));
    let begun = Instant::now();
    let mut tasks: JoinSet<Result<()>> = JoinSet::new();
    for _ in 0..callers {
        let (app, data, next) = (app.clone(), data.clone(), next.clone());
        tasks.spawn(async move {
            for _ in 0..each {
                let number = next.fetch_add(1, Ordering::Relaxed);
                let event = NewEvent::new("product-item-added", data.clone())?;
                app.append_events(&format!("cart-{number:07}"), Expected::Any, vec![event]).await?;
            }
            Ok(())
        });
    }
    while let Some(done) = tasks.join_next().await {
        done??;
    }
    Ok(float(callers * each) / begun.elapsed().as_secs_f64())
}

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
const EACH: u64 = 1_000;
const ONE_BY_ONE: usize = 3_000;

pub(crate) fn measure(directory: &Path, rounds: usize) -> Result<Vec<Figure>> {
    let (mut ours, mut reference) = (Vec::new(), Vec::new());
    let file = directory.join("append.db");
    for round in 1..=rounds {
        eprintln!("append, round {round} of {rounds} …");
        remove(&file)?;
        let took: f64 = raw::append_one_by_one(&file, ONE_BY_ONE)?.iter().sum();
        reference.push(float(ONE_BY_ONE as u64) / took);
        remove(&file)?;
        ours.push(float(CALLERS * EACH) / runtime()?.block_on(many_callers(&file))?);
    }
    remove(&file)?;
    let goal = Some(20.0);
    let bench = format!("append, {CALLERS} callers of one event each, events/s (one commit per call)");
    Ok(vec![Figure::more(bench, median(ours), median(reference), goal)])
}

async fn many_callers(file: &Path) -> Result<f64> {
    let app = Leftfold::on(Sqlite::open(file).await?).open().await?;
    let data = Json::parse(r#"{"productId":"shoes","name":"Shoes","quantity":2,"unitPrice":4900}"#)?;
    // New carts, numbered as they come, as in the reference.
    let next = Arc::new(AtomicU64::new(0));
    let begun = Instant::now();
    let mut callers: JoinSet<Result<()>> = JoinSet::new();
    for _ in 0..CALLERS {
        let (app, data, next) = (app.clone(), data.clone(), next.clone());
        callers.spawn(async move {
            for _ in 0..EACH {
                let number = next.fetch_add(1, Ordering::Relaxed);
                let event = NewEvent::new("product-item-added", data.clone())?;
                app.append_events(&format!("cart-{number:07}"), Expected::Any, vec![event]).await?;
            }
            Ok(())
        });
    }
    while let Some(done) = callers.join_next().await {
        done??;
    }
    Ok(begun.elapsed().as_secs_f64())
}

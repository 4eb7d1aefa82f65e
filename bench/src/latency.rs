//! From an append to the document being visible, at a modest rate, beside what a bare commit takes.

use std::path::Path;
use std::time::{Duration, Instant};

use leftfold::Leftfold;
use leftfold_sqlite::Sqlite;
use shopping_cart::{CartDetails, CartEvent};

use crate::raw;
use crate::report::{Figure, Result, percentile};
use crate::stores::{remove, runtime};

const EVENTS: usize = 2_000;
const PER_SECOND: u64 = 200;

pub(crate) fn measure(directory: &Path) -> Result<Vec<Figure>> {
    eprintln!("latency, {EVENTS} events at {PER_SECOND} a second …");
    let file = directory.join("latency.db");
    remove(&file)?;
    let mut reference = raw::append_one_by_one(&file, EVENTS)?;
    remove(&file)?;
    let mut ours = runtime()?.block_on(latencies(&file))?;
    remove(&file)?;
    ours.sort_by(f64::total_cmp);
    reference.sort_by(f64::total_cmp);
    let figure = |percent| {
        let (ours, reference) = (percentile(&ours, percent) * 1e3, percentile(&reference, percent) * 1e3);
        Figure::less(format!("append → visible, p{percent}, ms (a bare commit)"), ours, reference, None)
    };
    Ok(vec![figure(50), figure(99)])
}

async fn latencies(file: &Path) -> Result<Vec<f64>> {
    let app = Leftfold::on(Sqlite::open(file).await?).projection(CartDetails).start().await?;
    let mut tick = tokio::time::interval(Duration::from_millis(1_000 / PER_SECOND));
    let mut took = Vec::with_capacity(EVENTS);
    for number in 0..EVENTS {
        tick.tick().await;
        let stream = format!("cart-{number:07}");
        let begun = Instant::now();
        let token =
            app.append(&stream, [CartEvent::ShoppingCartOpened { client_id: "ann".to_owned() }]).await?;
        app.get(CartDetails, &stream).at_least(token).await?.ok_or("the document is not there")?;
        took.push(begun.elapsed().as_secs_f64());
    }
    app.stop().await;
    Ok(took)
}

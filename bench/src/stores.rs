//! Logs for the measurements, and the runtime that both sides of a comparison share.

use leftfold::{App, Expected, Leftfold};
use shopping_cart::workload::{Order, Workload};
use tokio::task::JoinSet;

use crate::report::Result;
use crate::subject::Subject;

/// Creates a runtime with one thread per processor.
pub(crate) fn runtime() -> Result<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_multi_thread().enable_all().build()?)
}

/// Creates a log of `events` events, ten per cart.
pub(crate) async fn fill<S: Subject>(subject: &S, place: &str, events: u64, order: Order) -> Result<()> {
    const AT_ONCE: usize = 1_024;
    eprintln!("preparing {events} events, {order:?} …");
    let store = subject.open(place).await?;
    let app: App<S::Store> = Leftfold::on(store.clone()).open().await?;
    let mut appends = Workload::new(1, events / 10, 10).order(order).into_iter();
    // All concurrent appends are for different carts, so each cart's events stay in order.
    loop {
        let mut under_way = JoinSet::new();
        for (stream, events) in appends.by_ref().take(AT_ONCE) {
            let app = app.clone();
            under_way.spawn(async move { app.append_events(stream.as_str(), Expected::Any, events).await });
        }
        if under_way.is_empty() {
            break;
        }
        while let Some(done) = under_way.join_next().await {
            done??;
        }
    }
    drop(app);
    subject.close(store).await;
    Ok(())
}

//! Logs to measure on, and the runtime that both sides of a comparison share.

use std::path::Path;

use leftfold::{App, Expected, Leftfold};
use leftfold_sqlite::Sqlite;
use shopping_cart::workload::{Order, Workload};
use tokio::task::JoinSet;

use crate::report::Result;

/// So many threads as the machine has.
pub(crate) fn runtime() -> Result<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_multi_thread().enable_all().build()?)
}

/// Makes a file with a log of so many events, ten to a cart.
pub(crate) fn fill(file: &Path, events: u64, order: Order) -> Result<()> {
    const AT_ONCE: usize = 256;
    eprintln!("preparing {events} events, {order:?} …");
    runtime()?.block_on(async {
        let store = Sqlite::open(file).await?;
        let app: App<Sqlite> = Leftfold::on(store.clone()).open().await?;
        let mut appends = Workload::new(1, events / 10, 10).order(order).into_iter();
        // No two of the appends under way belong to one cart, so that each cart's events stay in order.
        loop {
            let mut under_way = JoinSet::new();
            for (stream, events) in appends.by_ref().take(AT_ONCE) {
                let app = app.clone();
                under_way
                    .spawn(async move { app.append_events(stream.as_str(), Expected::Any, events).await });
            }
            if under_way.is_empty() {
                break;
            }
            while let Some(done) = under_way.join_next().await {
                done??;
            }
        }
        drop(app);
        store.close().await;
        Ok(())
    })
}

/// A copy of a prepared file, for one measurement.
pub(crate) fn copy(file: &Path, name: &str) -> Result<std::path::PathBuf> {
    let to = file.with_file_name(name);
    for end in ["", "-wal", "-shm"] {
        let from = format!("{}{end}", file.display());
        let to = format!("{}{end}", to.display());
        if Path::new(&from).exists() {
            std::fs::copy(from, to)?;
        } else if Path::new(&to).exists() {
            std::fs::remove_file(to)?;
        }
    }
    Ok(to)
}

pub(crate) fn remove(file: &Path) -> Result<()> {
    for end in ["", "-wal", "-shm"] {
        let path = format!("{}{end}", file.display());
        if Path::new(&path).exists() {
            std::fs::remove_file(path)?;
        }
    }
    Ok(())
}

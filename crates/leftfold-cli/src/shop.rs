//! The example's projections on a file: what all commands work with.

use std::io::ErrorKind;
use std::path::Path;

use leftfold::{App, Leftfold};
use leftfold_sqlite::Sqlite;
use shopping_cart::{CartDetails, ClientSummary, DailyTotals, OpenCarts};

use crate::exit::{Exit, Failure};

/// The read models.
pub(crate) const COLLECTIONS: [&str; 4] = ["cart_details", "client_summary", "daily_totals", "open_carts"];

/// Opens the file, or makes it; no worker runs.
pub(crate) async fn open(path: &Path) -> Result<App<Sqlite>, Failure> {
    let app = Leftfold::on(Sqlite::open(path).await?)
        .projection(CartDetails)
        .projection(ClientSummary)
        .projection(DailyTotals)
        .projection(OpenCarts);
    Ok(app.open().await?)
}

/// Opens the file, which must be there.
pub(crate) async fn open_existing(path: &Path) -> Result<App<Sqlite>, Failure> {
    // An empty file would be taken for a new one, and made.
    let fault = match path.metadata() {
        Err(error) if error.kind() == ErrorKind::NotFound => Some("there is no such file"),
        Ok(found) if found.is_file() && found.len() == 0 => Some("the file is empty"),
        _ => None,
    };
    if let Some(fault) = fault {
        let shown = path.display();
        let message = format!(
            "opening {shown}: {fault}; name another with --store, or make one with \
             `leftfold demo --store {shown}`"
        );
        return Err(Failure::new(Exit::Store, message));
    }
    open(path).await
}

/// Checks the name of a read model.
pub(crate) fn known(collection: &str) -> Result<(), Failure> {
    if COLLECTIONS.contains(&collection) {
        return Ok(());
    }
    let there = COLLECTIONS.join(", ");
    let message = format!("no read model is named {collection:?}; there are: {there}");
    Err(Failure::new(Exit::Usage, message))
}

//! The example's projections on a store: what all commands work with.

use leftfold::{App, Leftfold, Store};
use shopping_cart::{CartDetails, ClientSummary, DailyTotals, OpenCarts};

use crate::exit::{Exit, Failure};
use crate::place::Place;

/// The read models.
pub(crate) const COLLECTIONS: [&str; 4] = ["cart_details", "client_summary", "daily_totals", "open_carts"];

/// Opens the store, or makes it; no worker runs.
pub(crate) async fn open<P: Place>(place: &P) -> Result<App<P::Store>, Failure> {
    on(place.open().await?).await
}

/// Opens the store, which must be there.
pub(crate) async fn open_existing<P: Place>(place: &P) -> Result<App<P::Store>, Failure> {
    on(place.open_existing().await?).await
}

async fn on<S: Store>(store: S) -> Result<App<S>, Failure> {
    // Where there can be no log, nothing else is to be made.
    store.heads().await?;
    let app = Leftfold::on(store)
        .projection(CartDetails)
        .projection(ClientSummary)
        .projection(DailyTotals)
        .projection(OpenCarts);
    Ok(app.open().await?)
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

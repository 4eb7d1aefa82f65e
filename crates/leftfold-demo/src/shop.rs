//! The application: the read models of a small shop.

use leftfold::{App, Leftfold, Store};
use leftfold_terminal::Failure;
use shopping_cart::{CartDetails, ClientSummary, DailyTotals, OpenCarts};

/// The names of the read models.
pub(crate) const COLLECTIONS: [&str; 4] = ["cart_details", "client_summary", "daily_totals", "open_carts"];

/// Opens the application, without workers.
pub(crate) async fn open<S: Store>(store: S) -> Result<App<S>, Failure> {
    let app = Leftfold::on(store)
        .projection(CartDetails)
        .projection(ClientSummary)
        .projection(DailyTotals)
        .projection(OpenCarts);
    Ok(app.open().await?)
}

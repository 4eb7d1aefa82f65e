//! A small shop in one file: `cargo run -p shopping-cart --example shop`.

use leftfold::Leftfold;
use leftfold_sqlite::Sqlite;
use shopping_cart::CartEvent::{
    ProductItemAdded, ProductItemRemoved, ShoppingCartConfirmed, ShoppingCartOpened,
};
use shopping_cart::{CartDetails, CartEvent, ClientSummary, DailyTotals, OpenCarts};

#[tokio::main]
#[expect(clippy::print_stdout, reason = "it is there to be seen")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = tempfile::tempdir()?;
    let store = Sqlite::open(directory.path().join("shop.db")).await?;
    let app = Leftfold::on(store)
        .projection(CartDetails)
        .projection(ClientSummary)
        .projection(DailyTotals)
        .projection(OpenCarts)
        .start()
        .await?;

    // Ann fills a cart. Each append returns a bookmark.
    app.append("cart-1", [opened("ann"), added("shoes", 2, 4_900), added("socks", 3, 500)]).await?;
    let bookmark = app.append("cart-1", [removed("socks", 1)]).await?;

    // A read with the bookmark sees that write and all earlier ones.
    let cart = app.get(CartDetails, "cart-1").at_least(bookmark).await?;
    println!("cart-1 is {cart:#?}\n");

    // One event changes several documents: the cart's, the client's and the day's.
    let bookmark = app.append("cart-1", [confirmed("ann", 10_800)]).await?;
    println!("ann has {:?}", app.get(ClientSummary, "ann").at_least(bookmark.clone()).await?);
    println!("open carts of ann: {:?}", app.get(OpenCarts, "ann").at_least(bookmark.clone()).await?);
    println!("all days: {:?}\n", app.get(DailyTotals, "all").at_least(bookmark).await?);

    // A confirmed cart accepts no more items. Its document is parked; all others go on.
    let bookmark = app.append("cart-1", [added("hat", 1, 1_500)]).await?;
    match app.get(CartDetails, "cart-1").at_least(bookmark).await {
        Err(error) => println!("as it should be: {error}\n"),
        Ok(cart) => println!("this should not have worked: {cart:?}\n"),
    }

    app.caught_up().await?;
    for status in app.status().await? {
        let leftfold::inspect::ProjectionStatus { projection, documents, parked_documents, lag, .. } = status;
        println!("{projection}: {documents} documents, {parked_documents} parked, {lag} events behind");
    }
    app.stop().await;
    Ok(())
}

fn opened(client: &str) -> CartEvent {
    ShoppingCartOpened { client_id: client.into() }
}

fn added(product: &str, quantity: u32, unit_price: u32) -> CartEvent {
    ProductItemAdded { product_id: product.into(), name: product.into(), quantity, unit_price }
}

fn removed(product: &str, quantity: u32) -> CartEvent {
    ProductItemRemoved { product_id: product.into(), quantity }
}

fn confirmed(client: &str, total: u64) -> CartEvent {
    ShoppingCartConfirmed { client_id: client.into(), total }
}

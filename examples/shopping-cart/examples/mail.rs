//! A confirmed cart sends exactly one mail, whatever fails in between.
//!
//! Run it with `cargo run -p shopping-cart --example mail`.
//!
//! The handler writes the mail into an outbox in the transaction that completes the task, so both
//! commit or neither does. Three workers share the tasks here. A worker dies before its commit, a
//! commit succeeds without its worker learning of it, events arrive twice, and a cart is canceled
//! in between.

use std::path::{Path, PathBuf};
use std::time::Duration;

use leftfold::react::{Context, HandlerError, Reaction, Retry};
use leftfold::{App, Expected, Leftfold, NewEvent};
use leftfold_sqlite::{InTransaction as _, Sqlite};
use rusqlite::{Connection, TransactionBehavior};
use shopping_cart::CartEvent::{
    ProductItemAdded, ShoppingCartCanceled, ShoppingCartConfirmed, ShoppingCartOpened,
};
use shopping_cart::{Cart, CartDetails, CartEvent, Status};

type Failure = Box<dyn std::error::Error + Send + Sync>;

#[tokio::main]
#[expect(clippy::print_stdout, reason = "it is there to be seen")]
async fn main() -> Result<(), Failure> {
    let directory = tempfile::tempdir()?;
    let mails = shop(&directory.path().join("shop.db"), 12).await?;
    for (to, text) in &mails {
        println!("to {to}: {text}");
    }
    println!("{} mails", mails.len());
    Ok(())
}

/// Returns a reaction that writes a mail for each confirmed cart.
fn confirmation_mail(path: PathBuf) -> Reaction {
    Reaction::on(CartDetails, "confirmation-mail")
        .when(|cart| cart.status == Status::Confirmed)
        .retry(Retry::fixed(Duration::from_millis(20)).attempts(5))
        .run(move |ctx| {
            let path = path.clone();
            async move { tokio::task::spawn_blocking(move || write_mail(&path, &ctx)).await? }
        })
}

/// Writes a mail to the outbox and completes the task in one transaction.
fn write_mail(path: &Path, ctx: &Context<Cart>) -> Result<(), HandlerError> {
    let mut file = Connection::open(path)?;
    file.busy_timeout(Duration::from_secs(10))?;
    let transaction = file.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let cart = ctx.document_in(&transaction)?;
    let text = format!("your order {} of {} cents is confirmed", ctx.id(), cart.total);
    transaction.execute("INSERT INTO outbox VALUES (?1, ?2)", (&cart.client_id, text))?;
    ctx.complete_in(&transaction)?;
    match (ctx.attempt(), cart.total % 3) {
        (1, 1) => Err("a worker dies before its commit".into()),
        (1, 2) => {
            transaction.commit()?;
            Err("a worker dies before it reports success".into())
        }
        _ => Ok(transaction.commit()?),
    }
}

/// Fills and confirms this many carts, waits for the mails, and returns the outbox.
pub(crate) async fn shop(path: &Path, carts: u64) -> Result<Vec<(String, String)>, Failure> {
    let mut apps = Vec::new();
    for worker in ["one", "two", "three"] {
        let store = Sqlite::open(path).await?;
        if worker == "one" {
            Connection::open(path)?.execute_batch("CREATE TABLE outbox (recipient TEXT, text TEXT)")?;
        }
        let app = Leftfold::on(store).worker(worker).projection(CartDetails);
        apps.push(app.reaction(confirmation_mail(path.to_owned())).start().await?);
    }
    for number in 0..carts {
        let (cart, client) = (format!("cart-{number}"), format!("client-{}", number % 4));
        say(&apps[0], &cart, 0, ShoppingCartOpened { client_id: client.clone() }).await?;
        let (name, unit_price) = ("shoes".to_owned(), 4_900 + u32::try_from(number)?);
        say(
            &apps[0],
            &cart,
            1,
            ProductItemAdded { product_id: "shoes".into(), name, quantity: 1, unit_price },
        )
        .await?;
        let total = u64::from(unit_price);
        let end = if number % 5 == 4 {
            ShoppingCartCanceled { client_id: client }
        } else {
            ShoppingCartConfirmed { client_id: client, total }
        };
        // Append twice, through different processes, as if the first response was lost.
        say(&apps[1], &cart, 2, end.clone()).await?;
        say(&apps[2], &cart, 2, end).await?;
    }
    for app in &apps {
        app.caught_up().await?;
        if let Some(reacting) = app.reacting() {
            reacting.idle_within(Duration::from_secs(5)).await?;
            reacting.assert_no_failures().await?;
        }
    }
    for app in apps {
        app.stop().await;
    }
    let file = Connection::open(path)?;
    let mut outbox = file.prepare("SELECT recipient, text FROM outbox ORDER BY text")?;
    let outbox = outbox.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
    Ok(outbox.collect::<Result<_, _>>()?)
}

/// Appends an event of a cart under a fixed id, so that a repeated append has no effect.
async fn say(app: &App<Sqlite>, cart: &str, number: u64, event: CartEvent) -> Result<(), Failure> {
    let event = NewEvent::encode(&event)?.with_id(format!("{cart}-{number}"))?;
    app.append_events(cart, Expected::Any, vec![event]).await?;
    Ok(())
}

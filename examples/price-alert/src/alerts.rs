//! The complete service: the projection, its reactions and the API.

use std::net::SocketAddr;
use std::time::Duration;

use leftfold::content::Contents;
use leftfold::react::{Reaction, ReactionStore, Retry};
use leftfold::{App, IngestAnswer, Leftfold, Policy, ReadError, Result, Sequencer, Sequences, Store};

use crate::mail::{self, Mail};
use crate::price::{Price, Prices, Quote};
use crate::watch::{Limit, WATCHES, Watch, Watches};

/// A process that takes quotes and limits, and sends mails. Any number of processes may share a
/// store.
pub struct Alerts<S> {
    app: App<S>,
    sequencer: Sequencer<S>,
    watches: Watches<S>,
}

impl<S: Store + Sequences + ReactionStore + Contents> Alerts<S> {
    /// Starts on a store, with a mail server at this address.
    pub async fn start(store: S, server: SocketAddr) -> Result<Self> {
        // A reaction needs its collection, so this call creates the collection first.
        let watches = Watches::open(store.clone()).await?;
        let app = Leftfold::on(store.clone())
            .projection(Prices)
            .reaction(show_price(watches.clone()))
            .reaction(send_mail(server))
            .start()
            .await?;
        Ok(Self { app, sequencer: Sequencer::new(store), watches })
    }

    /// Ingests quotes, which may arrive repeatedly and in any order. They are durable when this
    /// returns.
    pub async fn deliver(&self, quotes: &[Quote]) -> Result<Vec<IngestAnswer>> {
        let deliveries = quotes.iter().map(Quote::delivery).collect::<Result<_>>()?;
        self.sequencer.ingest(Policy::Latest, deliveries).await
    }

    /// Creates or changes a customer's limit and compares it with the current price.
    ///
    /// The call is idempotent: retry it if it fails.
    pub async fn limit(&self, limit: &Limit) -> Result<(), ReadError> {
        self.watches.limit(limit).await?;
        if let Some(price) = self.price(&limit.product).await? {
            self.watches.show_to(&limit.customer, &limit.product, price).await?;
        }
        Ok(())
    }

    /// Returns the price of a product, if it is known.
    pub async fn price(&self, product: &str) -> Result<Option<Price>, ReadError> {
        self.app.get(Prices, product).await
    }

    /// Returns a customer's watch of a product.
    pub async fn watch(&self, customer: &str, product: &str) -> Result<Option<Watch>> {
        self.watches.get(customer, product).await
    }

    /// Waits until every process has folded all events and run all reactions. For tests.
    ///
    /// Fails if a mail could not be sent.
    pub async fn settled(&self) -> Result<()> {
        self.app.caught_up().await?;
        if let Some(reacting) = self.app.reacting() {
            reacting.idle_within(Duration::from_secs(10)).await?;
            reacting.assert_no_failures().await?;
        }
        Ok(())
    }

    /// Stops the process and waits for running handlers.
    pub async fn stop(&self) {
        self.app.stop().await;
    }
}

/// Shows each price to all watchers of the product. If prices follow each other quickly, it may see
/// only the last one.
fn show_price<S: Contents>(watches: Watches<S>) -> Reaction {
    Reaction::on(Prices, "show-price").watch(|price| price.revision).retry(patiently()).run(move |ctx| {
        let watches = watches.clone();
        async move {
            // The price may change from here on. The watchers then see this one late, which does no
            // harm.
            let price = ctx.document().await?;
            watches.show(ctx.id().as_str(), price).await?;
            Ok(())
        }
    })
}

/// Sends a mail for each drop. A retry sends the same mail: the id belongs to the drop, not to the
/// attempt.
fn send_mail(server: SocketAddr) -> Reaction {
    Reaction::on_plain(WATCHES, "mail")
        .when(|watch: &Watch| watch.below)
        .watch(|watch| watch.drops)
        .retry(patiently())
        .run(move |ctx| async move {
            let watch = ctx.document().await?;
            mail::send(server, &letter(&watch, &ctx.idempotency_key())).await?;
            Ok(())
        })
}

fn patiently() -> Retry {
    Retry::exponential(Duration::from_millis(100), Duration::from_mins(10)).attempts(20)
}

fn letter(watch: &Watch, key: &str) -> Mail {
    let Watch { email, product, limit, seen, drops, .. } = watch;
    let cents = seen.map_or(0, |price| price.cents);
    Mail {
        id: format!("{key}@price-alert"),
        to: email.clone(),
        subject: format!("{product} is below your limit (drop {drops})"),
        text: format!("It costs {}, your limit is {}.", money(cents), money(*limit)),
    }
}

fn money(cents: u64) -> String {
    format!("{}.{:02}", cents / 100, cents % 100)
}

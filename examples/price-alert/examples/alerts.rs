//! Sends one mail per price drop, although quotes arrive late or twice and the mail server fails.
//!
//! Run it with `cargo run -p price-alert --example alerts`.

use std::path::Path;

use leftfold::revision::Clock;
use leftfold::{IngestAnswer, Sequences, Store, content::Contents, react::ReactionStore};
use leftfold_sqlite::Sqlite;
use price_alert::mail::{Sink, Trouble};
use price_alert::{Alerts, Limit, Quote};

type Failure = Box<dyn std::error::Error + Send + Sync>;

#[tokio::main]
#[expect(clippy::print_stdout, reason = "it is there to be seen")]
async fn main() -> Result<(), Failure> {
    let directory = tempfile::tempdir()?;
    for line in story(&directory.path().join("shop.db")).await? {
        println!("{line}");
    }
    Ok(())
}

/// Plays the story and returns it line by line.
pub(crate) async fn story(path: &Path) -> Result<Vec<String>, Failure> {
    let sink = Sink::start().await?;
    let alerts = Alerts::start(Sqlite::open(path).await?, sink.address()).await?;
    let mut teller = Teller { alerts, sink, told: 0, lines: Vec::new() };

    teller.limit("ann", 5_000).await?;
    teller.limit("bob", 4_000).await?;

    // The producer draws a revision with each price. Deliveries may then arrive twice or out of
    // order.
    let clock = Clock::new();
    let [first, second, third, fourth, fifth] =
        [5_500, 4_900, 3_900, 5_200, 4_500].map(|cents| Quote::now(&clock, "shoes", cents));
    teller.deliver("the second price", &second).await?;
    teller.deliver("the first price", &first).await?;
    teller.deliver("the second price", &second).await?;
    teller.deliver("the fourth price", &fourth).await?;
    teller.deliver("the third price", &third).await?;

    teller.sink.trouble([Trouble::Refuses, Trouble::HangsUp]);
    teller.deliver("the fifth price", &fifth).await?;
    teller.limit("carl", 4_600).await?;

    let Teller { alerts, sink, told, mut lines } = teller;
    alerts.stop().await;
    let (sent, again) = (sink.heard().len(), sink.duplicates());
    lines.push(format!("{told} mails, sent {sent} times; {again} of them had come before"));
    Ok(lines)
}

struct Teller<S> {
    alerts: Alerts<S>,
    sink: Sink,
    /// The number of mails already reported.
    told: usize,
    lines: Vec<String>,
}

impl<S: Store + Sequences + ReactionStore + Contents> Teller<S> {
    async fn limit(&mut self, customer: &str, cents: u64) -> Result<(), Failure> {
        let (email, product) = (format!("{customer}@example.org"), "shoes".to_owned());
        self.lines.push(format!("{customer} asks for shoes below {cents} cents"));
        self.alerts.limit(&Limit { customer: customer.to_owned(), email, product, cents }).await?;
        self.tell_mails().await
    }

    async fn deliver(&mut self, name: &str, quote: &Quote) -> Result<(), Failure> {
        let answers = self.alerts.deliver(std::slice::from_ref(quote)).await?;
        let said = match answers[..] {
            [IngestAnswer::Appended(_)] => "is the latest",
            [IngestAnswer::Duplicate(_)] => "came before",
            [IngestAnswer::Stale { .. }] => "is older than what is known",
            _ => "is not what it should be",
        };
        self.lines.push(format!("{name}, {} cents, {said}", quote.cents));
        self.tell_mails().await
    }

    async fn tell_mails(&mut self) -> Result<(), Failure> {
        self.alerts.settled().await?;
        for mail in self.sink.mails().split_off(self.told) {
            self.told += 1;
            self.lines.push(format!("  to {}: {}. {}", mail.to, mail.subject, mail.text));
        }
        Ok(())
    }
}

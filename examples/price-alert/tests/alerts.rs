//! Checks that each drop below a limit sends one mail, whatever the feed does. The oracle shares no
//! code with the example.

#![allow(clippy::unwrap_used, reason = "a step that fails fails the test")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use leftfold::content::Contents;
use leftfold::react::ReactionStore;
use leftfold::revision::Clock;
use leftfold::testing::spec;
use leftfold::{IngestAnswer, Memory, Revision, Sequences, Store};
use leftfold_sqlite::Sqlite;
use price_alert::mail::{Sink, Trouble};
use price_alert::{Alerts, Limit, Price, PriceEvent, Prices, Quote};
use tempfile::TempDir;
use tokio::task::JoinSet;

const CUSTOMERS: [&str; 4] = ["ann", "bob", "carl", "dora"];
const PRODUCTS: [&str; 3] = ["shoes", "socks", "a hat / two"];

/// A customer and a product.
type Key = (String, String);

#[test]
fn a_price_is_what_the_latest_quote_says() {
    spec(Prices)
        .given("shoes", [PriceEvent::PriceSet { cents: 5_500 }, PriceEvent::PriceSet { cents: 4_900 }])
        .then("shoes", Price { cents: 4_900, revision: Revision(2) })
        .holds_under_chaos();
}

#[tokio::test(flavor = "multi_thread")]
async fn step_by_step_each_drop_is_told_once_in_memory() {
    for seed in 1..=3 {
        step_by_step(Memory::default(), seed).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn step_by_step_each_drop_is_told_once_in_sqlite() {
    let directory = tempfile::tempdir().unwrap();
    step_by_step(sqlite(&directory).await, 4).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn all_at_once_no_drop_is_told_twice_in_memory() {
    for seed in 1..=3 {
        let store = Memory::default();
        all_at_once(vec![store.clone(), store.clone(), store], seed).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn all_at_once_no_drop_is_told_twice_in_sqlite() {
    let directory = tempfile::tempdir().unwrap();
    let stores = vec![sqlite(&directory).await, sqlite(&directory).await, sqlite(&directory).await];
    all_at_once(stores, 4).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mail_that_is_tried_again_is_the_same_mail() {
    let sink = Sink::start().await.unwrap();
    let alerts = Alerts::start(Memory::default(), sink.address()).await.unwrap();
    alerts.limit(&limit("ann", "shoes", 5_000)).await.unwrap();
    sink.trouble([Trouble::Refuses, Trouble::HangsUp]);
    alerts.deliver(&[Quote::now(&Clock::new(), "shoes", 4_900)]).await.unwrap();
    alerts.settled().await.unwrap();
    let heard = sink.heard();
    assert_eq!(heard, vec![heard[0].clone(); 3], "refused, taken in silence, taken before");
    assert_eq!((sink.mails().len(), sink.duplicates()), (1, 1));
    alerts.stop().await;
}

async fn sqlite(directory: &TempDir) -> Sqlite {
    Sqlite::open(directory.path().join("shop.db")).await.unwrap()
}

fn limit(customer: &str, product: &str, cents: u64) -> Limit {
    let (customer, product) = (customer.to_owned(), product.to_owned());
    Limit { email: format!("{customer}@example.org"), customer, product, cents }
}

/// Random numbers that repeat for the same seed.
struct Dice(u64);

impl Dice {
    /// Returns a number below `sides`.
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % sides
    }

    fn pick<T: Clone>(&mut self, of: &[T]) -> T {
        of[self.roll(of.len())].clone()
    }

    /// Picks from few prices, so that prices often repeat and often equal the limit.
    fn cents(&mut self) -> u64 {
        self.pick(&[4_000, 4_500, 5_000, 5_500, 6_000])
    }

    fn shuffle<T>(&mut self, of: &mut [T]) {
        for at in (1..of.len()).rev() {
            of.swap(at, self.roll(at + 1));
        }
    }
}

/// Returns the drops in the mails of each watch, in order of arrival.
fn told(sink: &Sink) -> BTreeMap<Key, Vec<u64>> {
    let mut told = BTreeMap::<_, Vec<_>>::new();
    for mail in sink.mails() {
        let customer = mail.to.strip_suffix("@example.org").unwrap().to_owned();
        let (product, drop) = mail.subject.split_once(" is below your limit (drop ").unwrap();
        let drop = drop.strip_suffix(')').unwrap().parse().unwrap();
        told.entry((customer, product.to_owned())).or_default().push(drop);
    }
    told
}

/// The expected state, computed in the simplest way.
#[derive(Default)]
struct Oracle {
    prices: BTreeMap<String, (Revision, u64)>,
    limits: BTreeMap<Key, u64>,
    below: BTreeSet<Key>,
    drops: BTreeMap<Key, u64>,
}

impl Oracle {
    fn quote(&mut self, quote: &Quote) {
        let latest = (quote.revision, quote.cents);
        let price = self.prices.entry(quote.product.clone()).or_insert(latest);
        *price = latest.max(*price);
        self.look();
    }

    fn limit(&mut self, limit: &Limit) {
        self.limits.insert((limit.customer.clone(), limit.product.clone()), limit.cents);
        self.look();
    }

    fn look(&mut self) {
        for (key, limit) in &self.limits {
            let is_below = self.prices.get(&key.1).is_some_and(|(_, cents)| cents < limit);
            if !is_below {
                self.below.remove(key);
            } else if self.below.insert(key.clone()) {
                *self.drops.entry(key.clone()).or_default() += 1;
            }
        }
    }
}

/// Checks after every step, while quotes arrive late or twice and customers change their limits.
async fn step_by_step<S: Store + Sequences + ReactionStore + Contents>(store: S, seed: u64) {
    let (mut dice, clock, mut oracle) = (Dice(seed), Clock::new(), Oracle::default());
    let sink = Sink::start().await.unwrap();
    let alerts = Alerts::start(store, sink.address()).await.unwrap();
    let (mut under_way, mut delivered) = (Vec::new(), Vec::new());
    for step in 0..60 {
        if dice.roll(4) == 0 {
            let (customer, product) = (dice.pick(&CUSTOMERS), dice.pick(&PRODUCTS));
            let limit = limit(customer, product, dice.cents());
            alerts.limit(&limit).await.unwrap();
            oracle.limit(&limit);
        } else {
            under_way.push(Quote::now(&clock, dice.pick(&PRODUCTS), dice.cents()));
            let quote = if dice.roll(5) == 0 && !delivered.is_empty() {
                dice.pick(&delivered)
            } else {
                under_way.swap_remove(dice.roll(under_way.len()))
            };
            alerts.deliver(std::slice::from_ref(&quote)).await.unwrap();
            oracle.quote(&quote);
            delivered.push(quote);
        }
        alerts.settled().await.unwrap();
        let expected = oracle.drops.iter().map(|(key, drops)| (key.clone(), (1..=*drops).collect()));
        let expected: BTreeMap<Key, Vec<u64>> = expected.collect();
        assert_eq!(told(&sink), expected, "seed {seed}, step {step}");
    }
    assert!(oracle.drops.values().sum::<u64>() > 5, "seed {seed}: this tells nothing");
    again(&alerts, &sink, &delivered).await;
    alerts.stop().await;
}

/// Delivering old quotes again sends no mail.
async fn again<S: Store + Sequences + ReactionStore + Contents>(
    alerts: &Alerts<S>,
    sink: &Sink,
    quotes: &[Quote],
) {
    let before = sink.heard();
    let answers = alerts.deliver(quotes).await.unwrap();
    let is_old =
        |answer: &IngestAnswer| matches!(answer, IngestAnswer::Duplicate(_) | IngestAnswer::Stale { .. });
    assert!(answers.iter().all(is_old), "{answers:?}");
    alerts.settled().await.unwrap();
    assert_eq!(sink.heard(), before);
}

/// Delivers all quotes twice, in random order and to several processes, while customers set limits.
async fn all_at_once<S: Store + Sequences + ReactionStore + Contents>(stores: Vec<S>, seed: u64) {
    let (mut dice, clock) = (Dice(seed), Clock::new());
    let sink = Sink::start().await.unwrap();
    let mut workers = Vec::new();
    for store in stores {
        workers.push(Arc::new(Alerts::start(store, sink.address()).await.unwrap()));
    }
    let quotes: Vec<_> = (0..120).map(|_| Quote::now(&clock, dice.pick(&PRODUCTS), dice.cents())).collect();
    let pairs = CUSTOMERS.iter().flat_map(|customer| PRODUCTS.map(|product| (customer, product)));
    let mut limits: Vec<_> =
        pairs.map(|(customer, product)| limit(customer, product, dice.cents())).collect();
    let late = limits.split_off(limits.len() / 2);
    for limit in &limits {
        workers[0].limit(limit).await.unwrap();
    }

    let mut deliveries = [quotes.clone(), quotes.clone()].concat();
    dice.shuffle(&mut deliveries);
    let mut tasks = JoinSet::new();
    for (number, batch) in deliveries.chunks(7).enumerate() {
        let (worker, batch) = (workers[number % workers.len()].clone(), batch.to_vec());
        tasks.spawn(async move { drop(worker.deliver(&batch).await.unwrap()) });
        if let Some(limit) = late.get(number).cloned() {
            let worker = workers[(number + 1) % workers.len()].clone();
            tasks.spawn(async move { worker.limit(&limit).await.unwrap() });
        }
    }
    while let Some(ended) = tasks.join_next().await {
        ended.unwrap();
    }
    for worker in &workers {
        worker.settled().await.unwrap();
    }

    let told = told(&sink);
    for Limit { customer, product, cents: limit, .. } in limits.iter().chain(&late) {
        let of_product = || quotes.iter().filter(|quote| quote.product == *product);
        let last = of_product().max_by_key(|quote| quote.revision).unwrap();
        let price = Price { cents: last.cents, revision: last.revision };
        assert_eq!(workers[0].price(product).await.unwrap(), Some(price), "seed {seed}: {product}");

        let watch = workers[0].watch(customer, product).await.unwrap().unwrap();
        assert_eq!((watch.seen, watch.below), (Some(price), price.cents < *limit), "seed {seed}: {watch:?}");
        // The watch has seen a subset of all prices, so it can't have dropped more often.
        let is_below: Vec<_> = of_product().map(|quote| quote.cents < *limit).collect();
        let before = std::iter::once(&false).chain(&is_below);
        let drops = before.zip(&is_below).filter(|(before, is)| **is && !**before).count() as u64;
        assert!(watch.drops <= drops, "seed {seed}: {watch:?} has dropped {drops} times");

        let told = told.get(&(customer.clone(), product.clone())).cloned().unwrap_or_default();
        let once: BTreeSet<_> = told.iter().copied().collect();
        assert_eq!(once.len(), told.len(), "seed {seed}: {watch:?} was told {told:?}");
        assert!(once.iter().all(|drop| *drop <= watch.drops), "seed {seed}: {watch:?} was told {told:?}");
        assert!(!watch.below || once.contains(&watch.drops), "seed {seed}: {watch:?} was told {told:?}");
    }
    again(&workers[0], &sink, &quotes).await;
    for worker in workers {
        worker.stop().await;
    }
}

//! Watches: the customers' limits, as documents without events.

use std::collections::BTreeSet;

use leftfold::content::{Contents, Versioned};
use leftfold::{Invalid, Result};
use serde::{Deserialize, Serialize};

use crate::price::Price;

/// A customer's request: a mail whenever a product's price drops below a limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limit {
    /// The customer.
    pub customer: String,
    /// The address for mails.
    pub email: String,
    /// The product.
    pub product: String,
    /// The limit, in cents.
    pub cents: u64,
}

/// A customer's watch of a product: the limit, and the prices seen so far.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Watch {
    /// The customer.
    pub customer: String,
    /// The address for mails.
    pub email: String,
    /// The product.
    pub product: String,
    /// The limit, in cents.
    pub limit: u64,
    /// The last price seen, with its revision.
    pub seen: Option<Price>,
    /// `true` if that price is below the limit.
    pub below: bool,
    /// The number of times the price has dropped below the limit.
    pub drops: u64,
}

impl Watch {
    /// Returns the watch with a new or changed limit. Repeating the call changes nothing.
    #[must_use]
    pub fn limited(watch: Option<Self>, limit: &Limit) -> Self {
        let Limit { customer, email, product, cents } = limit.clone();
        let (seen, below, drops) = watch.map_or((None, false, 0), |it| (it.seen, it.below, it.drops));
        Self { customer, email, product, limit: cents, seen, below, drops }.judged()
    }

    /// Returns the watch after it has seen a price. A price that is not newer than the last one
    /// changes nothing, so callers may be late or repeat the call.
    #[must_use]
    pub fn shown(self, price: Price) -> Self {
        match self.seen {
            Some(seen) if seen.revision >= price.revision => self,
            _ => Self { seen: Some(price), ..self }.judged(),
        }
    }

    fn judged(self) -> Self {
        let below = self.seen.is_some_and(|price| price.cents < self.limit);
        let drops = self.drops + u64::from(below && !self.below);
        Self { below, drops, ..self }
    }
}

/// The customers who watch a product.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Watchers {
    customers: BTreeSet<String>,
}

/// The watches of all customers, and the watchers of each product.
#[derive(Clone, Debug)]
pub struct Watches<S> {
    watches: Versioned<Watch, S>,
    watchers: Versioned<Watchers, S>,
}

/// The name of the collection of watches.
pub(crate) const WATCHES: &str = "watches";

impl<S: Contents> Watches<S> {
    /// Opens the watches in a store.
    pub async fn open(store: S) -> Result<Self> {
        let watches = Versioned::new(store.clone(), WATCHES).await?;
        Ok(Self { watches, watchers: Versioned::new(store, "watchers").await? })
    }

    /// Returns a watch, if it exists.
    pub async fn get(&self, customer: &str, product: &str) -> Result<Option<Watch>> {
        Ok(self.watches.get(&id(customer, product)?).await?.map(|current| current.document))
    }

    /// Creates or changes a customer's watch.
    ///
    /// From then on [`show`](Self::show) finds it. The caller must [show it](Self::show_to) the
    /// current price, and must read that price after this call. A price that is set later reaches
    /// the watch through `show`.
    pub async fn limit(&self, limit: &Limit) -> Result<()> {
        let id = id(&limit.customer, &limit.product)?;
        // Update the list first: a listed customer without a watch does no harm, but `show` would
        // never find a watch that is not listed.
        let listed = |watchers: Option<Watchers>| {
            let mut watchers = watchers.unwrap_or_default();
            watchers.customers.insert(limit.customer.clone());
            Ok(Some(watchers))
        };
        self.watchers.change(&limit.product, listed).await?;
        self.watches.change(&id, |watch| Ok(Some(Watch::limited(watch, limit)))).await?;
        Ok(())
    }

    /// Shows the price of a product to all its watchers. It can be repeated after a failure: a
    /// watch that has seen the price does not change.
    pub async fn show(&self, product: &str, price: Price) -> Result<()> {
        let watchers = self.watchers.get(product).await?.map(|current| current.document);
        for customer in watchers.unwrap_or_default().customers {
            self.show_to(&customer, product, price).await?;
        }
        Ok(())
    }

    /// Shows the price of a product to one watcher.
    pub async fn show_to(&self, customer: &str, product: &str, price: Price) -> Result<()> {
        let id = id(customer, product)?;
        self.watches.change(&id, |watch| Ok(watch.map(|watch| watch.shown(price)))).await?;
        Ok(())
    }
}

/// Returns the id of a watch. Product names may contain any character.
fn id(customer: &str, product: &str) -> Result<String, Invalid> {
    if customer.contains('/') {
        return Err(Invalid::new("customer", customer, "a name without /"));
    }
    Ok(format!("{customer}/{product}"))
}

#[cfg(test)]
mod tests {
    use leftfold::Revision;

    use super::*;

    fn limit(cents: u64) -> Limit {
        let (customer, email) = ("ann".to_owned(), "ann@example.org".to_owned());
        Limit { customer, email, product: "shoes".to_owned(), cents }
    }

    fn price(revision: u64, cents: u64) -> Price {
        Price { cents, revision: Revision(revision) }
    }

    fn said(watch: &Watch) -> (bool, u64) {
        (watch.below, watch.drops)
    }

    #[test]
    fn each_drop_below_the_limit_is_counted_once() {
        let watch = Watch::limited(None, &limit(5_000));
        assert_eq!(said(&watch), (false, 0), "nothing is known of the price");
        let watch = watch.shown(price(10, 5_000));
        assert_eq!(said(&watch), (false, 0), "the limit itself is not below");
        let watch = watch.shown(price(20, 4_900)).shown(price(30, 4_800));
        assert_eq!(said(&watch), (true, 1), "it was below before");
        let watch = watch.shown(price(40, 5_100)).shown(price(50, 4_700));
        assert_eq!(said(&watch), (true, 2));
    }

    #[test]
    fn what_is_not_newer_changes_nothing() {
        let watch = Watch::limited(None, &limit(5_000)).shown(price(20, 4_900));
        for old in [price(20, 4_900), price(20, 9_900), price(10, 9_900)] {
            assert_eq!(watch.clone().shown(old), watch);
        }
    }

    #[test]
    fn another_limit_is_held_against_the_last_price() {
        let watch = Watch::limited(None, &limit(4_000)).shown(price(10, 4_900));
        let raised = Watch::limited(Some(watch), &limit(5_000));
        assert_eq!(said(&raised), (true, 1));
        assert_eq!(Watch::limited(Some(raised.clone()), &limit(5_000)), raised, "asked for twice");
        let lowered = Watch::limited(Some(raised), &limit(4_500));
        assert_eq!(said(&lowered), (false, 1));
    }

    #[test]
    fn no_two_watches_have_the_same_id() {
        assert_eq!(id("ann", "b/c").unwrap(), "ann/b/c");
        assert!(id("ann/b", "c").is_err());
    }
}

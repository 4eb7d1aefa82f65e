//! One event, two documents: one for its day, and one for all days.

use leftfold::fold::DocumentIds;
use leftfold::{Event, Projection, Route, fold};
use serde::{Deserialize, Serialize};

/// The sales of a day, or of all days.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the names say it")]
pub struct Totals {
    pub carts: u64,
    /// In cents.
    pub revenue: u64,
}

/// The only event that counts here.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[expect(missing_docs, reason = "the names say it")]
pub enum Sale {
    ShoppingCartConfirmed { total: u64 },
}

/// Folds sales into a [`Totals`] per day (UTC), such as `2026-03-01`, and one of all days, `all`.
#[derive(Clone, Copy, Debug)]
pub struct DailyTotals;

impl Projection for DailyTotals {
    type Event = Sale;
    type Document = Totals;

    fn name(&self) -> &'static str {
        "daily_totals"
    }

    fn route(&self) -> Route<Sale> {
        Route::by(|event: &Event<Sale>| {
            DocumentIds::many([event.time.strftime("%F").to_string().as_str(), "all"])
        })
    }

    fn fold(&self, totals: Option<Totals>, event: &Event<Sale>) -> Result<Option<Totals>, fold::Error> {
        let Sale::ShoppingCartConfirmed { total } = event.data;
        let Totals { carts, revenue } = totals.unwrap_or_default();
        let revenue = revenue.checked_add(total).ok_or("the revenue exceeds the limit")?;
        Ok(Some(Totals { carts: carts + 1, revenue }))
    }
}

//! Prices: the quotes of a producer, and the read model folded from them.

use std::sync::Arc;

use jiff::Timestamp;
use leftfold::log::Entry;
use leftfold::revision::Clock;
use leftfold::{Delivery, Event, EventId, NewEvent, Projection, Result, Revision, StreamId, fold};
use serde::{Deserialize, Serialize};

/// An event of a product; each product is a stream. Events carry the full state, not a change, so
/// only the latest counts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PriceEvent {
    /// The price from now on.
    PriceSet {
        /// The price in cents.
        cents: u64,
    },
}

/// A price as its producer publishes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quote {
    /// The product.
    pub product: String,
    /// The price in cents.
    pub cents: u64,
    /// Orders two quotes of a product, whatever order they arrive in.
    pub revision: Revision,
}

impl Quote {
    /// Creates a quote with the next revision of the producer's clock.
    pub fn now(clock: &Clock, product: &str, cents: u64) -> Self {
        Self { product: product.to_owned(), cents, revision: clock.next() }
    }

    /// Returns the quote as a delivery, which is the same on each call.
    pub fn delivery(&self) -> Result<Delivery> {
        let Self { product, cents, revision } = self;
        let event = NewEvent::encode(&PriceEvent::PriceSet { cents: *cents })?;
        // The high digits of a clock revision are the milliseconds at which it was drawn.
        let time = Timestamp::from_millisecond((revision.0 / 1_000_000).cast_signed());
        let entry = Entry {
            id: EventId::new(format!("{product}@{revision}"))?,
            kind: event.kind,
            time: time.unwrap_or(Timestamp::UNIX_EPOCH),
            data: event.data,
            metadata: None,
        };
        let stream = StreamId::new(product)?;
        Ok(Delivery { stream, revision: Some(*revision), previous: None, entry: Arc::new(entry) })
    }
}

/// The current price of each product.
#[derive(Clone, Copy, Debug)]
pub struct Prices;

/// The price of a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Price {
    /// The price in cents.
    pub cents: u64,
    /// The revision of the quote that set it.
    pub revision: Revision,
}

impl Projection for Prices {
    type Event = PriceEvent;
    type Document = Price;

    fn name(&self) -> &'static str {
        "prices"
    }

    fn fold(&self, _: Option<Price>, event: &Event<PriceEvent>) -> Result<Option<Price>, fold::Error> {
        let PriceEvent::PriceSet { cents } = event.data;
        Ok(Some(Price { cents, revision: event.revision }))
    }
}

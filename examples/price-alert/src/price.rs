//! Prices: as their producer tells them, and as they are known here.

use std::sync::Arc;

use jiff::Timestamp;
use leftfold::log::Entry;
use leftfold::revision::Clock;
use leftfold::{Delivery, Event, EventId, NewEvent, Projection, Result, Revision, StreamId, fold};
use serde::{Deserialize, Serialize};

/// What is told of a product, which is a stream of its own. It is all there is to know, not a change of it: so only the latest counts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PriceEvent {
    /// It costs so much from now on.
    PriceSet {
        /// Cents.
        cents: u64,
    },
}

/// A price as its producer tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quote {
    /// The product.
    pub product: String,
    /// What it costs, in cents.
    pub cents: u64,
    /// Tells which of two quotes is the later one, in whatever order they arrive.
    pub revision: Revision,
}

impl Quote {
    /// A quote as of now, with the next revision of the producer's clock.
    pub fn now(clock: &Clock, product: &str, cents: u64) -> Self {
        Self { product: product.to_owned(), cents, revision: clock.next() }
    }

    /// The quote as a feed brings it: the same each time it does.
    pub fn delivery(&self) -> Result<Delivery> {
        let Self { product, cents, revision } = self;
        let event = NewEvent::encode(&PriceEvent::PriceSet { cents: *cents })?;
        // A revision of the clock begins with the milliseconds at which it was drawn.
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

/// What a product costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Price {
    /// Cents.
    pub cents: u64,
    /// The revision of the quote that said so.
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

//! Documents that are created and deleted: each client's open carts.

use std::collections::BTreeSet;

use leftfold::fold::DocumentIds;
use leftfold::{Event, Projection, Route, fold};
use serde::{Deserialize, Serialize};

use crate::Visit;

/// The open carts of a client, at least one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Open {
    /// The streams of the carts.
    pub carts: BTreeSet<String>,
}

/// Folds the events of all carts of a client into an [`Open`]. Confirming or canceling the last
/// cart deletes the document; opening another one creates it again.
#[derive(Clone, Copy, Debug)]
pub struct OpenCarts;

impl Projection for OpenCarts {
    type Event = Visit;
    type Document = Open;

    fn name(&self) -> &'static str {
        "open_carts"
    }

    fn route(&self) -> Route<Visit> {
        Route::by(|event: &Event<Visit>| DocumentIds::one(event.data.client_id()))
    }

    fn fold(&self, open: Option<Open>, event: &Event<Visit>) -> Result<Option<Open>, fold::Error> {
        let mut open = open.unwrap_or_default();
        match event.data {
            Visit::ShoppingCartOpened { .. } => open.carts.insert(event.stream.to_string()),
            Visit::ShoppingCartConfirmed { .. } | Visit::ShoppingCartCanceled { .. } => {
                open.carts.remove(event.stream.as_str())
            }
        };
        Ok(if open.carts.is_empty() { None } else { Some(open) })
    }
}

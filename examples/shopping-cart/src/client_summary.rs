//! Many carts, one document per client.

use leftfold::fold::DocumentIds;
use leftfold::{Event, Projection, Route, fold};
use serde::{Deserialize, Serialize};

/// A client's activity so far.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the names say it")]
pub struct Client {
    pub opened: u64,
    pub confirmed: u64,
    pub canceled: u64,
    /// In cents.
    pub spent: u64,
}

/// The events that concern a client. A projection declares only the events it needs; the others are
/// not even decoded.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case", rename_all_fields = "camelCase")]
#[expect(missing_docs, reason = "the names say it")]
pub enum Visit {
    ShoppingCartOpened { client_id: String },
    ShoppingCartConfirmed { client_id: String, total: u64 },
    ShoppingCartCanceled { client_id: String },
}

impl Visit {
    /// Returns the owner of the cart.
    pub fn client_id(&self) -> &str {
        match self {
            Self::ShoppingCartOpened { client_id }
            | Self::ShoppingCartConfirmed { client_id, .. }
            | Self::ShoppingCartCanceled { client_id } => client_id,
        }
    }
}

/// Folds the events of all carts of a client into a [`Client`].
#[derive(Clone, Copy, Debug)]
pub struct ClientSummary;

impl Projection for ClientSummary {
    type Event = Visit;
    type Document = Client;

    fn name(&self) -> &'static str {
        "client_summary"
    }

    fn route(&self) -> Route<Visit> {
        Route::by(|event: &Event<Visit>| DocumentIds::one(event.data.client_id()))
    }

    fn fold(&self, client: Option<Client>, event: &Event<Visit>) -> Result<Option<Client>, fold::Error> {
        let mut client = client.unwrap_or_default();
        match &event.data {
            Visit::ShoppingCartOpened { .. } => client.opened += 1,
            Visit::ShoppingCartConfirmed { total, .. } => {
                client.confirmed += 1;
                client.spent =
                    client.spent.checked_add(*total).ok_or("the client's spending exceeds the limit")?;
            }
            Visit::ShoppingCartCanceled { .. } => client.canceled += 1,
        }
        Ok(Some(client))
    }
}

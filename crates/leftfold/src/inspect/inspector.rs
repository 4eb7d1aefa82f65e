//! Inspection of every collection of a store, without the code of its projection.

use serde::de::DeserializeOwned;

use super::doctor::{self, Examine, Finding};
use super::parked::parked_units;
use super::status::{ProjectionStatus, stored_status};
use crate::app::Unit;
use crate::documents::{Collection, Get, Parked};
use crate::env::System;
use crate::error::Result;
use crate::sequence::Sequences;
use crate::store::Store;

/// Inspects every collection of a store. An [`App`](crate::App) knows the projections of one
/// application; an inspector needs no code, and so can't fold events.
///
/// ```
/// # use leftfold::{Event, Leftfold, Memory, Projection, fold};
/// use leftfold::inspect::Inspector;
/// # use serde::{Deserialize, Serialize};
/// # #[derive(Serialize, Deserialize)]
/// # #[serde(rename_all = "kebab-case")]
/// # enum Cart { ItemAdded }
/// # #[derive(Serialize, Deserialize)]
/// # struct Details { items: u32 }
/// # struct CartDetails;
/// # impl Projection for CartDetails {
/// #     type Event = Cart;
/// #     type Document = Details;
/// #     fn name(&self) -> &str { "cart_details" }
/// #     fn fold(&self, cart: Option<Details>, _: &Event<Cart>) -> Result<Option<Details>, fold::Error> {
/// #         Ok(Some(Details { items: cart.map_or(0, |cart| cart.items) + 1 }))
/// #     }
/// # }
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let store = Memory::default();
/// # let app = Leftfold::on(store.clone()).projection(CartDetails).start().await?;
/// # app.append("cart-42", [Cart::ItemAdded]).await?;
/// # app.caught_up().await?;
/// let inspector = Inspector::on(store);
/// let status = inspector.status().await?;
/// assert_eq!((status[0].projection.as_str(), status[0].documents), ("cart_details", 1));
/// let cart: Option<serde_json::Value> = inspector.get("cart_details", "cart-42").await?;
/// assert_eq!(cart, Some(serde_json::json!({ "items": 1 })));
/// # app.stop().await;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Inspector<S> {
    store: S,
}

impl<S: Store + Examine> Inspector<S> {
    /// Creates an inspector of a store.
    pub fn on(store: S) -> Self {
        Self { store }
    }

    /// Returns the underlying store.
    pub fn store(&self) -> &S {
        &self.store
    }

    /// Returns the collections of all projections that have run on the store, by name.
    pub async fn collections(&self) -> Result<Vec<Collection>> {
        self.store.collections().await
    }

    /// Returns the status of every collection. A status needs code to compare versions: here the
    /// version is empty, and `rebuild_needed` is always `false`.
    pub async fn status(&self) -> Result<Vec<ProjectionStatus>> {
        let head = self.store.heads().await?;
        let mut all = Vec::new();
        for name in self.collections().await? {
            all.push(stored_status(&self.store, &name, head.clone()).await?);
        }
        Ok(all)
    }

    /// Reads a document as any type it deserializes to.
    pub fn get<D: DeserializeOwned>(&self, collection: &str, id: &str) -> Get<S, D> {
        Get::new(self.store.clone(), collection, id)
    }

    /// Returns at most `most` parked units of a collection, after a unit: streams first, then
    /// documents by id.
    pub async fn parked(
        &self,
        collection: &Collection,
        after: Option<&Unit>,
        most: usize,
    ) -> Result<Vec<(Unit, Parked)>> {
        parked_units(&self.store, collection, after, most).await
    }
}

impl<S: Store + Examine + Sequences> Inspector<S> {
    /// Checks the store, every collection, the deliveries held before the log, and the reactions,
    /// as [`App::doctor`](crate::App::doctor) does for the projections of an application.
    pub async fn doctor(&self) -> Result<Vec<Finding>> {
        let mut findings = doctor::look_over(&self.store, &System).await?;
        for name in self.collections().await? {
            let status = async || stored_status(&self.store, &name, self.store.heads().await?).await;
            findings.extend(doctor::look_at(&self.store, &System, &name, status).await);
        }
        Ok(findings)
    }
}

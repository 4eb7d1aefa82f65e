//! One cart, one document.

use std::collections::BTreeMap;

use jiff::Timestamp;
use leftfold::{Event, Projection, fold};
use serde::{Deserialize, Serialize};

use crate::CartEvent;
use crate::CartEvent::{
    ProductItemAdded, ProductItemRemoved, ShoppingCartCanceled, ShoppingCartConfirmed, ShoppingCartOpened,
};

/// The contents of a cart. Canceling the cart deletes the document; opening it again creates a new
/// one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[expect(missing_docs, reason = "the names say it")]
pub struct Cart {
    pub client_id: String,
    pub status: Status,
    /// The items by product.
    pub items: BTreeMap<String, Item>,
    /// In cents.
    pub total: u64,
    pub confirmed_at: Option<Timestamp>,
}

/// One product in a cart.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[expect(missing_docs, reason = "the names say it")]
pub struct Item {
    pub name: String,
    pub quantity: u32,
    /// The last price it was added at, in cents.
    pub unit_price: u32,
}

/// The state of a cart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[expect(missing_docs, reason = "the names say it")]
pub enum Status {
    Open,
    Confirmed,
}

/// Folds the events of each cart into a [`Cart`].
#[derive(Clone, Copy, Debug)]
pub struct CartDetails;

impl Projection for CartDetails {
    type Event = CartEvent;
    type Document = Cart;

    fn name(&self) -> &'static str {
        "cart_details"
    }

    fn fold(&self, cart: Option<Cart>, event: &Event<CartEvent>) -> Result<Option<Cart>, fold::Error> {
        let Some(mut cart) = cart else {
            return match &event.data {
                ShoppingCartOpened { client_id } => Ok(Some(Cart::open(client_id))),
                _ => Err("the cart is not open".into()),
            };
        };
        if cart.status == Status::Confirmed {
            return Err("the cart is confirmed already".into());
        }
        match &event.data {
            ShoppingCartOpened { .. } => return Err("the cart is open already".into()),
            ProductItemAdded { product_id, name, quantity, unit_price } => {
                cart.add(product_id, name, *quantity, *unit_price)?;
            }
            ProductItemRemoved { product_id, quantity } => cart.remove(product_id, *quantity)?,
            ShoppingCartConfirmed { .. } => {
                cart.status = Status::Confirmed;
                cart.confirmed_at = Some(event.time);
            }
            ShoppingCartCanceled { .. } => return Ok(None),
        }
        Ok(Some(cart))
    }
}

impl Cart {
    fn open(client_id: &str) -> Self {
        Self {
            client_id: client_id.to_owned(),
            status: Status::Open,
            items: BTreeMap::new(),
            total: 0,
            confirmed_at: None,
        }
    }

    fn add(
        &mut self,
        product_id: &str,
        name: &str,
        quantity: u32,
        unit_price: u32,
    ) -> Result<(), fold::Error> {
        if quantity == 0 {
            return Err(format!("0 of {product_id} can't be added").into());
        }
        let item = self.items.entry(product_id.to_owned()).or_insert_with(|| Item {
            name: name.to_owned(),
            quantity: 0,
            unit_price,
        });
        item.quantity = item.quantity.checked_add(quantity).ok_or("the quantity exceeds the limit")?;
        item.unit_price = unit_price;
        self.sum_up()
    }

    fn remove(&mut self, product_id: &str, quantity: u32) -> Result<(), fold::Error> {
        let item = self.items.get_mut(product_id).ok_or_else(|| format!("the cart has no {product_id}"))?;
        let present = item.quantity;
        item.quantity = present.checked_sub(quantity).ok_or_else(|| {
            format!("{quantity} of {product_id} can't be removed: the cart has only {present}")
        })?;
        if item.quantity == 0 {
            self.items.remove(product_id);
        }
        self.sum_up()
    }

    fn sum_up(&mut self) -> Result<(), fold::Error> {
        let mut prices =
            self.items.values().map(|item| u64::from(item.quantity) * u64::from(item.unit_price));
        self.total = prices.try_fold(0, u64::checked_add).ok_or("the total exceeds the limit")?;
        Ok(())
    }
}

//! A hand-written cart projection, for the references.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::report::Result;

/// A cart, folded by hand.
#[derive(Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Cart {
    client_id: String,
    status: String,
    items: BTreeMap<String, Item>,
    total: u64,
    confirmed_at: Option<i64>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Item {
    name: String,
    quantity: u32,
    unit_price: u32,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Opened {
    client_id: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Added {
    product_id: String,
    name: String,
    quantity: u32,
    unit_price: u32,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Removed {
    product_id: String,
    quantity: u32,
}

/// Folds an event into a cart.
pub(crate) fn fold(cart: Option<Cart>, kind: &str, data: &str, time: i64) -> Result<Option<Cart>> {
    if kind == "shopping-cart-opened" {
        let Opened { client_id } = serde_json::from_str(data)?;
        return Ok(Some(Cart { client_id, status: "open".to_owned(), ..Cart::default() }));
    }
    let Some(mut cart) = cart else { return Ok(None) };
    match kind {
        "product-item-added" => {
            let Added { product_id, name, quantity, unit_price } = serde_json::from_str(data)?;
            let item = cart.items.entry(product_id).or_insert(Item { name, quantity: 0, unit_price });
            item.quantity += quantity;
            item.unit_price = unit_price;
        }
        "product-item-removed" => {
            let Removed { product_id, quantity } = serde_json::from_str(data)?;
            if let Some(item) = cart.items.get_mut(&product_id) {
                item.quantity = item.quantity.saturating_sub(quantity);
                if item.quantity == 0 {
                    cart.items.remove(&product_id);
                }
            }
        }
        "shopping-cart-confirmed" => {
            "confirmed".clone_into(&mut cart.status);
            cart.confirmed_at = Some(time);
        }
        _ => return Ok(None),
    }
    cart.total = cart.items.values().map(|item| u64::from(item.quantity) * u64::from(item.unit_price)).sum();
    Ok(Some(cart))
}

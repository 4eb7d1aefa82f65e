//! The expected carts of the bystander.

use serde_json::{Value, json};

use crate::dice::Dice;

const TIME: &str = "2026-01-01T10:00:00Z";

/// A cart with all its events known.
#[derive(Clone, Debug)]
pub(crate) struct Cart {
    pub(crate) id: String,
    /// The number of items, if the cart is open.
    items: Option<usize>,
    /// The bookmark of the last append.
    pub(crate) bookmark: Option<String>,
}

/// An event of a cart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    Open,
    Add(usize),
    Cancel,
}

impl Cart {
    pub(crate) fn new(id: String) -> Self {
        Self { id, items: None, bookmark: None }
    }

    /// Picks a valid random act and applies it.
    pub(crate) fn act(&mut self, dice: &mut Dice) -> Act {
        let act = match (self.items, dice.below(20)) {
            (None, _) => Act::Open,
            (Some(_), 0) => Act::Cancel,
            (Some(_), quantity) => Act::Add(quantity),
        };
        self.items = match act {
            Act::Open => Some(0),
            Act::Add(quantity) => self.items.map(|items| items + quantity),
            Act::Cancel => None,
        };
        act
    }

    /// Returns the expected document, if there is one.
    pub(crate) fn document(&self) -> Option<Value> {
        self.items.map(|items| json!({ "client": self.id, "items": items, "opened": TIME }))
    }

    /// Returns the event of an act.
    pub(crate) fn event(&self, act: Act) -> Value {
        let (kind, data) = match act {
            Act::Open => ("cart-opened", json!({ "client": self.id })),
            Act::Add(quantity) => ("item-added", json!({ "quantity": quantity })),
            Act::Cancel => ("cart-canceled", json!({})),
        };
        json!({ "type": kind, "data": data, "time": TIME })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cart_is_what_happened_to_it() {
        let (mut cart, mut dice) = (Cart::new("a".to_owned()), Dice::new(1));
        assert_eq!(cart.document(), None);
        assert_eq!(cart.act(&mut dice), Act::Open);
        let (mut items, mut canceled) = (0, 0);
        for _ in 0..200 {
            match cart.act(&mut dice) {
                Act::Open => items = 0,
                Act::Add(quantity) => items += quantity,
                Act::Cancel => {
                    canceled += 1;
                    assert_eq!(cart.document(), None);
                    continue;
                }
            }
            assert_eq!(cart.document().unwrap()["items"], items);
        }
        assert!(canceled > 0);
    }
}

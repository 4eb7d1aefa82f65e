//! The documents that each read model folds from given events.

use std::collections::{BTreeMap, BTreeSet};

use leftfold::testing::spec;
use shopping_cart::CartEvent::{self, *};
use shopping_cart::{
    Cart, CartDetails, Client, ClientSummary, DailyTotals, Item, Open, OpenCarts, Status, Totals,
};

fn opened(client: &str) -> CartEvent {
    ShoppingCartOpened { client_id: client.into() }
}

fn added(product: &str, quantity: u32, unit_price: u32) -> CartEvent {
    let name = product.to_uppercase();
    ProductItemAdded { product_id: product.into(), name, quantity, unit_price }
}

fn removed(product: &str, quantity: u32) -> CartEvent {
    ProductItemRemoved { product_id: product.into(), quantity }
}

fn confirmed(client: &str, total: u64) -> CartEvent {
    ShoppingCartConfirmed { client_id: client.into(), total }
}

fn canceled(client: &str) -> CartEvent {
    ShoppingCartCanceled { client_id: client.into() }
}

fn cart<const N: usize>(total: u64, items: [(&str, u32, u32); N]) -> Cart {
    let item = |(product, quantity, unit_price): (&str, u32, u32)| {
        (product.to_owned(), Item { name: product.to_uppercase(), quantity, unit_price })
    };
    let items = items.into_iter().map(item).collect();
    Cart { client_id: "ann".into(), status: Status::Open, items, total, confirmed_at: None }
}

mod cart_details {
    use super::*;

    #[test]
    fn an_open_cart_is_empty() {
        spec(CartDetails).given("cart-1", [opened("ann")]).then_only([("cart-1", cart(0, []))]);
    }

    #[test]
    fn the_same_product_is_merged() {
        spec(CartDetails)
            .given(
                "cart-1",
                [opened("ann"), added("hat", 1, 900), added("shoes", 2, 4900), added("hat", 2, 900)],
            )
            .then("cart-1", cart(12_500, [("hat", 3, 900), ("shoes", 2, 4900)]));
    }

    #[test]
    fn the_last_price_counts() {
        spec(CartDetails)
            .given("cart-1", [opened("ann"), added("hat", 1, 900), added("hat", 1, 800)])
            .then("cart-1", cart(1_600, [("hat", 2, 800)]));
    }

    #[test]
    fn what_is_removed_to_the_last_is_gone() {
        spec(CartDetails)
            .given(
                "cart-1",
                [opened("ann"), added("hat", 3, 900), added("shoes", 1, 4900), removed("hat", 2)],
            )
            .then("cart-1", cart(5_800, [("hat", 1, 900), ("shoes", 1, 4900)]))
            .given("cart-1", [removed("hat", 1)])
            .then("cart-1", cart(4_900, [("shoes", 1, 4900)]));
    }

    #[test]
    fn no_more_can_be_removed_than_there_is() {
        spec(CartDetails)
            .given("cart-1", [opened("ann"), added("hat", 1, 900), removed("hat", 2)])
            .then_fails("2 of hat can't be removed: the cart has only 1")
            .then("cart-1", cart(900, [("hat", 1, 900)]));
        spec(CartDetails)
            .given("cart-1", [opened("ann"), removed("hat", 1)])
            .then_fails("the cart has no hat");
    }

    #[test]
    fn confirmed_is_confirmed() {
        let confirmed_cart = Cart {
            status: Status::Confirmed,
            confirmed_at: Some("2026-03-01T09:30:00Z".parse().unwrap()),
            ..cart(900, [("hat", 1, 900)])
        };
        spec(CartDetails)
            .given("cart-1", [opened("ann"), added("hat", 1, 900)])
            .at("2026-03-01T09:30:00Z")
            .given("cart-1", [confirmed("ann", 900)])
            .then("cart-1", &confirmed_cart)
            .given("cart-1", [added("hat", 1, 900)])
            .then_fails("the cart is confirmed already")
            .then("cart-1", &confirmed_cart);
    }

    #[test]
    fn canceled_is_gone_until_opened_again() {
        spec(CartDetails)
            .given("cart-1", [opened("ann"), added("hat", 1, 900), canceled("ann")])
            .given("cart-2", [opened("ann")])
            .then_nothing("cart-1")
            .given("cart-1", [opened("ann"), added("shoes", 1, 4900)])
            .then_only([("cart-1", cart(4_900, [("shoes", 1, 4900)])), ("cart-2", cart(0, []))]);
    }

    #[test]
    fn only_an_open_cart_can_be_used() {
        spec(CartDetails).given("cart-1", [added("hat", 1, 900)]).then_fails("the cart is not open");
        spec(CartDetails)
            .given("cart-1", [opened("ann"), canceled("ann"), confirmed("ann", 0)])
            .then_fails("the cart is not open");
        spec(CartDetails)
            .given("cart-1", [opened("ann"), opened("bob")])
            .then_fails("the cart is open already")
            .then("cart-1", cart(0, []));
    }

    #[test]
    fn absurd_numbers_are_errors() {
        let open = || spec(CartDetails).given("cart-1", [opened("ann"), added("hat", u32::MAX, u32::MAX)]);
        open().given("cart-1", [added("hat", 1, 1)]).then_fails("the quantity exceeds the limit");
        open().given("cart-1", [added("shoes", 0, 1)]).then_fails("0 of shoes can't be added");
        open()
            .given("cart-1", [added("shoes", u32::MAX, u32::MAX)])
            .then_fails("the total exceeds the limit");
    }
}

mod client_summary {
    use super::*;

    #[test]
    fn the_carts_of_a_client_are_counted_together() {
        spec(ClientSummary)
            .given("cart-1", [opened("ann"), added("hat", 1, 900)])
            .given("cart-2", [opened("ann"), canceled("ann")])
            .given("cart-3", [opened("bob")])
            .given("cart-1", [confirmed("ann", 900)])
            .given("cart-4", [opened("ann"), confirmed("ann", 4_900)])
            .then_only([
                ("ann", Client { opened: 3, confirmed: 2, canceled: 1, spent: 5_800 }),
                ("bob", Client { opened: 1, ..Client::default() }),
            ]);
    }

    #[test]
    fn an_event_without_a_client_is_named() {
        spec(ClientSummary)
            .given("cart-1", [opened("")])
            .then_fails("invalid document id")
            .given("cart-2", [opened("ann"), confirmed("ann", u64::MAX), confirmed("ann", 1)])
            .then_fails("the client's spending exceeds the limit");
    }
}

mod open_carts {
    use super::*;

    fn open<const N: usize>(carts: [&str; N]) -> Open {
        Open { carts: carts.map(String::from).into_iter().collect::<BTreeSet<_>>() }
    }

    #[test]
    fn there_are_only_clients_with_an_open_cart() {
        spec(OpenCarts)
            .given("cart-1", [opened("ann")])
            .given("cart-2", [opened("ann")])
            .given("cart-3", [opened("bob")])
            .then_only([("ann", open(["cart-1", "cart-2"])), ("bob", open(["cart-3"]))])
            .given("cart-1", [confirmed("ann", 0)])
            .given("cart-3", [canceled("bob")])
            .then_only([("ann", open(["cart-2"]))])
            .given("cart-2", [canceled("ann")])
            .given("cart-4", [opened("bob")])
            .then_only([("bob", open(["cart-4"]))]);
    }
}

mod daily_totals {
    use super::*;

    #[test]
    fn a_confirmed_cart_counts_for_its_day_and_for_all() {
        spec(DailyTotals)
            .given("cart-1", [opened("ann"), canceled("ann")])
            .then_only(BTreeMap::<&str, Totals>::new())
            .at("2026-03-01T23:59:59.999Z")
            .given("cart-2", [confirmed("ann", 900)])
            .given("cart-3", [confirmed("bob", 100)])
            .at("2026-03-02T00:00:00Z")
            .given("cart-4", [confirmed("ann", 50)])
            .then_only([
                ("2026-03-01", Totals { carts: 2, revenue: 1_000 }),
                ("2026-03-02", Totals { carts: 1, revenue: 50 }),
                ("all", Totals { carts: 3, revenue: 1_050 }),
            ]);
    }

    #[test]
    fn an_absurd_total_is_an_error() {
        spec(DailyTotals)
            .given("cart-1", [confirmed("ann", u64::MAX), confirmed("ann", 1)])
            .then_fails("the revenue exceeds the limit");
    }
}

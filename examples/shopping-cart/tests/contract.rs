//! Every read model of the shop survives redeliveries and interruptions unchanged.

use leftfold::Projection;
use leftfold::testing::spec;
use shopping_cart::workload::{Order, Workload};
use shopping_cart::{CartDetails, ClientSummary, DailyTotals, OpenCarts};

fn check(projection: impl Projection) {
    let mut given = spec(projection);
    for (stream, events) in Workload::new(7, 30, 8).order(Order::Interleaved { open: 6 }) {
        given = given.given_events(stream, events);
    }
    given.holds_under_chaos();
}

#[test]
fn cart_details() {
    check(CartDetails);
}

#[test]
fn client_summary() {
    check(ClientSummary);
}

#[test]
fn open_carts() {
    check(OpenCarts);
}

#[test]
fn daily_totals() {
    check(DailyTotals);
}

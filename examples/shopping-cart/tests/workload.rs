//! The workload is reproducible and valid.

use std::collections::{BTreeMap, BTreeSet};

use leftfold::testing::{Spec, spec};
use leftfold::{NewEvent, Projection};
use shopping_cart::workload::{Order, Workload};
use shopping_cart::{CartDetails, ClientSummary, DailyTotals, OpenCarts, Status, Totals};

const INTERLEAVED: Order = Order::Interleaved { open: 7 };

fn streams(workload: Workload) -> BTreeMap<String, Vec<NewEvent>> {
    let mut streams = BTreeMap::<_, Vec<_>>::new();
    for (stream, events) in workload {
        streams.entry(stream.to_string()).or_default().extend(events);
    }
    streams
}

fn given<P: Projection>(projection: P, workload: Workload) -> Spec<P> {
    workload.into_iter().fold(spec(projection), |spec, (stream, events)| spec.given_events(&stream, events))
}

#[test]
fn the_same_seed_makes_the_same_events_in_any_order() {
    let workload = Workload::new(7, 50, 10);
    let grouped = streams(workload.clone());
    assert_eq!(grouped, streams(workload.clone().order(INTERLEAVED)));
    assert_ne!(grouped, streams(Workload::new(8, 50, 10)));
    assert_eq!(grouped.len(), 50);
    assert!(grouped.values().all(|events| events.len() == 10));
    let ids: BTreeSet<_> = grouped.values().flatten().filter_map(|event| event.id.clone()).collect();
    assert_eq!(ids.len() as u64, workload.events());
}

#[test]
fn interleaved_carts_take_turns() {
    let order: Vec<_> = Workload::new(7, 4, 2).order(Order::Interleaved { open: 3 }).into_iter().collect();
    assert!(order.iter().all(|(_, events)| events.len() == 1));
    let carts: Vec<_> =
        order.iter().map(|(stream, _)| stream.as_str().trim_start_matches("cart-000000")).collect();
    assert_eq!(carts, ["0", "1", "2", "0", "1", "2", "3", "3"]);
}

#[test]
fn writers_share_the_carts() {
    let workload = Workload::new(7, 50, 10);
    let mut shared = BTreeMap::new();
    for writer in 0..4 {
        let share = streams(workload.clone().share(writer, 4).order(INTERLEAVED));
        assert!(share.keys().all(|stream| !shared.contains_key(stream)));
        shared.extend(share);
    }
    assert_eq!(shared, streams(workload));
}

#[test]
fn no_event_fails_and_all_read_models_agree() {
    for (seed, events_per_cart) in [(1, 10), (2, 10), (3, 2), (4, 6), (5, 31)] {
        let workload = Workload::new(seed, 60, events_per_cart).order(INTERLEAVED);
        let carts: Vec<_> = given(CartDetails, workload.clone()).documents().into_values().collect();
        assert!(carts.iter().all(|cart| cart.status == Status::Confirmed));
        let revenue = carts.iter().map(|cart| cart.total).sum();
        let totals = Totals { carts: carts.len() as u64, revenue };
        given(DailyTotals, workload.clone()).then("all", &totals);
        given(OpenCarts, workload.clone()).then_only::<&str, ()>([]);
        let clients = given(ClientSummary, workload).documents();
        assert_eq!(clients.values().map(|client| client.confirmed).sum::<u64>(), totals.carts);
        assert_eq!(clients.values().map(|client| client.spent).sum::<u64>(), totals.revenue);
    }
}

#[test]
fn carts_end_in_every_way_and_data_is_of_a_realistic_size() {
    let mut kinds = BTreeMap::<_, u32>::new();
    let (mut bytes, mut reopened) = (0, 0);
    for (_, events) in Workload::new(7, 1_000, 10) {
        let opened = events.iter().filter(|event| event.kind.as_str() == "shopping-cart-opened").count();
        reopened += u32::from(opened == 2);
        for event in events {
            *kinds.entry(event.kind.to_string()).or_default() += 1;
            bytes += event.data.as_str().len();
        }
    }
    insta::assert_debug_snapshot!((kinds, reopened, bytes / 10_000), @r#"
    (
        {
            "product-item-added": 6226,
            "product-item-removed": 1652,
            "shopping-cart-canceled": 147,
            "shopping-cart-confirmed": 914,
            "shopping-cart-opened": 1061,
        },
        61,
        100,
    )
    "#);
}

/// Benchmark results are compared over time, so their workload must not change unnoticed.
#[test]
fn the_events_are_these() {
    let first = Workload::new(1, 100, 6).into_iter().next();
    let (stream, events) = first.unwrap();
    let lines = events.iter().map(|event| {
        let id = event.id.as_ref().unwrap();
        format!("{id} {} {} {:?}", event.time.unwrap(), event.kind, event.data)
    });
    insta::assert_snapshot!(format!("{stream}\n{}", lines.collect::<Vec<_>>().join("\n")), @r#"
    cart-0000000
    cart-0000000-1 2026-01-01T00:00:08Z shopping-cart-opened {"clientId":"client-000003"}
    cart-0000000-2 2026-01-01T00:00:47Z product-item-added {"productId":"product-0381","name":"Rain jacket with reflective laces for dark mornings, brick red, size 37","quantity":3,"unitPrice":17238}
    cart-0000000-3 2026-01-01T00:01:05Z shopping-cart-canceled {"clientId":"client-000003"}
    cart-0000000-4 2026-01-01T00:01:08Z shopping-cart-opened {"clientId":"client-000003"}
    cart-0000000-5 2026-01-01T00:01:59Z product-item-added {"productId":"product-0159","name":"Trail backpack from last year, reduced by a third, sunflower yellow, size 35","quantity":1,"unitPrice":19220}
    cart-0000000-6 2026-01-01T00:02:24Z shopping-cart-confirmed {"clientId":"client-000003","total":19220}
    "#);
}

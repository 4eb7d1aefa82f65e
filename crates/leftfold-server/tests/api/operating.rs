//! Metrics and the doctor.

use serde_json::json;

use crate::client::{added, get, opened, post, shop};

#[tokio::test]
async fn metrics_are_exported_for_prometheus() {
    let (router, _) = shop(Vec::new()).await;
    let broken = json!({ "type": "product-item-added", "data": {} });
    for (cart, event) in [("cart-1", opened()), ("cart-2", broken)] {
        let appended = post(&router, &format!("/streams/{cart}"), &event).await.is(201);
        let token = appended["bookmark"].as_str().unwrap();
        get(&router, &format!("/collections/cart_details/documents/{cart}?at_least={token}")).await;
    }
    let text = get(&router, "/metrics").await.text;
    let figure = |name: &str| -> f64 {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("no {name} in {text}")).parse().unwrap()
    };
    let of = |name: &str| figure(&format!("{name}{{projection=\"cart_details\"}}"));
    assert_eq!((of("leftfold_lag_events"), of("leftfold_lag_seconds")), (0.0, 0.0));
    assert_eq!((of("leftfold_events_folded_total"), of("leftfold_parked_documents")), (2.0, 1.0));
    assert!(of("leftfold_parked_oldest_seconds") > 0.0, "{text}");
    assert_eq!((of("leftfold_cache_misses_total"), of("leftfold_cache_hits_total")), (2.0, 0.0));
    assert_eq!((of("leftfold_batch_events_sum"), of("leftfold_batch_documents_sum")), (2.0, 2.0));
    let commits = of("leftfold_commit_seconds_count");
    let bucket = |le: &str| {
        figure(&format!("leftfold_commit_seconds_bucket{{projection=\"cart_details\",le=\"{le}\"}}"))
    };
    assert_eq!((bucket("+Inf"), bucket("0.0005") <= bucket("10")), (commits, true), "{text}");
    assert!(commits >= 1.0, "{text}");
    assert!(of("leftfold_commit_seconds_sum") > 0.0, "{text}");
    // Each metric has a type, and each family occurs once.
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let name = line.split(['{', ' ']).next().unwrap();
        let family =
            ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name);
        let kinds = [name, family].map(|name| text.matches(&format!("# TYPE {name} ")).count());
        assert!(kinds == [1, 1] || kinds == [0, 1], "{line}: {kinds:?}");
    }
}

#[tokio::test]
async fn the_doctor_says_what_to_do() {
    let (router, _) = shop(Vec::new()).await;
    let report = get(&router, "/doctor").await.is(200);
    assert_eq!(report["worst"], "notice", "it is in memory: {report}");
    let answer = post(&router, "/streams/cart-1", &json!([added(1)])).await.is(201);
    let token = answer["bookmark"].as_str().unwrap();
    get(&router, &format!("/collections/cart_details/documents/cart-1?at_least={token}")).await.is(409);
    let report = get(&router, "/doctor").await.is(200);
    assert_eq!(report["worst"], "wrong");
    let of_carts = report["findings"].as_array().unwrap().iter().find(|one| one["subject"] == "cart_details");
    let of_carts = of_carts.unwrap();
    assert_eq!((&of_carts["severity"], &of_carts["area"]), (&json!("wrong"), &json!("projections")));
    assert!(of_carts["found"].as_str().unwrap().starts_with("1 document is parked"), "{of_carts}");
    assert!(of_carts["advice"].as_str().unwrap().contains("parked retry"), "{of_carts}");
}

//! Arbitrary JSON as a filter: it is parsed or rejected, without a panic.

use proptest::prelude::*;
use serde_json::json;

use super::at;
use crate::{Filter, Value};

/// Generates values that look a little like filters.
fn any_filter() -> impl Strategy<Value = serde_json::Value> {
    let leaf = prop_oneof![
        Just(json!(null)),
        any::<i64>().prop_map(|number| json!(number)),
        any::<f64>().prop_map(|number| json!(number)),
        "[a-c^$.*+()\\[\\]{}|?\\\\0-9é-]{0,6}".prop_map(|text| json!(text)),
        Just(json!("-1h")),
    ];
    leaf.prop_recursive(5, 30, 4, |inner| {
        let names = prop::sample::select(vec![
            "a",
            "a.0",
            "b.c",
            "$and",
            "$or",
            "$nor",
            "$not",
            "$eq",
            "$ne",
            "$gt",
            "$lte",
            "$in",
            "$nin",
            "$all",
            "$elemMatch",
            "$size",
            "$mod",
            "$type",
            "$exists",
            "$regex",
            "$options",
            "$now",
            "$date",
            "$oid",
            "$numberDecimal",
            "$regularExpression",
            "pattern",
            "options",
            "$minKey",
        ]);
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(|items| json!(items)),
            prop::collection::btree_map(names, inner, 0..3).prop_map(|fields| json!(fields)),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn whatever_comes_is_parsed_or_refused(json in any_filter(), document in any_filter()) {
        if let Ok(filter) = Filter::parse(&json) {
            let again: Filter = filter.to_string().parse().unwrap();
            prop_assert_eq!(again.to_string(), filter.to_string());
            let document = Value::from(document);
            prop_assert_eq!(again.matches(&document, at(5)), filter.matches(&document, at(5)));
            filter.changes_at(&document, at(5));
        }
    }
}

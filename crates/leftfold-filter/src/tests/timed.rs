//! Filters that depend on the time.

use jiff::Timestamp;
use proptest::prelude::*;
use serde_json::json;

use super::{at, filter, refused, selects};
use crate::{Filter, Value};

#[test]
fn moving_dates_stand_where_dates_are_compared() {
    let date = |millis: i64| format!(r#"{{"a":{{"$date":{millis}}}}}"#);
    for (offset, millis) in [
        ("0s", 0),
        ("-250ms", -250),
        ("+2s", 2_000),
        ("1m", 60_000),
        ("-1h", -3_600_000),
        ("1d12h", 129_600_000),
    ] {
        let text = format!(r#"{{"a":{{"$eq":{{"$now":"{offset}"}}}}}}"#);
        selects(&text, &[&date(1_000 + millis)], &[&date(1_001 + millis), r#"{"a":1000}"#, "{}"]);
    }
    for wrong in ["", "-", "1", "s", "1w", "1 h", "--1h", "1h-2m", "4000000d", "99999999999999999999d", "1é"]
    {
        refused(&format!(r#"{{"a":{{"$gt":{{"$now":"{wrong}"}}}}}}"#), "an offset such as -1h");
    }
    refused(r#"{"a":{"$gt":{"$now":5}}}"#, "an offset such as -1h");
    refused(r#"{"a":{"$gt":{"$now":"1s","b":1}}}"#, "an offset such as -1h");
    refused(r#"{"a":{"$now":"1s"}}"#, "a comparison around it");
    refused(r#"{"a":{"$in":[{"$now":"1s"}]}}"#, "does not begin with $");
}

#[test]
fn a_query_has_dates_that_stand_still() {
    let timed =
        filter(r#"{"$or":[{"a":{"$lt":{"$now":"-1s"}}},{"b":{"$elemMatch":{"$gte":{"$now":"0s"}}}}]}"#);
    assert!(timed.is_timed());
    assert_eq!(
        timed.to_query(at(1_500)).to_string(),
        r#"{"$or":[{"a":{"$lt":{"$date":{"$numberLong":"500"}}}},{"b":{"$elemMatch":{"$gte":{"$date":{"$numberLong":"1500"}}}}}]}"#
    );
    let plain = filter(r#"{"b":1,"a":{"z":1,"y":{"$numberLong":"5"}}}"#);
    assert!(!plain.is_timed());
    assert_eq!(plain.to_query(at(0)).to_string(), plain.to_string());
    assert_eq!(plain.changes_at(&Value::Null, at(0)), None);
}

#[test]
fn what_can_not_change_any_more_is_not_looked_at_again() {
    let document: Value = r#"{"open":false,"at":{"$date":5000}}"#.parse().unwrap();
    let next = |text: &str, now| filter(text).changes_at(&document, at(now)).map(Timestamp::as_millisecond);
    assert_eq!(next(r#"{"at":{"$lt":{"$now":"0s"}}}"#, 0), Some(5_001));
    assert_eq!(next(r#"{"at":{"$lt":{"$now":"-1s"}}}"#, 0), Some(6_001));
    assert_eq!(next(r#"{"at":{"$gt":{"$now":"1s"}}}"#, 0), Some(4_000));
    assert_eq!(next(r#"{"at":{"$eq":{"$now":"0s"}}}"#, 5_000), Some(5_001));
    assert_eq!(next(r#"{"at":{"$lte":{"$now":"0s"}}}"#, 5_000), None);
    assert_eq!(next(r#"{"open":true,"at":{"$lt":{"$now":"0s"}}}"#, 0), None);
    assert_eq!(next(r#"{"$or":[{"open":false},{"at":{"$lt":{"$now":"0s"}}}]}"#, 0), None);
    assert_eq!(next(r#"{"open":{"$lt":{"$now":"0s"}}}"#, 0), None);
    let latest: Value = format!(r#"{{"at":{{"$date":{}}}}}"#, i64::MAX).parse().unwrap();
    assert_eq!(filter(r#"{"at":{"$lt":{"$now":"-1s"}}}"#).changes_at(&latest, at(0)), None);
    // Fractions of a millisecond don't count, and the next change is later than `now`.
    let within = Timestamp::from_nanosecond(4_999_999_999).unwrap();
    let timed = filter(r#"{"at":{"$lte":{"$now":"0s"}}}"#);
    assert!(!timed.matches(&document, within));
    assert_eq!(timed.changes_at(&document, within), Some(at(5_000)));
}

fn any_date() -> impl Strategy<Value = serde_json::Value> {
    (0..20_i64).prop_map(|millis| json!({ "$date": millis }))
}

fn timed_condition() -> impl Strategy<Value = serde_json::Value> {
    let operator = prop::sample::select(vec!["$eq", "$ne", "$gt", "$gte", "$lt", "$lte"]);
    let operand = prop_oneof![
        4 => (-5..6_i64).prop_map(|millis| json!({ "$now": format!("{millis}ms") })),
        1 => any_date(),
        1 => Just(json!(null)),
    ];
    let compare = prop::collection::btree_map(operator, operand, 1..3).prop_map(|operators| json!(operators));
    compare.prop_recursive(2, 4, 2, |inner| {
        prop_oneof![
            inner.clone().prop_map(|condition| json!({ "$not": condition })),
            inner.clone().prop_map(|condition| json!({ "$elemMatch": condition })),
            inner.clone().prop_map(|condition| json!({ "$elemMatch": { "b": condition } })),
            inner.prop_map(|condition| json!({ "$all": [{ "$elemMatch": condition }] })),
        ]
    })
}

fn timed_filter() -> impl Strategy<Value = serde_json::Value> {
    let path = prop::sample::select(vec!["a", "b", "a.b", "a.0", "c"]);
    let field = prop_oneof![
        4 => (path.clone(), timed_condition()).prop_map(|(path, condition)| json!({ path: condition })),
        1 => path.prop_map(|path| json!({ path: { "$exists": true } })),
    ];
    field.prop_recursive(2, 6, 3, |inner| {
        let operator = prop::sample::select(vec!["$and", "$or", "$nor"]);
        (operator, prop::collection::vec(inner, 1..4))
            .prop_map(|(operator, parts)| json!({ operator: parts }))
    })
}

fn dated_document() -> impl Strategy<Value = serde_json::Value> {
    let leaf = prop_oneof![4 => any_date(), 1 => Just(json!(null)), 1 => Just(json!(3))];
    let value = leaf.prop_recursive(3, 10, 3, |inner| {
        let names = prop::sample::select(vec!["a", "b", "0"]);
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(|items| json!(items)),
            prop::collection::btree_map(names, inner, 0..3).prop_map(|fields| json!(fields)),
        ]
    });
    let names = prop::sample::select(vec!["a", "b", "c"]);
    prop::collection::btree_map(names, value, 0..4).prop_map(|fields| json!(fields))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn no_change_is_missed_by_looking_only_when_told(json in timed_filter(), document in dated_document()) {
        let (filter, document) = (Filter::parse(&json).unwrap(), Value::from(document));
        let (mut now, mut answer) = (-10, filter.matches(&document, at(-10)));
        while now < 40 {
            let next = filter.changes_at(&document, at(now)).map_or(40, Timestamp::as_millisecond);
            prop_assert!(next > now, "{filter} on {document} at {now}");
            for millis in now..next.min(40) {
                prop_assert_eq!(filter.matches(&document, at(millis)), answer, "{} on {} at {}", filter, document, millis);
            }
            now = next;
            answer = filter.matches(&document, at(now));
        }
    }

    #[test]
    fn a_query_means_the_same_at_its_moment(json in timed_filter(), document in dated_document(), now in -10..30_i64) {
        let (filter, document) = (Filter::parse(&json).unwrap(), Value::from(document));
        let fixed = Filter::of(filter.to_query(at(now))).unwrap();
        prop_assert!(!fixed.is_timed());
        prop_assert_eq!(fixed.matches(&document, at(77)), filter.matches(&document, at(now)));
    }
}

use super::{Operation, OperationId};
use crate::json::Json;

fn operation() -> Operation {
    Operation::new(OperationId::new(1).unwrap())
}

/// A number stays a plain number for programs without number widths, even if it was wide.
#[test]
fn what_was_incremented_stays_a_plain_number() {
    let wide = Json::parse(r#"{"n":3000000000,"m":2147483647}"#).unwrap();
    let after =
        operation().increment("n", -2_999_999_999_i64).unwrap().increment("m", 1).unwrap().apply(&wide);
    assert_eq!(after.unwrap().as_str(), r#"{"n":1,"m":2147483648}"#);
}

#[test]
fn an_operation_takes_no_value_that_has_no_version() {
    let deep = |levels: usize| Json::parse(&format!("{}{}", "[".repeat(levels), "]".repeat(levels))).unwrap();
    assert!(operation().set("a", &deep(99)).is_ok());
    assert!(operation().push("a", &deep(98)).is_ok());
    for wrong in [
        operation().set("a", &deep(100)),
        operation().set("a.b", &deep(99)),
        operation().push("a", &deep(99)),
        operation().set("a", &Json::parse(r#"{"$numberDouble":"NaN"}"#).unwrap()),
        operation().push("a", &Json::parse(r#"{"b":1,"b":1}"#).unwrap()),
    ] {
        assert!(wrong.unwrap_err().to_string().starts_with("invalid content"));
    }
}

#[test]
fn what_an_operation_found_is_told_in_short() {
    let body =
        Json::parse(&format!(r#"{{"l":{{"$numberLong":"5"}},"long":"{}"}}"#, "é".repeat(1_000))).unwrap();
    let error = |path| operation().push(path, &1).unwrap().apply(&body).unwrap_err().to_string();
    assert_eq!(error("l"), r#"invalid path "l": expected an array; found 5"#);
    assert_eq!(
        error("long"),
        format!(r#"invalid path "long": expected an array; found "{}…"#, "é".repeat(59))
    );
}

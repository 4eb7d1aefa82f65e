//! Tests of filters and values.

mod arbitrary;
mod operators;
mod patterns;
mod refusals;
mod timed;
mod values;

use jiff::Timestamp;

use crate::{Filter, Value};

fn filter(text: &str) -> Filter {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn at(millis: i64) -> Timestamp {
    Timestamp::from_millisecond(millis).unwrap()
}

#[track_caller]
fn selects(text: &str, yes: &[&str], no: &[&str]) {
    let filter = filter(text);
    for (documents, expected) in [(yes, true), (no, false)] {
        for document in documents {
            let value: Value = document.parse().unwrap();
            assert_eq!(filter.matches(&value, at(1_000)), expected, "{text} on {document}");
        }
    }
}

#[track_caller]
fn refused(text: &str, expected: &str) {
    let error = text.parse::<Filter>().expect_err(text).to_string();
    assert!(error.contains(expected), "{text}: {error}");
}

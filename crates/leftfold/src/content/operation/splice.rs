//! Increments numbers directly in a document's text, without parsing all of it.
//!
//! It leaves all other cases to [the slow path](super::Operation::apply): names with escapes,
//! numbers other than short integers, and malformed texts.

use std::ops::Range;

use super::{Amount, FieldOperation};

/// The number of digits that always fit in 64 bits.
const DIGITS: usize = 18;

/// Returns the text with these top-level fields incremented, or `None` if that needs the slow path.
pub(super) fn increased<'s>(
    text: &str,
    steps: impl Iterator<Item = (&'s str, &'s FieldOperation)>,
) -> Option<Box<str>> {
    let mut amounts = Vec::with_capacity(1);
    for (path, step) in steps {
        let FieldOperation::Increment(Amount::Whole(amount)) = step else { return None };
        let number = find(text.as_bytes(), path.as_bytes())?;
        let sum = whole(&text[number.clone()])?.checked_add(*amount)?;
        amounts.push((number, sum));
    }
    amounts.sort_unstable_by_key(|(number, _)| number.start);
    let length =
        amounts.iter().fold(text.len(), |length, (number, sum)| length - number.len() + digits(*sum));
    let mut changed = String::with_capacity(length);
    let mut end = 0;
    for (number, sum) in amounts {
        changed.push_str(text.get(end..number.start)?);
        end = number.end;
        let _ = std::fmt::Write::write_fmt(&mut changed, format_args!("{sum}"));
    }
    changed.push_str(&text[end..]);
    Some(changed.into())
}

/// Returns the length of a number when it is written.
fn digits(number: i64) -> usize {
    let digits = number.unsigned_abs().checked_ilog10().unwrap_or(0) as usize + 1;
    digits + usize::from(number < 0)
}

/// Parses a short integer.
fn whole(text: &str) -> Option<i64> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let is_plain = digits.bytes().all(|byte| byte.is_ascii_digit());
    // Only floating-point numbers have a negative zero.
    (is_plain && digits.len() <= DIGITS && text != "-0").then(|| text.parse().ok()).flatten()
}

/// Returns the range of the value of a top-level field, unless it is a string, an object or an
/// array.
fn find(text: &[u8], name: &[u8]) -> Option<Range<usize>> {
    let mut at = after(text, 0, b'{')?;
    loop {
        let begin = after(text, at, b'"')?;
        let end = closing(text, begin)?;
        let found = &text[begin..end];
        if found.contains(&b'\\') {
            return None;
        }
        at = spaces(text, after(text, end + 1, b':')?);
        let value = at..passed(text, at)?;
        if found == name {
            return (!matches!(text[value.start], b'"' | b'{' | b'[')).then_some(value);
        }
        at = after(text, value.end, b',')?;
    }
}

/// Returns the place after a byte that must come next.
fn after(text: &[u8], at: usize, byte: u8) -> Option<usize> {
    let at = spaces(text, at);
    (*text.get(at)? == byte).then_some(at + 1)
}

fn spaces(text: &[u8], mut at: usize) -> usize {
    while text.get(at).is_some_and(u8::is_ascii_whitespace) {
        at += 1;
    }
    at
}

/// Returns the place of the quote that ends a string.
fn closing(text: &[u8], mut at: usize) -> Option<usize> {
    loop {
        at += memchr::memchr2(b'"', b'\\', text.get(at..)?)?;
        if text[at] == b'"' {
            return Some(at);
        }
        at += 2;
    }
}

/// Returns the place after a value.
fn passed(text: &[u8], mut at: usize) -> Option<usize> {
    let mut depth = 0_usize;
    loop {
        match text.get(at)? {
            b'"' => at = closing(text, at + 1)? + 1,
            b'{' | b'[' => {
                depth += 1;
                at += 1;
                continue;
            }
            b'}' | b']' => {
                depth = depth.checked_sub(1)?;
                at += 1;
            }
            _ if depth > 0 => {
                at += 1;
                continue;
            }
            _ => {
                let ends = |byte: &u8| matches!(byte, b',' | b'}' | b']') || byte.is_ascii_whitespace();
                return Some(at + text[at..].iter().position(ends)?);
            }
        }
        if depth == 0 {
            return Some(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::{Operation, OperationId};
    use super::*;
    use crate::json::Json;

    fn operation(steps: &[(&str, i64)]) -> Operation {
        let new = Operation::new(OperationId::new(1).unwrap());
        steps.iter().fold(new, |operation, (path, amount)| operation.increment(path, *amount).unwrap())
    }

    fn splice(text: &str, steps: &[(&str, i64)]) -> Option<String> {
        increased(text, operation(steps).steps()).map(Into::into)
    }

    #[test]
    fn only_the_number_changes() {
        let text = r#"{ "b" : {"a":[1,"}\"",{"a":2}]}, "\u00fc":1,"a":-7 ,"c":{"a":1}}"#;
        assert_eq!(splice(text, &[("a", 9)]), None, "there is a name with an escape before it");
        let text = text.replace("\\u00fc", "ü");
        assert_eq!(splice(&text, &[("a", 9)]).unwrap(), text.replace("-7", "2"));
        assert_eq!(
            splice(r#"{"a":1,"b":22,"c":3}"#, &[("c", 10), ("a", -2)]).unwrap(),
            r#"{"a":-1,"b":22,"c":13}"#
        );
    }

    #[test]
    fn a_number_is_as_long_as_it_is_written() {
        for number in [0, 1, 9, 10, 99, 100, -1, -9, -10, i64::MAX, i64::MIN] {
            assert_eq!(digits(number), number.to_string().len(), "{number}");
        }
    }

    #[test]
    fn what_is_not_plain_is_left_alone() {
        for value in ["1.5", "1e3", "-0", "1234567890123456789", "\"1\"", "[1]", "{\"a\":1}", "null", "true"]
        {
            assert_eq!(splice(&format!(r#"{{"a":{value}}}"#), &[("a", 1)]), None, "{value}");
        }
        assert_eq!(splice(r#"{"b":1}"#, &[("a", 1)]), None);
        assert_eq!(splice(r#"{"a":1}"#, &[("a.b", 1)]), None);
        for text in
            ["", "{", "[]", "{\"a\"", "{\"a\":", "{\"a\":1", "{\"b\":}", "{\"b\":]", "\"a\"", "{\"b\":\"\\"]
        {
            assert_eq!(splice(text, &[("a", 1)]), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn it_is_the_same_as_the_thorough_way(
            before in "[a-c \\\\\"{}\\[\\],:]{0,6}", number in any::<i64>(), amount in any::<i64>(), list in prop::collection::vec(0..9, 0..3),
        ) {
            let text = serde_json::json!({ "b": { "a": before, "c": list }, "a": number, "d": [before] }).to_string();
            let operation = operation(&[("a", amount)]);
            if let Some(quick) = increased(&text, operation.steps()) {
                let thorough = operation.apply_thoroughly(&Json::parse(&text).unwrap()).unwrap();
                prop_assert!(Json::stored(quick).same_as(&thorough));
            }
        }
    }
}

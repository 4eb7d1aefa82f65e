//! The canonical text of a value.

use std::fmt::{Display, Write as _};

use crate::error::Invalid;
use crate::react::{Fields, Value};

/// The maximum nesting depth of objects and arrays.
const DEPTH: usize = 100;

/// Returns the canonical text. Fails if the value has none.
pub(in crate::content) fn text(value: &Value) -> Result<String, Invalid> {
    text_within(value, 0)
}

/// Like [`text`], for a value that is nested in this many objects and arrays.
pub(in crate::content) fn text_within(value: &Value, levels: usize) -> Result<String, Invalid> {
    let mut text = Text { out: String::new(), depth: levels };
    match text.value(value) {
        Ok(()) => Ok(text.out),
        Err(Wrong { mut path, found, expected }) => {
            path.reverse();
            let place = if path.is_empty() { String::new() } else { format!(" at {}", path.join(".")) };
            Err(Invalid::new("content", &format!("{found}{place}"), expected))
        }
    }
}

/// A value that has no canonical text, and its path from the inside out.
struct Wrong {
    path: Vec<String>,
    found: String,
    expected: &'static str,
}

impl Wrong {
    fn new(found: impl Into<String>, expected: &'static str) -> Self {
        Self { path: Vec::new(), found: found.into(), expected }
    }

    fn within(mut self, name: &str) -> Self {
        self.path.push(name.to_owned());
        self
    }
}

struct Text {
    out: String,
    depth: usize,
}

impl Text {
    fn value(&mut self, value: &Value) -> Result<(), Wrong> {
        let no_number = |number: &dyn Display| Wrong::new(number.to_string(), "a finite number");
        match value {
            Value::Null => self.out.push_str("null"),
            Value::Bool(is) => self.out.push_str(if *is { "true" } else { "false" }),
            Value::Int32(number) => self.write(number),
            Value::Int64(number) => self.write(number),
            Value::Double(number) if number.is_finite() => match value.whole() {
                Some(whole) => self.write(&whole),
                None => self.out.push_str(&shortest(*number)),
            },
            Value::Double(number) => return Err(no_number(number)),
            Value::Decimal(number) => match value.whole() {
                Some(whole) => self.write(&whole),
                None if number.is_finite() => {
                    self.object(&one("$numberDecimal", Value::String(number.reduced().to_string())))?;
                }
                None => return Err(no_number(number)),
            },
            Value::String(text) => self.quote(text),
            Value::Object(fields) => self.object(fields)?,
            Value::Array(items) => self.array(items)?,
            other => self.object(&words(other))?,
        }
        Ok(())
    }

    fn array(&mut self, items: &[Value]) -> Result<(), Wrong> {
        self.deeper()?;
        self.out.push('[');
        for (at, item) in items.iter().enumerate() {
            if at > 0 {
                self.out.push(',');
            }
            self.value(item).map_err(|wrong| wrong.within(&at.to_string()))?;
        }
        self.out.push(']');
        self.depth -= 1;
        Ok(())
    }

    fn object(&mut self, fields: &Fields) -> Result<(), Wrong> {
        self.deeper()?;
        let mut sorted: Vec<_> = fields.iter().collect();
        // For ASCII, bytes and UTF-16 have the same order.
        if sorted.iter().all(|(name, _)| name.is_ascii()) {
            sorted.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        } else {
            sorted.sort_by(|(one, _), (other, _)| one.encode_utf16().cmp(other.encode_utf16()));
        }
        if let Some(twice) = sorted.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            return Err(Wrong::new(format!("the duplicate field {}", twice[0].0), "each field once"));
        }
        self.out.push('{');
        for (at, (name, value)) in sorted.into_iter().enumerate() {
            if at > 0 {
                self.out.push(',');
            }
            self.quote(name);
            self.out.push(':');
            self.value(value).map_err(|wrong| wrong.within(name))?;
        }
        self.out.push('}');
        self.depth -= 1;
        Ok(())
    }

    fn deeper(&mut self) -> Result<(), Wrong> {
        if self.depth >= DEPTH {
            return Err(Wrong::new("level 101", "at most 100 levels of objects and arrays"));
        }
        self.depth += 1;
        Ok(())
    }

    fn write(&mut self, what: &dyn Display) {
        // Writing to a string can't fail.
        let _ = write!(self.out, "{what}");
    }

    fn quote(&mut self, text: &str) {
        self.out.push('"');
        if !text.bytes().any(|byte| byte < b' ' || matches!(byte, b'"' | b'\\')) {
            self.out.push_str(text);
            self.out.push('"');
            return;
        }
        for c in text.chars() {
            match c {
                '"' => self.out.push_str("\\\""),
                '\\' => self.out.push_str("\\\\"),
                '\u{8}' => self.out.push_str("\\b"),
                '\t' => self.out.push_str("\\t"),
                '\n' => self.out.push_str("\\n"),
                '\u{c}' => self.out.push_str("\\f"),
                '\r' => self.out.push_str("\\r"),
                c if c < ' ' => self.write(&format_args!("\\u{:04x}", u32::from(c))),
                c => self.out.push(c),
            }
        }
        self.out.push('"');
    }
}

fn one(name: &str, value: Value) -> Fields {
    vec![(name.to_owned(), value)]
}

/// Returns the extended JSON of a value of a type that JSON lacks.
fn words(value: &Value) -> Fields {
    let text = |text: &String| Value::String(text.clone());
    // A 64-bit number stays a string, as in canonical extended JSON.
    let long = |number: i64| Value::Object(one("$numberLong", Value::String(number.to_string())));
    let two = |first: (&str, Value), second: (&str, Value)| {
        Value::Object(vec![(first.0.to_owned(), first.1), (second.0.to_owned(), second.1)])
    };
    match value {
        Value::Date(millis) => one("$date", long(*millis)),
        Value::Symbol(symbol) => one("$symbol", text(symbol)),
        Value::Code(code) => one("$code", text(code)),
        Value::CodeWithScope(code, scope) => {
            vec![("$code".to_owned(), text(code)), ("$scope".to_owned(), Value::Object(scope.clone()))]
        }
        Value::Timestamp { time, increment } => {
            let part = |number: u32| Value::Int64(number.into());
            one("$timestamp", two(("t", part(*time)), ("i", part(*increment))))
        }
        Value::Regex { pattern, options } => {
            one("$regularExpression", two(("pattern", text(pattern)), ("options", text(options))))
        }
        Value::DbPointer { namespace, id } => {
            one("$dbPointer", two(("$ref", text(namespace)), ("$id", Value::Object(words(&Value::Id(*id))))))
        }
        Value::MinKey => one("$minKey", Value::Int32(1)),
        Value::MaxKey => one("$maxKey", Value::Int32(1)),
        Value::Undefined => one("$undefined", Value::Bool(true)),
        Value::Id(id) => {
            let mut bytes = [0; 16];
            bytes[4..].copy_from_slice(id);
            one("$oid", Value::String(format!("{:024x}", u128::from_be_bytes(bytes))))
        }
        Value::Binary { subtype, bytes } => {
            let base64 = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, bytes);
            let (base64, subtype) = (Value::String(base64), Value::String(format!("{subtype:02x}")));
            one("$binary", two(("base64", base64), ("subType", subtype)))
        }
        Value::Object(fields) => fields.clone(),
        // These have their own form in JSON.
        Value::Null
        | Value::Bool(_)
        | Value::Int32(_)
        | Value::Int64(_)
        | Value::Double(_)
        | Value::Decimal(_)
        | Value::String(_)
        | Value::Array(_) => Vec::new(),
    }
}

/// Writes a number as ECMAScript does: with as few digits as distinguish it from all others.
fn shortest(number: f64) -> String {
    let scientific = format!("{number:e}");
    let Some((mantissa, exponent)) = scientific.split_once('e') else { return scientific };
    let sign = if number < 0.0 { "-" } else { "" };
    let digits: String = mantissa.chars().filter(char::is_ascii_digit).collect();
    let (count, exponent) = (digits.len(), exponent.parse::<i32>().unwrap_or(0));
    match usize::try_from(exponent) {
        Ok(before) if before < 21 && count <= before + 1 => {
            format!("{sign}{digits:0<width$}", width = before + 1)
        }
        Ok(before) if before < 21 => format!("{sign}{}.{}", &digits[..=before], &digits[before + 1..]),
        Err(_) if exponent >= -6 => {
            let zeros = usize::try_from(-exponent - 1).unwrap_or(0);
            format!("{sign}0.{}{digits}", "0".repeat(zeros))
        }
        _ => {
            let (first, rest) = digits.split_at(1);
            let point = if rest.is_empty() { "" } else { "." };
            format!("{sign}{first}{point}{rest}e{exponent:+}")
        }
    }
}

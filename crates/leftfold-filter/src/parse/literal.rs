//! The values that a filter compares with.

use super::query::Parser;
use crate::error::Error;
use crate::value::Value;

impl Parser {
    /// Checks a value to compare with.
    pub(super) fn literal(&mut self, value: &Value) -> Result<Value, Error> {
        if matches!(value, Value::Undefined) {
            return self.refuse(value, "a value that is defined");
        }
        self.check(value)?;
        Ok(value.clone())
    }

    fn check(&mut self, value: &Value) -> Result<(), Error> {
        match value {
            Value::Object(fields) => {
                for (name, value) in fields {
                    self.within(name, value, |parser| match name.strip_prefix('$') {
                        None => parser.check(value),
                        Some(_) => parser.refuse(
                            value,
                            malformed(name)
                                .unwrap_or("a name that does not begin with $, in an object to compare with"),
                        ),
                    })?;
                }
                Ok(())
            }
            Value::Array(_) => self.items(value, Self::check).map(drop),
            _ => Ok(()),
        }
    }
}

/// Returns the expected form of an object that begins like extended JSON but is malformed.
pub(super) fn malformed(name: &str) -> Option<&'static str> {
    Some(match name {
        "$date" => "{\"$date\": \"2026-11-16T08:00:00Z\"}, or milliseconds since 1970 instead of the text",
        "$oid" => "{\"$oid\": \"…\"} with 24 hexadecimal digits",
        "$numberInt" | "$numberLong" | "$numberDouble" | "$numberDecimal" => {
            "a number in its range, as a text"
        }
        "$regularExpression" => "{\"$regularExpression\": {\"pattern\": \"…\", \"options\": \"…\"}}",
        "$binary" => "{\"$binary\": {\"base64\": \"…\", \"subType\": \"00\"}}",
        "$uuid" => "{\"$uuid\": \"…\"} with 32 hexadecimal digits",
        "$timestamp" => "{\"$timestamp\": {\"t\": 1, \"i\": 1}}",
        _ => return None,
    })
}

//! Applying an operation to a document.

use super::{Amount, FieldOperation, Operation, splice};
use crate::content::version;
use crate::documents::MAX_BODY_BYTES;
use crate::error::Invalid;
use crate::json::Json;
use crate::react::{Fields, Value};

impl Operation {
    /// Returns the document with the operation applied. Fails if it can't be applied.
    pub fn apply(&self, document: &Json) -> Result<Json, Invalid> {
        let body = match splice::increased(document.as_str(), self.steps()) {
            Some(text) => Json::stored(text),
            None => self.apply_thoroughly(document)?,
        };
        let bytes = body.as_str().len();
        if bytes > MAX_BODY_BYTES {
            let expected = format!("a document of at most {MAX_BODY_BYTES} bytes, not {bytes}");
            return Err(Invalid::new("operation", &self.id().to_string(), expected));
        }
        Ok(body)
    }

    /// Applies the operation by parsing the whole document.
    pub(super) fn apply_thoroughly(&self, document: &Json) -> Result<Json, Invalid> {
        let mut value: Value = document.as_str().parse()?;
        for (path, step) in self.steps() {
            let (parents, name) = path.rsplit_once('.').map_or(("", path), |(parents, name)| (parents, name));
            let mut fields = fields_of(&mut value, path)?;
            for parent in parents.split('.').filter(|parent| !parent.is_empty()) {
                let inner = fields.iter_mut().find(|(field, _)| field == parent).map(|(_, value)| value);
                let missing = || {
                    Invalid::new(
                        "path",
                        path,
                        format!("a path of existing objects; the field {parent} is missing"),
                    )
                };
                fields = fields_of(inner.ok_or_else(missing)?, path)?;
            }
            let at = fields.iter().position(|(field, _)| field == name);
            step.apply(path, name, fields, at)?;
        }
        Ok(Json::stored(value.to_string()))
    }
}

fn fields_of<'v>(value: &'v mut Value, path: &str) -> Result<&'v mut Fields, Invalid> {
    match value {
        Value::Object(fields) => Ok(fields),
        other => {
            let found = shown(other);
            Err(Invalid::new("path", path, format!("a field of an object; its parent is {found}")))
        }
    }
}

/// Returns a value as text for errors: the same in all stores, and shortened.
fn shown(value: &Value) -> String {
    const SHOWN: usize = 60;
    let text = version::text(value).unwrap_or_else(|_| value.to_string());
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

impl FieldOperation {
    fn apply(&self, path: &str, name: &str, fields: &mut Fields, at: Option<usize>) -> Result<(), Invalid> {
        let found = at.and_then(|at| fields.get_mut(at)).map(|(_, value)| value);
        let fail = |expected: &str, found: Option<&Value>| {
            let found = found.map_or_else(|| "no such field".to_owned(), shown);
            Err(Invalid::new("path", path, format!("{expected}; found {found}")))
        };
        match (self, found) {
            (Self::Set(value), Some(found)) => *found = value.as_str().parse()?,
            (Self::Set(value), None) => fields.push((name.to_owned(), value.as_str().parse()?)),
            (Self::Push(value), Some(Value::Array(values))) => values.push(value.as_str().parse()?),
            (Self::Pull(value), Some(Value::Array(values))) => {
                let value: Value = value.as_str().parse()?;
                values.retain(|one| *one != value);
            }
            (Self::Push(_) | Self::Pull(_), found) => return fail("an array", found.as_deref()),
            (Self::Increment(amount), Some(found)) => match added(found, *amount) {
                Some(sum) => *found = sum,
                None => return fail("a number that stays within its range", Some(found)),
            },
            (Self::Increment(_), None) => return fail("a number", None),
        }
        Ok(())
    }
}

/// Adds an amount to a number. Returns `None` if the value is not a number, or the sum is out of
/// range.
fn added(number: &Value, amount: Amount) -> Option<Value> {
    #[expect(
        clippy::cast_precision_loss,
        reason = "an integer added to a floating-point number loses precision"
    )]
    let double = |number: i64| number as f64;
    let sum = match (number, amount) {
        (Value::Int32(number), Amount::Whole(amount)) => {
            Value::of_int(i64::from(*number).checked_add(amount)?)
        }
        // The sum has the narrowest type, so that programs without number widths can read it.
        (Value::Int64(number), Amount::Whole(amount)) => Value::of_int(number.checked_add(amount)?),
        (Value::Int32(number), Amount::Double(amount)) => Value::Double(f64::from(*number) + amount),
        (Value::Int64(number), Amount::Double(amount)) => Value::Double(double(*number) + amount),
        (Value::Double(number), Amount::Whole(amount)) => Value::Double(number + double(amount)),
        (Value::Double(number), Amount::Double(amount)) => Value::Double(number + amount),
        _ => return None,
    };
    match sum {
        Value::Double(sum) if !sum.is_finite() => None,
        sum => Some(sum),
    }
}

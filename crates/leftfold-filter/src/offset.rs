//! Relative dates: the time of evaluation plus an offset.

use crate::value::Value;

/// The operator of a relative date.
pub(crate) const NOW: &str = "$now";
pub(crate) const EXPECTED: &str =
    "an offset such as -1h, 30s or 1d12h, in ms, s, m, h and d, of at most 3650000d";
/// Ten thousand years, in milliseconds. Below that, no result overflows an integer.
const MOST: i64 = 3_650_000 * 86_400_000;

/// Returns the milliseconds of `{"$now": "-1h"}`, `None` if it is something else, or `Err` if the
/// offset is invalid.
pub(crate) fn offset(operand: &Value) -> Option<Result<i64, ()>> {
    match (operand, operand.get(NOW)?) {
        (Value::Object(fields), Value::String(text)) if fields.len() == 1 => Some(parse(text).ok_or(())),
        _ => Some(Err(())),
    }
}

fn parse(text: &str) -> Option<i64> {
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let (mut rest, mut total) = (unsigned, 0_i64);
    while !rest.is_empty() || unsigned.is_empty() {
        let (number, unit) = rest.split_at(rest.find(|c: char| !c.is_ascii_digit())?);
        let end = unit.find(|c: char| c.is_ascii_digit()).unwrap_or(unit.len());
        let millis = match &unit[..end] {
            "ms" => 1,
            "s" => 1_000,
            "m" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            _ => return None,
        };
        total = number.parse::<i64>().ok()?.checked_mul(millis)?.checked_add(total)?;
        rest = &unit[end..];
    }
    (total <= MOST).then_some(if text.starts_with('-') { -total } else { total })
}

/// Returns the same filter with absolute dates.
pub(crate) fn fixed(source: &Value, now: i64) -> Value {
    match source {
        Value::Object(fields) => match offset(source) {
            Some(Ok(offset)) => Value::Date(now.saturating_add(offset)),
            _ => {
                Value::Object(fields.iter().map(|(name, value)| (name.clone(), fixed(value, now))).collect())
            }
        },
        Value::Array(items) => Value::Array(items.iter().map(|item| fixed(item, now)).collect()),
        _ => source.clone(),
    }
}

//! Regular expressions in values, in one form.

use crate::value::Value;

/// Returns the same filter, with regular expressions in values expanded from the short to the long
/// form.
pub(crate) fn with_long_patterns(source: Value) -> Value {
    match source {
        Value::Object(fields) => {
            let fields = fields.into_iter().map(|(name, value)| match (name.as_str(), value) {
                ("$in" | "$nin" | "$all", Value::Array(items)) => (
                    name,
                    Value::Array(items.into_iter().map(|item| with_long_patterns(regex(item))).collect()),
                ),
                (_, value) => (name, with_long_patterns(value)),
            });
            Value::Object(fields.collect())
        }
        Value::Array(items) => Value::Array(items.into_iter().map(with_long_patterns).collect()),
        other => other,
    }
}

fn regex(value: Value) -> Value {
    let Value::Object(fields) = &value else { return value };
    let (pattern, options) = match &fields[..] {
        [(one, Value::String(pattern))] if one == "$regex" => (pattern, ""),
        [(one, Value::String(pattern)), (other, Value::String(options))]
        | [(other, Value::String(options)), (one, Value::String(pattern))]
            if one == "$regex" && other == "$options" =>
        {
            (pattern, options.as_str())
        }
        _ => return value,
    };
    let mut options: Vec<_> = options.chars().collect();
    options.sort_unstable();
    Value::Regex { pattern: pattern.clone(), options: options.into_iter().collect() }
}

//! The operators that apply to a path.

use super::literal::malformed;
use super::query::Parser;
use crate::condition::{Comparison, Condition, Test};
use crate::error::Error;
use crate::offset;
use crate::pattern::Pattern;
use crate::value::{Fields, Value};

const OPERATORS: &str = "one of $eq, $ne, $gt, $gte, $lt, $lte, $in, $nin, $exists, $type, $regex, $options, $mod, \
                         $size, $all, $elemMatch, $not";
const TYPES: [(&str, &[i32]); 22] = [
    ("double", &[1]),
    ("string", &[2]),
    ("object", &[3]),
    ("array", &[4]),
    ("binData", &[5]),
    ("undefined", &[6]),
    ("objectId", &[7]),
    ("bool", &[8]),
    ("date", &[9]),
    ("null", &[10]),
    ("regex", &[11]),
    ("dbPointer", &[12]),
    ("javascript", &[13]),
    ("symbol", &[14]),
    ("javascriptWithScope", &[15]),
    ("int", &[16]),
    ("timestamp", &[17]),
    ("long", &[18]),
    ("decimal", &[19]),
    ("minKey", &[-1]),
    ("maxKey", &[127]),
    ("number", &[1, 16, 18, 19]),
];

impl Parser {
    pub(super) fn operators(&mut self, whole: &Value, fields: &Fields) -> Result<Condition, Error> {
        let mut conditions = Vec::with_capacity(fields.len());
        for (name, value) in fields {
            if name == "$options" && whole.get("$regex").is_some() {
                continue;
            }
            conditions.push(self.within(name, value, |parser| parser.operator(whole, name, value))?);
        }
        Ok(Condition::All(conditions))
    }

    fn operator(&mut self, whole: &Value, name: &str, value: &Value) -> Result<Condition, Error> {
        let not = |condition| Condition::Not(Box::new(condition));
        match name {
            "$eq" => self.compare(Comparison::Equal, value),
            "$ne" if matches!(value, Value::Regex { .. }) => {
                self.refuse(value, "a value; a regular expression goes after $not")
            }
            "$ne" => self.compare(Comparison::Equal, value).map(not),
            "$gt" => self.compare(Comparison::Greater, value),
            "$gte" => self.compare(Comparison::GreaterOrEqual, value),
            "$lt" => self.compare(Comparison::Less, value),
            "$lte" => self.compare(Comparison::LessOrEqual, value),
            "$in" => self.one_of(value),
            "$nin" => self.one_of(value).map(not),
            "$exists" if is_true(value) => Ok(Condition::Some(Test::Exists)),
            "$exists" => Ok(not(Condition::Some(Test::Exists))),
            "$type" => self.types(value),
            "$regex" => self.text_pattern(whole, value),
            "$options" => self.refuse(value, "$regex beside $options"),
            "$mod" => self.modulo(value),
            "$size" => self.size(value),
            "$all" => self.all(value),
            "$elemMatch" => self.element(value),
            "$not" => match value {
                Value::Regex { .. } => self.pattern(value).map(not),
                Value::Object(fields) if !fields.is_empty() => self.operators(value, fields).map(not),
                _ => self.refuse(value, "a regular expression or an object with operators"),
            },
            offset::NOW => {
                self.refuse(value, "a comparison around it, such as {\"$lte\": {\"$now\": \"0s\"}}")
            }
            _ => self.refuse(value, malformed(name).unwrap_or(OPERATORS)),
        }
    }

    fn compare(&mut self, comparison: Comparison, value: &Value) -> Result<Condition, Error> {
        let test = match offset::offset(value) {
            Some(Ok(offset)) => {
                self.timed = true;
                Test::CompareToNow(comparison, offset)
            }
            Some(Err(())) => return self.refuse(value, offset::EXPECTED),
            None if matches!(value, Value::Regex { .. }) && comparison != Comparison::Equal => {
                return self.refuse(value, "a value that is no regular expression");
            }
            None => Test::Compare(comparison, self.literal(value)?),
        };
        Ok(Condition::Some(test))
    }

    fn one_of(&mut self, value: &Value) -> Result<Condition, Error> {
        let (mut values, mut patterns) = (Vec::new(), Vec::new());
        self.items(value, |parser, item| {
            match item {
                Value::Regex { .. } => patterns.push(parser.regex(item)?),
                _ => values.push(parser.literal(item)?),
            }
            Ok(())
        })?;
        values.sort_unstable();
        Ok(Condition::Some(Test::In { values, patterns }))
    }

    fn types(&mut self, value: &Value) -> Result<Condition, Error> {
        let codes = match value {
            Value::Array(_) => self.items(value, Self::type_codes)?.concat(),
            _ => self.type_codes(value)?,
        };
        if codes.is_empty() {
            return self.refuse(value, "at least one type");
        }
        Ok(Condition::Some(Test::Type(codes)))
    }

    fn type_codes(&mut self, value: &Value) -> Result<Vec<i32>, Error> {
        let codes = match value {
            Value::String(alias) => {
                TYPES.iter().find(|(name, _)| name == alias).map(|(_, codes)| codes.to_vec())
            }
            _ => integer(value)
                .and_then(|code| i32::try_from(code).ok())
                .filter(|code| matches!(code, -1 | 1..=19 | 127))
                .map(|code| vec![code]),
        };
        codes.map_or_else(
            || {
                let names: Vec<_> = TYPES.iter().map(|(name, _)| *name).collect();
                self.refuse(value, format!("a type by its name or number: one of {}", names.join(", ")))
            },
            Ok,
        )
    }

    fn text_pattern(&mut self, whole: &Value, value: &Value) -> Result<Condition, Error> {
        let options = match whole.get("$options") {
            None => None,
            Some(Value::String(options)) => Some(options.as_str()),
            Some(other) => return self.refuse(other, "a text with options after $options"),
        };
        let (pattern, options) = match (value, options) {
            (Value::String(pattern), options) => (pattern, options.unwrap_or_default()),
            (Value::Regex { pattern, options }, None) => (pattern, options.as_str()),
            (Value::Regex { pattern, options: none }, Some(options)) if none.is_empty() => (pattern, options),
            (Value::Regex { .. }, _) => return self.refuse(value, "options in one place"),
            _ => return self.refuse(value, "a regular expression as a text"),
        };
        let pattern = Pattern::new(pattern, options).or_else(|expected| self.refuse(value, expected))?;
        Ok(Condition::Some(Test::Matches(pattern)))
    }

    fn modulo(&mut self, value: &Value) -> Result<Condition, Error> {
        if let Value::Array(items) = value
            && let [divisor, remainder] = &items[..]
            && let (Some(divisor), Some(remainder)) = (divisor.truncated(), remainder.truncated())
            && divisor != 0
        {
            return Ok(Condition::Some(Test::Mod { divisor, remainder }));
        }
        self.refuse(value, "an array of a divisor, which is not 0, and a remainder")
    }

    fn size(&mut self, value: &Value) -> Result<Condition, Error> {
        let size = integer(value).and_then(|size| i32::try_from(size).ok());
        match size.and_then(|size| usize::try_from(size).ok()) {
            Some(size) => Ok(Condition::Some(Test::Size(size))),
            None => self.refuse(value, "a whole number, 0 or more"),
        }
    }

    fn all(&mut self, value: &Value) -> Result<Condition, Error> {
        let Value::Array(items) = value else { return self.refuse(value, "an array") };
        let element = |item: &Value| match item {
            Value::Object(fields) => fields.first().is_some_and(|(name, _)| name == "$elemMatch"),
            _ => false,
        };
        // An empty `$all` selects nothing.
        if items.is_empty() {
            return Ok(Condition::Some(Test::In { values: Vec::new(), patterns: Vec::new() }));
        }
        let elements = items.first().is_some_and(element);
        let conditions = self.items(value, |parser, item| match item {
            Value::Object(fields) if elements => match &fields[..] {
                [(name, query)] if name == "$elemMatch" => {
                    parser.within(name, query, |parser| parser.element(query))
                }
                _ => parser.refuse(item, "only objects with $elemMatch, as the first one is"),
            },
            _ if elements => parser.refuse(item, "only objects with $elemMatch, as the first one is"),
            Value::Regex { .. } => parser.pattern(item),
            _ => parser.equal(item),
        })?;
        Ok(Condition::All(conditions))
    }

    fn element(&mut self, value: &Value) -> Result<Condition, Error> {
        let Value::Object(fields) = value else { return self.refuse(value, "an object") };
        let on_documents = |name: &str| matches!(name, "$and" | "$or" | "$nor");
        let test = match fields.first() {
            Some((name, _)) if name.starts_with('$') && !on_documents(name) => {
                Test::Element(Box::new(self.operators(value, fields)?))
            }
            _ => Test::ElementObject(Box::new(self.query(value)?)),
        };
        Ok(Condition::Some(test))
    }
}

fn is_true(value: &Value) -> bool {
    match value {
        Value::Bool(is) => *is,
        Value::Null | Value::Undefined => false,
        Value::Int32(_) | Value::Int64(_) | Value::Double(_) | Value::Decimal(_) => *value != Value::Int32(0),
        _ => true,
    }
}

/// Returns a whole number of any type.
fn integer(value: &Value) -> Option<i64> {
    value.truncated().filter(|whole| *value == Value::Int64(*whole))
}

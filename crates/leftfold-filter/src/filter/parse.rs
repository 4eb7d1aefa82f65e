//! Parses a value into a filter. An error tells what is wrong and where.

use super::condition::{Comparison, Condition, Query, Test};
use super::offset;
use super::path::Path;
use super::pattern::Pattern;
use crate::error::Error;
use crate::value::{Fields, Value};

/// The maximum nesting depth of a filter.
const MAX_DEPTH: usize = 50;
/// The maximum number of indexes on the way to a value: the cost of following all ways grows with
/// each of them.
const MAX_INDEXES: usize = 12;

const QUERIES: &str = "a path, $and, $or or $nor";
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

/// Compiles a filter. Also returns whether it depends on the time.
pub(super) fn parse(source: &Value) -> Result<(Query, bool), Error> {
    let mut parser = Parser { at: Vec::new(), indexes: 0, timed: false };
    let query = parser.query(source)?;
    Ok((query, parser.timed))
}

/// Returns the same filter, with regular expressions in values expanded from the short to the long
/// form.
pub(super) fn plain(source: Value) -> Value {
    match source {
        Value::Object(fields) => {
            let fields = fields.into_iter().map(|(name, value)| match (name.as_str(), value) {
                ("$in" | "$nin" | "$all", Value::Array(items)) => {
                    (name, Value::Array(items.into_iter().map(|item| plain(regex(item))).collect()))
                }
                (_, value) => (name, plain(value)),
            });
            Value::Object(fields.collect())
        }
        Value::Array(items) => Value::Array(items.into_iter().map(plain).collect()),
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

struct Parser {
    /// The path to the current place.
    at: Vec<String>,
    /// The number of indexes on that path.
    indexes: usize,
    timed: bool,
}

impl Parser {
    fn refuse<T>(&self, value: &Value, expected: impl AsRef<str>) -> Result<T, Error> {
        let (expected, at) = (expected.as_ref(), self.at.join(" › "));
        Err(Error::new(
            "filter",
            &value.to_string(),
            if at.is_empty() { expected.to_owned() } else { format!("{expected}, at `{at}`") },
        ))
    }

    /// Runs `work` one level deeper.
    fn within<T>(
        &mut self,
        name: impl Into<String>,
        value: &Value,
        work: impl FnOnce(&mut Self) -> Result<T, Error>,
    ) -> Result<T, Error> {
        self.at.push(name.into());
        if self.at.len() > MAX_DEPTH {
            return self.refuse(value, format!("at most {MAX_DEPTH} levels"));
        }
        let done = work(self)?;
        self.at.pop();
        Ok(done)
    }

    fn query(&mut self, value: &Value) -> Result<Query, Error> {
        let Value::Object(fields) = value else { return self.refuse(value, "an object") };
        let mut queries = Vec::with_capacity(fields.len());
        for (name, value) in fields {
            queries.push(self.within(name, value, |parser| match name.as_str() {
                "$and" => parser.queries(value).map(Query::And),
                "$or" => parser.queries(value).map(Query::Or),
                "$nor" => parser.queries(value).map(Query::Nor),
                _ if name.starts_with('$') => parser.refuse(value, QUERIES),
                _ => {
                    let path = Path::parse(name).or_else(|expected| parser.refuse(value, expected))?;
                    parser.indexes += path.indexes();
                    if parser.indexes > MAX_INDEXES {
                        return parser.refuse(value, format!("at most {MAX_INDEXES} indexes on the way"));
                    }
                    let condition = parser.condition(value)?;
                    parser.indexes -= path.indexes();
                    Ok(Query::Field(path, condition))
                }
            })?);
        }
        Ok(Query::And(queries))
    }

    fn queries(&mut self, value: &Value) -> Result<Vec<Query>, Error> {
        let queries = self.items(value, Self::query)?;
        if queries.is_empty() { self.refuse(value, "an array that is not empty") } else { Ok(queries) }
    }

    fn items<T>(
        &mut self,
        value: &Value,
        mut each: impl FnMut(&mut Self, &Value) -> Result<T, Error>,
    ) -> Result<Vec<T>, Error> {
        let Value::Array(items) = value else { return self.refuse(value, "an array") };
        let numbered = items.iter().enumerate();
        numbered
            .map(|(index, item)| self.within(index.to_string(), item, |parser| each(parser, item)))
            .collect()
    }

    /// Parses the condition on a path.
    fn condition(&mut self, value: &Value) -> Result<Condition, Error> {
        match value {
            Value::Regex { .. } => self.pattern(value),
            Value::Object(fields) if has_operators(fields) => self.operators(value, fields),
            _ => self.equal(value),
        }
    }

    fn equal(&mut self, value: &Value) -> Result<Condition, Error> {
        Ok(Condition::Some(Test::Compare(Comparison::Equal, self.literal(value)?)))
    }

    fn pattern(&mut self, value: &Value) -> Result<Condition, Error> {
        Ok(Condition::Some(Test::Matches(self.regex(value)?)))
    }

    fn regex(&mut self, value: &Value) -> Result<Pattern, Error> {
        match value {
            Value::Regex { pattern, options } => {
                Pattern::new(pattern, options).or_else(|expected| self.refuse(value, expected))
            }
            _ => self.refuse(value, "a regular expression"),
        }
    }

    fn operators(&mut self, whole: &Value, fields: &Fields) -> Result<Condition, Error> {
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

    /// Checks a value to compare with.
    fn literal(&mut self, value: &Value) -> Result<Value, Error> {
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

/// Returns whether an object consists of operators, rather than being a value to compare with.
fn has_operators(fields: &Fields) -> bool {
    fields.first().is_some_and(|(name, _)| name.starts_with('$'))
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

/// Returns the expected form of an object that begins like extended JSON but is malformed.
fn malformed(name: &str) -> Option<&'static str> {
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

//! The structure of a filter: logic, paths and conditions.

use crate::condition::{Comparison, Condition, Query, Test};
use crate::error::Error;
use crate::path::Path;
use crate::pattern::Pattern;
use crate::value::{Fields, Value};

/// The maximum nesting depth of a filter.
const MAX_DEPTH: usize = 50;
/// The maximum number of indexes on the way to a value: the cost of following all ways grows with
/// each of them.
const MAX_INDEXES: usize = 12;

const QUERIES: &str = "a path, $and, $or or $nor";

/// Compiles a filter. Also returns whether it depends on the time.
pub(crate) fn parse(source: &Value) -> Result<(Query, bool), Error> {
    let mut parser = Parser { at: Vec::new(), indexes: 0, timed: false };
    let query = parser.query(source)?;
    Ok((query, parser.timed))
}

/// Parses a filter, and knows the current place in it.
pub(super) struct Parser {
    /// The path to the current place.
    at: Vec<String>,
    /// The number of indexes on that path.
    indexes: usize,
    /// `true` if the filter depends on the time.
    pub(super) timed: bool,
}

impl Parser {
    pub(super) fn refuse<T>(&self, value: &Value, expected: impl AsRef<str>) -> Result<T, Error> {
        let (expected, at) = (expected.as_ref(), self.at.join(" › "));
        Err(Error::new(
            "filter",
            &value.to_string(),
            if at.is_empty() { expected.to_owned() } else { format!("{expected}, at `{at}`") },
        ))
    }

    /// Runs `work` one level deeper.
    pub(super) fn within<T>(
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

    pub(super) fn query(&mut self, value: &Value) -> Result<Query, Error> {
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

    pub(super) fn items<T>(
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

    pub(super) fn equal(&mut self, value: &Value) -> Result<Condition, Error> {
        Ok(Condition::Some(Test::Compare(Comparison::Equal, self.literal(value)?)))
    }

    pub(super) fn pattern(&mut self, value: &Value) -> Result<Condition, Error> {
        Ok(Condition::Some(Test::Matches(self.regex(value)?)))
    }

    pub(super) fn regex(&mut self, value: &Value) -> Result<Pattern, Error> {
        match value {
            Value::Regex { pattern, options } => {
                Pattern::new(pattern, options).or_else(|expected| self.refuse(value, expected))
            }
            _ => self.refuse(value, "a regular expression"),
        }
    }
}

/// Returns whether an object consists of operators, rather than being a value to compare with.
fn has_operators(fields: &Fields) -> bool {
    fields.first().is_some_and(|(name, _)| name.starts_with('$'))
}

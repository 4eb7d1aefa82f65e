//! A filter in the form in which it is evaluated: parsed, with compiled regular expressions.

use std::cmp::Ordering;

use crate::path::{Ends, Path};
use crate::pattern::Pattern;
use crate::value::Value;

/// A condition on a document.
#[derive(Clone, Debug)]
pub(crate) enum Query {
    And(Vec<Query>),
    Or(Vec<Query>),
    Nor(Vec<Query>),
    Field(Path, Condition),
}

/// A condition on a path, or on an element of an array.
#[derive(Clone, Debug)]
pub(crate) enum Condition {
    All(Vec<Condition>),
    Not(Box<Condition>),
    /// At least one value that the path reaches passes.
    Some(Test),
}

/// A condition on a value.
#[derive(Clone, Debug)]
pub(crate) enum Test {
    Compare(Comparison, Value),
    /// Compares with a relative date: this many milliseconds from now.
    CompareToNow(Comparison, i64),
    In {
        /// Sorted.
        values: Vec<Value>,
        patterns: Vec<Pattern>,
    },
    Exists,
    /// The value has one of these types, by their numbers.
    Type(Vec<i32>),
    Matches(Pattern),
    Mod {
        divisor: i64,
        remainder: i64,
    },
    Size(usize),
    /// The value is an array that contains an object that the query selects.
    ElementObject(Box<Query>),
    /// The value is an array that contains an element that passes.
    Element(Box<Condition>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Comparison {
    Equal,
    Greater,
    GreaterOrEqual,
    Less,
    LessOrEqual,
}

impl Query {
    pub(crate) fn matches(&self, document: &Value, now: i64) -> bool {
        match self {
            Self::And(queries) => queries.iter().all(|query| query.matches(document, now)),
            Self::Or(queries) => queries.iter().any(|query| query.matches(document, now)),
            Self::Nor(queries) => !queries.iter().any(|query| query.matches(document, now)),
            Self::Field(path, condition) => condition
                .holds(&mut |test| path.any(document, test.ends(), &mut |value| test.passes(value, now))),
        }
    }

    fn is_timed(&self) -> bool {
        match self {
            Self::And(queries) | Self::Or(queries) | Self::Nor(queries) => queries.iter().any(Self::is_timed),
            Self::Field(_, condition) => condition.is_timed(),
        }
    }

    /// Returns when the result may change next. An untimed part that alone decides the result
    /// decides it for good.
    pub(crate) fn changes_at(&self, document: &Value, now: i64) -> Option<i64> {
        let decided = |queries: &[Self], by: bool| {
            queries.iter().any(|query| !query.is_timed() && query.matches(document, now) == by)
        };
        match self {
            Self::And(queries) if decided(queries, false) => None,
            Self::Or(queries) | Self::Nor(queries) if decided(queries, true) => None,
            Self::And(queries) | Self::Or(queries) | Self::Nor(queries) => {
                queries.iter().filter_map(|query| query.changes_at(document, now)).min()
            }
            Self::Field(path, condition) => {
                let mut next = Earliest(None);
                condition.each(&mut |test| {
                    path.any(document, test.ends(), &mut |value| {
                        next.note(test.changes_at(value, now));
                        false
                    });
                });
                next.0
            }
        }
    }
}

/// The minimum of the recorded times.
struct Earliest(Option<i64>);

impl Earliest {
    fn note(&mut self, at: Option<i64>) {
        self.0 = self.0.into_iter().chain(at).min();
    }
}

impl Condition {
    /// Returns whether the condition holds. `some` tells whether any value passes a test.
    fn holds(&self, some: &mut dyn FnMut(&Test) -> bool) -> bool {
        match self {
            Self::All(conditions) => conditions.iter().all(|condition| condition.holds(some)),
            Self::Not(condition) => !condition.holds(some),
            Self::Some(test) => some(test),
        }
    }

    fn each<'a>(&'a self, look: &mut dyn FnMut(&'a Test)) {
        match self {
            Self::All(conditions) => conditions.iter().for_each(|condition| condition.each(look)),
            Self::Not(condition) => condition.each(look),
            Self::Some(test) => look(test),
        }
    }

    fn is_timed(&self) -> bool {
        let mut timed = false;
        self.each(&mut |test| timed |= test.is_timed());
        timed
    }
}

impl Test {
    fn ends(&self) -> Ends {
        match self {
            Self::Size(_) | Self::ElementObject(_) | Self::Element(_) => Ends::AtArray,
            _ => Ends::Within,
        }
    }

    fn passes(&self, value: Option<&Value>, now: i64) -> bool {
        match self {
            Self::Compare(comparison, with) => comparison.holds(value, with),
            Self::CompareToNow(comparison, offset) => {
                comparison.holds(value, &Value::Date(now.saturating_add(*offset)))
            }
            Self::In { values, patterns } => match value {
                None | Some(Value::Undefined) => values.binary_search(&Value::Null).is_ok(),
                Some(value) => {
                    values.binary_search(value).is_ok()
                        || patterns.iter().any(|pattern| pattern.matches(value))
                }
            },
            Self::Exists => value.is_some(),
            Self::Type(codes) => value.is_some_and(|value| codes.contains(&value.type_code())),
            Self::Matches(pattern) => value.is_some_and(|value| pattern.matches(value)),
            Self::Mod { divisor, remainder } => value
                .and_then(Value::truncated)
                .is_some_and(|dividend| dividend.wrapping_rem(*divisor) == *remainder),
            Self::Size(size) => items(value).is_some_and(|items| items.len() == *size),
            Self::ElementObject(query) => objects(value).any(|object| query.matches(object, now)),
            Self::Element(condition) => items(value).is_some_and(|items| {
                items.iter().any(|item| condition.holds(&mut |test| test.passes(Some(item), now)))
            }),
        }
    }

    fn is_timed(&self) -> bool {
        match self {
            Self::CompareToNow(..) => true,
            Self::ElementObject(query) => query.is_timed(),
            Self::Element(condition) => condition.is_timed(),
            _ => false,
        }
    }

    fn changes_at(&self, value: Option<&Value>, now: i64) -> Option<i64> {
        match self {
            Self::CompareToNow(comparison, offset) => match value {
                Some(Value::Date(date)) => comparison.changes_at(date.checked_sub(*offset)?, now),
                _ => None,
            },
            Self::ElementObject(query) => {
                objects(value).filter_map(|object| query.changes_at(object, now)).min()
            }
            Self::Element(condition) => {
                let mut next = Earliest(None);
                for item in items(value)? {
                    condition.each(&mut |test| next.note(test.changes_at(Some(item), now)));
                }
                next.0
            }
            _ => None,
        }
    }
}

fn items(value: Option<&Value>) -> Option<&[Value]> {
    match value {
        Some(Value::Array(items)) => Some(items),
        _ => None,
    }
}

/// Returns the elements that have fields. Arrays count: their names are numbers.
fn objects(value: Option<&Value>) -> impl Iterator<Item = &Value> {
    let items = items(value).unwrap_or_default().iter();
    items.filter(|item| matches!(item, Value::Object(_) | Value::Array(_)))
}

impl Comparison {
    /// Compares two values. Values of different types don't compare, with two exceptions: a missing
    /// value counts as null, and the minimum and maximum keys compare with everything.
    fn holds(self, value: Option<&Value>, with: &Value) -> bool {
        let null = matches!(value, None | Some(Value::Undefined));
        let ordering = match (value, with) {
            (_, Value::Null) if null => Ordering::Equal,
            (Some(value), _) if value.bracket() == with.bracket() => {
                let (one, other) = (value.is_nan(), with.is_nan());
                if one != other {
                    return false;
                }
                value.cmp(with)
            }
            (_, Value::MinKey) => Ordering::Greater,
            (_, Value::MaxKey) => Ordering::Less,
            _ => return false,
        };
        match self {
            Self::Equal => ordering.is_eq(),
            Self::Greater => ordering.is_gt(),
            Self::GreaterOrEqual => ordering.is_ge(),
            Self::Less => ordering.is_lt(),
            Self::LessOrEqual => ordering.is_le(),
        }
    }

    /// Returns when a comparison with a relative date changes, if that date reaches the value at
    /// `then`.
    fn changes_at(self, then: i64, now: i64) -> Option<i64> {
        let after = then.checked_add(1)?;
        let moments = match self {
            Self::Equal => [then, after],
            Self::Greater | Self::LessOrEqual => [then, then],
            Self::GreaterOrEqual | Self::Less => [after, after],
        };
        moments.into_iter().find(|moment| *moment > now)
    }
}

//! Conditions on documents as data, in MongoDB's query language.

mod condition;
mod offset;
mod parse;
mod path;
mod pattern;
#[cfg(test)]
mod tests;

use std::fmt;
use std::str::FromStr;

use jiff::Timestamp;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use self::condition::Query;
pub(super) use self::path::parts;
use super::value::{Value, millis};
use crate::error::Invalid;

/// A condition on documents, in MongoDB's query language.
///
/// It selects the documents that MongoDB would select. On MongoDB it is sent there as it is, by way of
/// [`to_query`](Self::to_query); elsewhere [`matches`](Self::matches) answers.
///
/// ```
/// use leftfold::react::{Filter, Value};
///
/// let filter: Filter = r#"{"status": "open", "items": {"$elemMatch": {"sku": "shoes", "count": {"$gte": 2}}}}"#.parse()?;
/// let cart: Value = r#"{"status": "open", "items": [{"sku": "shoes", "count": 3}]}"#.parse()?;
/// assert!(filter.matches(&cart, "2026-11-16T08:00:00Z".parse()?));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # What can be said
///
/// - `{"path": value}`: equality. `null` also stands for what is missing.
/// - `$eq`, `$ne`, `$gt`, `$gte`, `$lt`, `$lte`, `$in`, `$nin`, `$exists`, `$type`, `$mod`, `$regex` with `$options`,
///   `$size`, `$all`, `$elemMatch` and `$not` on a path; `$and`, `$or` and `$nor` on all of it.
/// - Dates, ids and other types as extended JSON: `{"$date": "2026-11-16T08:00:00Z"}`, `{"$oid": "…"}`.
///   Regular expressions as values, also within `$in`, `$nin` and `$all`: `{"$regularExpression": {"pattern": "^a",
///   "options": "i"}}`, or in short `{"$regex": "^a", "$options": "i"}`.
///
/// # Time
///
/// `{"$now": "-1h"}` is a date that moves: the moment of evaluation plus an offset, here an hour before. It may stand
/// after `$eq`, `$ne`, `$gt`, `$gte`, `$lt` and `$lte`. The offset is a number of `ms`, `s`, `m`, `h` or `d`, or several
/// of them (`1h30m`), perhaps with a sign in front; now itself is `0s`. A filter with it begins or ceases to match a
/// document that doesn't change: [`changes_at`](Self::changes_at) says when to look again.
///
/// ```
/// use leftfold::react::{Filter, Value};
///
/// let overdue: Filter = r#"{"paid": null, "due": {"$lte": {"$now": "0s"}}}"#.parse()?;
/// let invoice: Value = r#"{"due": {"$date": "2026-11-16T08:00:00Z"}}"#.parse()?;
/// let (before, then) = ("2026-11-01T00:00:00Z".parse()?, "2026-11-16T08:00:00Z".parse()?);
/// assert!(!overdue.matches(&invoice, before) && overdue.matches(&invoice, then));
/// assert_eq!(overdue.changes_at(&invoice, before), Some(then));
/// assert_eq!(overdue.changes_at(&invoice, then), None);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # What differs from MongoDB
///
/// Refused here, though MongoDB takes it:
///
/// - other operators: `$comment`, `$expr`, `$where`, `$text`, `$jsonSchema`, those on bits, and the geographic ones;
/// - objects to be compared with that have names beginning with `$` in them, references (`$ref`) included: `{"a": {"b":
///   {"$gt": 1}}}` would ask for a field named `$gt`, and is meant as `{"a.b": {"$gt": 1}}`;
/// - paths with empty parts;
/// - regular expressions with look-around, back-references, possessive or atomic groups, and some rarer escapes, and
///   such as would mean something else here than there; options other than `i`, `m`, `s` and `x`, and options twice;
/// - more than 50 levels, 100 parts of a path, or 12 indexes on the way to a value.
///
/// Accepted here, though MongoDB may refuse it: names of Unicode classes (`\p{Greek}`) in regular expressions that only
/// newer versions of it know.
///
/// Without collations, texts are compared by their bytes.
#[derive(Clone)]
pub struct Filter {
    source: Value,
    query: Query,
    timed: bool,
}

impl Filter {
    /// Reads a filter. The error says where in it what was expected.
    ///
    /// A [`serde_json::Value`] does not keep the order of fields, which matters where objects are compared: from a text
    /// ([`FromStr`]) or a configuration ([`Deserialize`]) it is kept.
    pub fn parse(json: &serde_json::Value) -> Result<Self, Invalid> {
        Self::of(json.clone().into())
    }

    /// The filter that a value says.
    pub fn of(source: Value) -> Result<Self, Invalid> {
        let source = parse::plain(source);
        let (query, timed) = parse::parse(&source)?;
        Ok(Self { source, query, timed })
    }

    /// Whether it selects the document at this moment.
    pub fn matches(&self, document: &Value, now: Timestamp) -> bool {
        self.query.matches(document, millis(now))
    }

    /// Whether time matters to it.
    pub fn is_timed(&self) -> bool {
        self.timed
    }

    /// The earliest moment after `now` at which [`matches`](Self::matches) might answer differently for the same
    /// document: not before that. `None` if it never will. It may still answer the same then: ask again for the next one.
    pub fn changes_at(&self, document: &Value, now: Timestamp) -> Option<Timestamp> {
        if !self.timed {
            return None;
        }
        let at = self.query.changes_at(document, millis(now))?;
        Timestamp::from_millisecond(at).ok()
    }

    /// The query for MongoDB, in which dates that move stand still.
    pub fn to_query(&self, now: Timestamp) -> Value {
        if self.timed { offset::fixed(&self.source, millis(now)) } else { self.source.clone() }
    }
}

impl FromStr for Filter {
    type Err = Invalid;

    /// From a text of JSON.
    fn from_str(text: &str) -> Result<Self, Invalid> {
        Self::of(text.parse()?)
    }
}

impl fmt::Display for Filter {
    /// As a text of JSON: always the same for the same filter, so that a changed one is noticed.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.source, f)
    }
}

impl fmt::Debug for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for Filter {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.source.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Filter {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::of(Value::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}

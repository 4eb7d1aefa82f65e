//! Conditions on documents as data, in MongoDB's query language.

use std::fmt;
use std::str::FromStr;

use jiff::Timestamp;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::condition::Query;
use crate::error::Error;
use crate::json::millis;
use crate::value::Value;
use crate::{offset, parse};

/// A condition on documents, in MongoDB's query language.
///
/// It selects the documents that MongoDB would select. On MongoDB the filter runs as a query, by
/// way of [`to_query`](Self::to_query); elsewhere [`matches`](Self::matches) evaluates it.
///
/// ```
/// use leftfold_filter::{Filter, Value};
///
/// let filter: Filter = r#"{"status": "open", "items": {"$elemMatch": {"sku": "shoes", "count": {"$gte": 2}}}}"#.parse()?;
/// let cart: Value = r#"{"status": "open", "items": [{"sku": "shoes", "count": 3}]}"#.parse()?;
/// assert!(filter.matches(&cart, "2026-11-16T08:00:00Z".parse()?));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Syntax
///
/// - `{"path": value}`: equality. `null` also matches a missing field.
/// - `$eq`, `$ne`, `$gt`, `$gte`, `$lt`, `$lte`, `$in`, `$nin`, `$exists`, `$type`, `$mod`,
///   `$regex` with `$options`, `$size`, `$all`, `$elemMatch` and `$not` apply to a path; `$and`,
///   `$or` and `$nor` to the document.
/// - Dates, ids and other types are written as extended JSON: `{"$date": "2026-11-16T08:00:00Z"}`,
///   `{"$oid": "…"}`.
/// - Regular expressions can be values, also within `$in`, `$nin` and `$all`. The long form is
///   `{"$regularExpression": {"pattern": "^a", "options": "i"}}`, the short form `{"$regex": "^a",
///   "$options": "i"}`.
///
/// # Time
///
/// `{"$now": "-1h"}` is a relative date: the time of evaluation plus an offset, here an hour
/// earlier. It may follow `$eq`, `$ne`, `$gt`, `$gte`, `$lt` and `$lte`. The offset is a number of
/// `ms`, `s`, `m`, `h` or `d`, or several of them (`1h30m`), with an optional sign; the current
/// time is `0s`. Such a filter may begin or cease to match a document that doesn't change:
/// [`changes_at`](Self::changes_at) returns when to evaluate it again.
///
/// ```
/// use leftfold_filter::{Filter, Value};
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
/// # Differences from MongoDB
///
/// A filter rejects the following, which MongoDB accepts:
///
/// - other operators: `$comment`, `$expr`, `$where`, `$text`, `$jsonSchema`, the bitwise ones, and
///   the geospatial ones;
/// - objects to compare with that contain names beginning with `$`, including references (`$ref`).
///   `{"a": {"b": {"$gt": 1}}}` would mean a field named `$gt`; write `{"a.b": {"$gt": 1}}`
///   instead;
/// - paths with empty parts;
/// - regular expressions with look-around, back-references, possessive or atomic groups, and some
///   rarer escapes; also expressions that would mean something else here;
/// - options of regular expressions other than `i`, `m`, `s` and `x`, and repeated options;
/// - more than 50 levels, 100 parts of a path, or 12 indexes on the way to a value.
///
/// A filter may accept names of Unicode classes (`\p{Greek}`) in regular expressions that only
/// newer versions of MongoDB know.
///
/// Collations are not supported: strings are compared by their bytes.
#[derive(Clone)]
pub struct Filter {
    source: Value,
    query: Query,
    timed: bool,
}

impl Filter {
    /// Parses a filter. The error tells what was expected and where.
    ///
    /// A [`serde_json::Value`] does not keep the order of fields, which matters where objects are
    /// compared. A text ([`FromStr`]) or a configuration ([`Deserialize`]) keeps it.
    pub fn parse(json: &serde_json::Value) -> Result<Self, Error> {
        Self::of(json.clone().into())
    }

    /// Creates a filter from a value.
    pub fn of(source: Value) -> Result<Self, Error> {
        let source = parse::with_long_patterns(source);
        let (query, timed) = parse::parse(&source)?;
        Ok(Self { source, query, timed })
    }

    /// Returns whether the filter selects the document at this time.
    pub fn matches(&self, document: &Value, now: Timestamp) -> bool {
        self.query.matches(document, millis(now))
    }

    /// Returns whether the filter depends on the time.
    pub fn is_timed(&self) -> bool {
        self.timed
    }

    /// Returns the earliest time after `now` at which [`matches`](Self::matches) may return another
    /// result for the same document. Returns `None` if the result never changes. The result may
    /// also stay the same at that time: then call this again for the next one.
    pub fn changes_at(&self, document: &Value, now: Timestamp) -> Option<Timestamp> {
        if !self.timed {
            return None;
        }
        let at = self.query.changes_at(document, millis(now))?;
        Timestamp::from_millisecond(at).ok()
    }

    /// Returns the query for MongoDB, with relative dates replaced by absolute ones.
    pub fn to_query(&self, now: Timestamp) -> Value {
        if self.timed { offset::fixed(&self.source, millis(now)) } else { self.source.clone() }
    }
}

impl FromStr for Filter {
    type Err = Error;

    /// Parses a filter from JSON text.
    fn from_str(text: &str) -> Result<Self, Error> {
        Self::of(text.parse()?)
    }
}

impl fmt::Display for Filter {
    /// Writes the filter as JSON text. The text is always the same for the same filter, so that a
    /// change is noticed.
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

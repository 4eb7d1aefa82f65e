//! Values of documents as filters see them, with the types and the order of MongoDB.

use std::cmp::Ordering;
use std::fmt;

use crate::decimal::{Decimal, Number};

/// The fields of an object, in their order.
pub type Fields = Vec<(String, Value)>;

/// A value of any type that a document in MongoDB may have.
///
/// It is parsed from JSON and written as JSON. [Extended JSON] represents the types that JSON
/// lacks: `{"$date": "2026-11-16T08:00:00Z"}`, `{"$oid": "…"}`, `{"$numberLong": "5"}`. An object
/// that only looks like that, such as `{"$date": "soon"}`, stays an object. JSON text keeps the
/// order of its fields; a [`serde_json::Value`] does not.
///
/// Values are ordered and equal as they are in MongoDB: first by type, then by value. Numbers
/// compare by their numeric value, without rounding: an integer may equal a floating-point number,
/// and `NaN` equals itself and is below all others. Strings compare by their bytes, objects by
/// their fields in order.
///
/// ```
/// use leftfold_filter::Value;
///
/// let document: Value = r#"{"n": 5, "at": {"$date": "1970-01-01T00:00:01Z"}}"#.parse()?;
/// assert_eq!(document.get("n"), Some(&Value::Double(5.0)));
/// assert_eq!(document.get("at"), Some(&Value::Date(1_000)));
/// assert_eq!(document.to_string(), r#"{"n":5,"at":{"$date":{"$numberLong":"1000"}}}"#);
/// # Ok::<(), leftfold_filter::Error>(())
/// ```
///
/// [extended JSON]: https://www.mongodb.com/docs/manual/reference/mongodb-extended-json/
#[derive(Clone)]
pub enum Value {
    /// A key below all other values.
    MinKey,
    /// A deprecated type. It counts as null if a filter asks for null.
    Undefined,
    /// Null.
    Null,
    /// An integer of 32 bits.
    Int32(i32),
    /// An integer of 64 bits.
    Int64(i64),
    /// A floating-point number.
    Double(f64),
    /// A decimal number.
    Decimal(Decimal),
    /// A string.
    String(String),
    /// A string, as a deprecated type.
    Symbol(String),
    /// An object.
    Object(Fields),
    /// An array.
    Array(Vec<Value>),
    /// Bytes.
    Binary {
        /// The subtype, as MongoDB numbers it.
        subtype: u8,
        /// The bytes.
        bytes: Vec<u8>,
    },
    /// An `ObjectId`.
    Id([u8; 12]),
    /// A boolean.
    Bool(bool),
    /// A time, in milliseconds since 1970.
    Date(i64),
    /// An internal timestamp of MongoDB's oplog.
    Timestamp {
        /// Seconds since 1970.
        time: u32,
        /// A number within that second.
        increment: u32,
    },
    /// A regular expression.
    Regex {
        /// The expression.
        pattern: String,
        /// Its options, sorted.
        options: String,
    },
    /// A reference, as a deprecated type.
    DbPointer {
        /// The collection.
        namespace: String,
        /// The document's id.
        id: [u8; 12],
    },
    /// JavaScript.
    Code(String),
    /// JavaScript with variables, as a deprecated type.
    CodeWithScope(String, Fields),
    /// A key above all other values.
    MaxKey,
}

impl Value {
    /// Returns a field of an object.
    pub fn get(&self, name: &str) -> Option<&Self> {
        match self {
            Self::Object(fields) => fields.iter().find(|(field, _)| field == name).map(|(_, value)| value),
            _ => None,
        }
    }

    /// Returns the number that MongoDB assigns to the type.
    pub(crate) fn type_code(&self) -> i32 {
        match self {
            Self::MinKey => -1,
            Self::Double(_) => 1,
            Self::String(_) => 2,
            Self::Object(_) => 3,
            Self::Array(_) => 4,
            Self::Binary { .. } => 5,
            Self::Undefined => 6,
            Self::Id(_) => 7,
            Self::Bool(_) => 8,
            Self::Date(_) => 9,
            Self::Null => 10,
            Self::Regex { .. } => 11,
            Self::DbPointer { .. } => 12,
            Self::Code(_) => 13,
            Self::Symbol(_) => 14,
            Self::CodeWithScope(..) => 15,
            Self::Int32(_) => 16,
            Self::Timestamp { .. } => 17,
            Self::Int64(_) => 18,
            Self::Decimal(_) => 19,
            Self::MaxKey => 127,
        }
    }

    /// Returns the place of the type in the sort order. Types that can be compared with each other
    /// have the same place.
    pub(crate) fn bracket(&self) -> u8 {
        match self {
            Self::MinKey => 0,
            Self::Undefined => 1,
            Self::Null => 2,
            Self::Int32(_) | Self::Int64(_) | Self::Double(_) | Self::Decimal(_) => 3,
            Self::String(_) | Self::Symbol(_) => 4,
            Self::Object(_) => 5,
            Self::Array(_) => 6,
            Self::Binary { .. } => 7,
            Self::Id(_) => 8,
            Self::Bool(_) => 9,
            Self::Date(_) => 10,
            Self::Timestamp { .. } => 11,
            Self::Regex { .. } => 12,
            Self::DbPointer { .. } => 13,
            Self::Code(_) => 14,
            Self::CodeWithScope(..) => 15,
            Self::MaxKey => 16,
        }
    }

    pub(crate) fn is_nan(&self) -> bool {
        match self {
            Self::Double(number) => number.is_nan(),
            Self::Decimal(number) => number.is_nan(),
            _ => false,
        }
    }

    /// Returns the integer part. Returns `None` if the value is not a number, or too large.
    pub(crate) fn truncated(&self) -> Option<i64> {
        self.number().and_then(Number::truncated)
    }

    /// Returns the value as an integer if it is a whole number of any type.
    pub fn whole(&self) -> Option<i64> {
        self.number().and_then(Number::whole)
    }

    fn number(&self) -> Option<Number> {
        match self {
            Self::Int32(number) => Some(Number::Int((*number).into())),
            Self::Int64(number) => Some(Number::Int(*number)),
            Self::Double(number) => Some(Number::Double(*number)),
            Self::Decimal(number) => Some(Number::Decimal(*number)),
            _ => None,
        }
    }
}

impl Ord for Value {
    fn cmp(&self, other: &Self) -> Ordering {
        let within = || match (self, other) {
            (Self::String(one) | Self::Symbol(one), Self::String(other) | Self::Symbol(other))
            | (Self::Code(one), Self::Code(other)) => one.cmp(other),
            (Self::Object(one), Self::Object(other)) => compare_fields(one, other),
            (Self::Array(one), Self::Array(other)) => one.cmp(other),
            (Self::Binary { subtype, bytes }, Self::Binary { subtype: other, bytes: others }) => {
                bytes.len().cmp(&others.len()).then(subtype.cmp(other)).then_with(|| bytes.cmp(others))
            }
            (Self::Id(one), Self::Id(other)) => one.cmp(other),
            (Self::Bool(one), Self::Bool(other)) => one.cmp(other),
            (Self::Date(one), Self::Date(other)) => one.cmp(other),
            (Self::Timestamp { time, increment }, Self::Timestamp { time: other, increment: others }) => {
                (time, increment).cmp(&(other, others))
            }
            (Self::Regex { pattern, options }, Self::Regex { pattern: other, options: others }) => {
                (pattern, options).cmp(&(other, others))
            }
            (Self::DbPointer { namespace, id }, Self::DbPointer { namespace: other, id: others }) => {
                namespace.len().cmp(&other.len()).then_with(|| (namespace, id).cmp(&(other, others)))
            }
            (Self::CodeWithScope(one, scope), Self::CodeWithScope(other, others)) => {
                one.cmp(other).then_with(|| compare_fields(scope, others))
            }
            _ => match (self.number(), other.number()) {
                (Some(one), Some(other)) => one.compare(other),
                _ => Ordering::Equal,
            },
        };
        self.bracket().cmp(&other.bracket()).then_with(within)
    }
}

/// Compares field by field, each by its type, then its name, then its value.
fn compare_fields(one: &Fields, other: &Fields) -> Ordering {
    for ((name, value), (other, others)) in one.iter().zip(other) {
        let field = value.bracket().cmp(&others.bracket()).then_with(|| name.cmp(other));
        let field = field.then_with(|| value.cmp(others));
        if field.is_ne() {
            return field;
        }
    }
    one.len().cmp(&other.len())
}

impl PartialOrd for Value {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Value {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Value {}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

//! Watched paths: the parts of a document that matter.

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::path::parts;
use crate::value::{Fields, Value};

/// A list of dotted paths, none of which contains another.
///
/// ```
/// use leftfold_filter::{Paths, Value};
///
/// let paths = Paths::new(["status", "items.count"])?;
/// let cart: Value =
///     r#"{"status": "open", "by": "ann", "items": [{"sku": "shoes", "count": 2}, {"sku": "hat"}]}"#.parse()?;
/// assert_eq!(paths.values(&cart).to_string(), r#"{"status":"open","items":[{"count":2},{}]}"#);
/// # Ok::<(), leftfold_filter::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<String>", into = "Vec<String>")]
pub struct Paths {
    paths: Vec<String>,
    root: Node,
}

/// The names below a path; empty where the path ends.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Node(Vec<(String, Node)>);

impl Paths {
    /// Checks the paths.
    pub fn new(paths: impl IntoIterator<Item = impl Into<String>>) -> Result<Self, Error> {
        let paths: Vec<String> = paths.into_iter().map(Into::into).collect();
        let mut root = Node::default();
        for path in &paths {
            let parts = parts(path).map_err(|expected| Error::new("watched path", path, expected))?;
            if !root.insert(&parts) {
                let expected =
                    "a path that is listed once, and is neither part of another nor has one as its part";
                return Err(Error::new("watched path", path, expected));
            }
        }
        if paths.is_empty() {
            return Err(Error::new("watched paths", "[]", "at least one path"));
        }
        Ok(Self { paths, root })
    }

    /// Returns the paths.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.paths.iter().map(String::as_str)
    }

    /// Returns the values at these paths, each in its place, in the document's order, as a MongoDB
    /// projection would. A missing value stays missing, and so differs from null.
    ///
    /// A path continues into all objects of an array, and into nested arrays. A number in a path is
    /// a field name, not an index.
    pub fn values(&self, document: &Value) -> Value {
        match document {
            Value::Object(fields) => self.root.fields(fields),
            _ => Value::Object(Vec::new()),
        }
    }
}

impl Paths {
    /// Returns the document without the values at these paths.
    pub fn others(&self, document: Value) -> Value {
        self.root.others(document)
    }
}

impl Node {
    /// Adds a path. Returns `false` if another path contains it, or if it contains another.
    fn insert(&mut self, parts: &[&str]) -> bool {
        let mut node = self;
        for (depth, part) in parts.iter().enumerate() {
            let known = node.0.iter().position(|(name, _)| name == part);
            let index = match known {
                Some(index) if depth + 1 == parts.len() || node.0[index].1.0.is_empty() => return false,
                Some(index) => index,
                None => {
                    node.0.push(((*part).to_owned(), Self::default()));
                    node.0.len() - 1
                }
            };
            node = &mut node.0[index].1;
        }
        true
    }

    fn fields(&self, fields: &Fields) -> Value {
        let wanted = fields.iter().filter_map(|(name, value)| {
            let (_, node) = self.0.iter().find(|(wanted, _)| wanted == name)?;
            Some((name.clone(), node.value(value)?))
        });
        Value::Object(wanted.collect())
    }

    fn others(&self, value: Value) -> Value {
        match value {
            Value::Object(fields) => {
                let kept = fields.into_iter().filter_map(|(name, value)| {
                    match self.0.iter().find(|(wanted, _)| *wanted == name) {
                        Some((_, node)) if node.0.is_empty() => None,
                        Some((_, node)) => Some((name, node.others(value))),
                        None => Some((name, value)),
                    }
                });
                Value::Object(kept.collect())
            }
            Value::Array(items) => Value::Array(items.into_iter().map(|item| self.others(item)).collect()),
            other => other,
        }
    }

    fn value(&self, value: &Value) -> Option<Value> {
        match value {
            _ if self.0.is_empty() => Some(value.clone()),
            Value::Object(fields) => Some(self.fields(fields)),
            Value::Array(items) => {
                Some(Value::Array(items.iter().filter_map(|item| self.value(item)).collect()))
            }
            _ => None,
        }
    }
}

impl TryFrom<Vec<String>> for Paths {
    type Error = Error;

    fn try_from(paths: Vec<String>) -> Result<Self, Error> {
        Self::new(paths)
    }
}

impl From<Paths> for Vec<String> {
    fn from(paths: Paths) -> Self {
        paths.paths
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(paths: &[&str], document: &str) -> String {
        Paths::new(paths.iter().copied()).unwrap().values(&document.parse().unwrap()).to_string()
    }

    #[test]
    fn what_is_there_stays_in_its_place() {
        let document = r#"{"c":{"x":{"z":0,"y":1}},"a":null,"b":[1,{"x":2,"y":3},[{"x":4},5],{}]}"#;
        assert_eq!(values(&["a"], document), r#"{"a":null}"#);
        assert_eq!(values(&["d", "d2.x"], document), "{}");
        assert_eq!(values(&["a.x"], document), "{}");
        assert_eq!(values(&["b.x", "c.x.y"], document), r#"{"c":{"x":{"y":1}},"b":[{"x":2},[{"x":4}],{}]}"#);
        assert_eq!(values(&["c.x"], document), r#"{"c":{"x":{"z":0,"y":1}}}"#);
        assert_eq!(values(&["c.q"], document), r#"{"c":{}}"#);
        assert_eq!(values(&["b.0"], document), r#"{"b":[{},[{}],{}]}"#);
        assert_eq!(values(&["a"], "[1]"), "{}");
    }

    #[test]
    fn what_is_elsewhere_stays_in_its_place() {
        let document = r#"{"c":{"x":{"z":0,"y":1}},"a":null,"b":[1,{"x":2,"y":3},[{"x":4},5],{}]}"#;
        let others = |paths: &[&str]| {
            Paths::new(paths.iter().copied()).unwrap().others(document.parse().unwrap()).to_string()
        };
        assert_eq!(others(&["d", "a.x", "c.x.q"]), document);
        assert_eq!(others(&["a", "b", "c.x.z"]), r#"{"c":{"x":{"y":1}}}"#);
        assert_eq!(others(&["b.x", "c"]), r#"{"a":null,"b":[1,{"y":3},[{},5],{}]}"#);
    }

    #[test]
    fn paths_are_checked() {
        for wrong in [
            &[][..],
            &[""],
            &["a."],
            &["a..b"],
            &["$a"],
            &["a.$b"],
            &["a", "a"],
            &["a", "a.b"],
            &["a.b.c", "a.b"],
        ] {
            assert!(Paths::new(wrong.iter().copied()).is_err(), "{wrong:?}");
        }
        assert!(Paths::new(["a.b", "a.bc", "ab"]).is_ok());
        let paths: Paths = serde_json::from_str(r#"["b","a.c"]"#).unwrap();
        assert_eq!(serde_json::to_string(&paths).unwrap(), r#"["b","a.c"]"#);
        assert_eq!(paths.iter().collect::<Vec<_>>(), ["b", "a.c"]);
        assert!(serde_json::from_str::<Paths>(r#"["a","a.b"]"#).is_err());
    }
}

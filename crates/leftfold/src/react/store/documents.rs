//! The documents of reactions, and where they are stored.

use std::borrow::Cow;
use std::fmt;

use leftfold_filter::Value;
use serde::{Deserialize, Serialize};

use crate::documents::Collection;
use crate::error::{Invalid, Result};
use crate::event::DocumentId;
use crate::json::Json;

/// The place where documents are stored.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DocumentSource {
    /// The documents of a projection.
    Projection(Collection),
    /// The documents of a collection or table that any program writes to.
    #[serde(rename = "plain")]
    External(ExternalCollection),
}

impl fmt::Display for DocumentSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Projection(collection) => collection.fmt(f),
            // This text is part of stored names.
            Self::External(collection) => write!(f, "plain {}", collection.0),
        }
    }
}

/// The name of a collection or table that Leftfold does not own.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ExternalCollection(String);

impl ExternalCollection {
    /// Checks the name: letters, digits, `_`, `-` and `.`, without the reserved prefix `leftfold`.
    pub fn new(name: impl Into<String>) -> Result<Self, Invalid> {
        let name = name.into();
        let fits = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.');
        if name.is_empty() || name.len() > 120 || !name.chars().all(fits) || name.starts_with("leftfold") {
            let expected = "1 to 120 letters, digits, _, - and ., not beginning with leftfold";
            return Err(Invalid::new("collection", &name, expected));
        }
        Ok(Self(name))
    }

    /// Returns the name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for ExternalCollection {
    type Error = Invalid;

    fn try_from(name: String) -> Result<Self, Invalid> {
        Self::new(name)
    }
}

impl From<ExternalCollection> for String {
    fn from(collection: ExternalCollection) -> Self {
        collection.0
    }
}

/// A document as a store read it.
#[derive(Clone, Debug, PartialEq)]
pub struct FoundDocument {
    /// Its id.
    pub id: DocumentId,
    /// Its body, or the reason why it can't be read.
    pub body: Result<Body, String>,
}

impl FoundDocument {
    /// Creates a document that can be read.
    pub fn new(id: DocumentId, body: impl Into<Body>) -> Self {
        Self { id, body: Ok(body.into()) }
    }
}

/// The body of a document: JSON for handlers, and values for filters.
#[derive(Clone, Debug, PartialEq)]
pub struct Body {
    json: Json,
    /// The same body in the store's own types, if the store has more types than JSON.
    value: Option<Value>,
}

impl Body {
    /// Creates the body of a document in a store that has more types than JSON.
    pub fn typed(json: Json, value: Value) -> Self {
        Self { json, value: Some(value) }
    }

    /// Returns the body as JSON.
    pub fn json(&self) -> &Json {
        &self.json
    }

    /// Returns the body as filters and watched paths see it.
    pub fn value(&self) -> Result<Cow<'_, Value>, Invalid> {
        match &self.value {
            Some(value) => Ok(Cow::Borrowed(value)),
            None => Ok(Cow::Owned(self.json.as_str().parse()?)),
        }
    }
}

impl From<Json> for Body {
    fn from(json: Json) -> Self {
        Self { json, value: None }
    }
}

/// The result of reading documents by id.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FoundDocuments {
    /// The documents that exist.
    pub documents: Vec<FoundDocument>,
    /// The ids that were not read because of the byte limit. Request these again.
    pub left: Vec<DocumentId>,
    bytes: usize,
}

impl FoundDocuments {
    /// Adds a document.
    pub fn push(&mut self, document: FoundDocument) {
        self.bytes += document.body.as_ref().map_or(0, |body| body.json.as_str().len());
        self.documents.push(document);
    }

    /// Returns whether there is at least one document and the documents together take at least this
    /// many bytes.
    pub fn is_full(&self, bytes: usize) -> bool {
        !self.documents.is_empty() && self.bytes >= bytes
    }
}

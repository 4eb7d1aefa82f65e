//! A broker's message, before it is mapped.

use std::collections::BTreeMap;

/// A message: its content and its attributes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Message {
    /// The bytes as received.
    pub content: Vec<u8>,
    /// Everything else that the broker provides: headers, `key`, `subject`, `content-type`. Names
    /// are in lower case.
    pub attributes: BTreeMap<String, String>,
}

impl Message {
    /// Creates a message without attributes.
    pub fn new(content: impl Into<Vec<u8>>) -> Self {
        Self { content: content.into(), attributes: BTreeMap::new() }
    }

    /// Adds an attribute. Its name is converted to lower case.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<String>) -> Self {
        self.attributes.insert(name.to_lowercase(), value.into());
        self
    }

    /// Returns an attribute. Its name must be in lower case.
    pub fn attribute(&self, name: &str) -> Option<&str> {
        self.attributes.get(name).map(String::as_str)
    }

    /// Returns the content type, without parameters and in lower case: `application/json`.
    pub fn content_type(&self) -> Option<String> {
        let kind = self.attribute("content-type").or_else(|| self.attribute("content_type"))?;
        let essence = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        (!essence.is_empty()).then_some(essence)
    }
}

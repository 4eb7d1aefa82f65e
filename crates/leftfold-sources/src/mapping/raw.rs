//! Lossless access to JSON text: objects one level at a time, pointers, and scalar values.

use std::collections::BTreeMap;
use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use leftfold::{Invalid, Json, Revision};
use serde::Deserialize;
use serde::de::{Error as _, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::message::Message;

/// A JSON object whose values are still text. A duplicate name is an error, because it is
/// ambiguous.
pub(super) struct Object<'a>(pub(super) BTreeMap<String, &'a RawValue>);

impl<'de> Deserialize<'de> for Object<'de> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Names;
        impl<'de> Visitor<'de> for Names {
            type Value = Object<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Object<'de>, A::Error> {
                let mut values = BTreeMap::new();
                while let Some((name, value)) = map.next_entry::<String, &RawValue>()? {
                    if values.contains_key(&name) {
                        return Err(A::Error::custom(format!("the name {name:?} occurs twice")));
                    }
                    values.insert(name, value);
                }
                Ok(Object(values))
            }
        }
        deserializer.deserialize_map(Names)
    }
}

/// Parses content as JSON.
pub(super) fn json(content: &[u8]) -> Result<&RawValue, Invalid> {
    let text = text(content)?;
    serde_json::from_str(text).map_err(|error| Invalid::new("content", text, format!("JSON: {error}")))
}

pub(super) fn text(content: &[u8]) -> Result<&str, Invalid> {
    std::str::from_utf8(content).map_err(|error| {
        Invalid::new("content", &String::from_utf8_lossy(content), format!("UTF-8 text: {error}"))
    })
}

/// Returns a string, number or boolean as text, or `None` for null.
pub(super) fn scalar(what: &'static str, raw: &RawValue) -> Result<Option<String>, Invalid> {
    let token = raw.get().trim();
    match token.as_bytes().first() {
        Some(b'"') => serde_json::from_str(token)
            .map(Some)
            .map_err(|error| Invalid::new(what, token, format!("a string of valid characters: {error}"))),
        Some(b'{' | b'[') | None => Err(Invalid::new(what, token, "a string, a number or a boolean")),
        Some(b'n') => Ok(None),
        Some(_) => Ok(Some(token.to_owned())),
    }
}

/// Parses a feed's revision, and adds the offset.
pub(super) fn revision(what: &'static str, text: &str, offset: i64) -> Result<Revision, Invalid> {
    let number = text.trim().parse::<i64>().ok().and_then(|number| number.checked_add(offset));
    let revision = number.and_then(|number| u64::try_from(number).ok());
    revision.map(Revision).ok_or_else(|| {
        let expected = match offset {
            0 => format!("a whole number from 0 to {}", i64::MAX),
            _ => format!("a whole number that is from 0 to {} after {offset} is added", i64::MAX),
        };
        Invalid::new(what, text, expected)
    })
}

/// Parses an RFC 3339 time, to the microsecond.
pub(super) fn time(text: &str) -> Result<Timestamp, Invalid> {
    let invalid = |why: &dyn fmt::Display| {
        Invalid::new("time", text, format!("a time such as 2026-11-16T08:00:00Z (RFC 3339): {why}"))
    };
    let time: Timestamp = text.trim().parse().map_err(|error| invalid(&error))?;
    to_the_microsecond(time).map_err(|error| invalid(&error))
}

pub(super) fn to_the_microsecond(time: Timestamp) -> Result<Timestamp, jiff::Error> {
    Timestamp::from_microsecond(time.as_microsecond())
}

/// The content of a message as the data of an event.
pub(super) struct Data {
    pub(super) json: Json,
    /// `true` if the data is bytes, as a string in base64.
    pub(super) is_base64: bool,
}

impl Data {
    /// Returns the data of an event without any.
    pub(super) fn none() -> Self {
        Self { json: Json::stored("{}"), is_base64: false }
    }

    pub(super) fn raw(raw: &RawValue) -> Self {
        Self { json: Json::stored(raw.get()), is_base64: false }
    }

    pub(super) fn base64(text: &str) -> Result<Self, Invalid> {
        match STANDARD.decode(text) {
            Ok(_) => Ok(Self { json: Json::of(&text)?, is_base64: true }),
            Err(error) => Err(Invalid::new("data_base64", text, format!("bytes in base64: {error}"))),
        }
    }

    /// Returns the content of a message: unchanged if its type is JSON or missing, else as a
    /// string.
    pub(super) fn of(message: &Message) -> Result<Self, Invalid> {
        let content = &message.content[..];
        let kind = message.content_type();
        let is_json = kind.as_deref().is_none_or(is_json);
        if content.is_empty() {
            return Ok(Self::none());
        }
        if is_json {
            return json(content).map(Self::raw);
        }
        let is_text = kind.is_some_and(|kind| kind.starts_with("text/") || kind.ends_with("xml"));
        match std::str::from_utf8(content) {
            Ok(text) if is_text => Ok(Self { json: Json::of(&text)?, is_base64: false }),
            _ => Ok(Self { json: Json::of(&STANDARD.encode(content))?, is_base64: true }),
        }
    }
}

/// Returns whether a content type without parameters is JSON.
pub(super) fn is_json(kind: &str) -> bool {
    matches!(kind, "application/json" | "text/json") || kind.ends_with("+json")
}

/// A place in a JSON text as in RFC 6901: `/order/lines/0/product`. The empty pointer is the whole
/// text.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Pointer(Vec<String>);

impl Pointer {
    /// Parses a pointer.
    pub fn new(text: &str) -> Result<Self, Invalid> {
        let invalid = |expected| Err(Invalid::new("JSON pointer", text, expected));
        if text.is_empty() {
            return Ok(Self(Vec::new()));
        }
        let Some(rest) = text.strip_prefix('/') else {
            return invalid(
                "a pointer that begins with /, such as /order/id, or an empty one for the whole content",
            );
        };
        let mut names = Vec::new();
        for name in rest.split('/') {
            if name.replace("~0", "").replace("~1", "").contains('~') {
                return invalid("~0 for ~ and ~1 for /; no other use of ~");
            }
            names.push(name.replace("~1", "/").replace("~0", "~"));
        }
        Ok(Self(names))
    }

    /// Returns the value at the pointer, if there is one.
    pub(super) fn find<'a>(&self, root: &'a RawValue) -> Result<Option<&'a RawValue>, Invalid> {
        let mut at = root;
        for name in &self.0 {
            let text = at.get().trim_start();
            let inside = match text.as_bytes().first() {
                Some(b'{') => object(text)?.0.remove(name),
                Some(b'[') => {
                    let items: Vec<&RawValue> =
                        serde_json::from_str(text).map_err(|error| unreadable(text, &error))?;
                    let is_number = name == "0" || !name.starts_with(['0', '+']);
                    let number = name.parse::<usize>().ok().filter(|_| is_number);
                    number.and_then(|number| items.get(number).copied())
                }
                _ => None,
            };
            match inside {
                Some(inside) => at = inside,
                None => return Ok(None),
            }
        }
        Ok(Some(at))
    }
}

/// Parses the names and values of an object.
pub(super) fn object(text: &str) -> Result<Object<'_>, Invalid> {
    serde_json::from_str(text).map_err(|error| unreadable(text, &error))
}

fn unreadable(text: &str, error: &serde_json::Error) -> Invalid {
    Invalid::new("content", text, format!("a JSON object: {error}"))
}

impl TryFrom<String> for Pointer {
    type Error = Invalid;

    fn try_from(text: String) -> Result<Self, Invalid> {
        Self::new(&text)
    }
}

impl fmt::Display for Pointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|name| write!(f, "/{}", name.replace('~', "~0").replace('/', "~1")))
    }
}

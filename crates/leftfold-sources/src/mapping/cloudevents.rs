//! CloudEvents 1.0, structured (one JSON text) or binary (attributes beside the data).

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use leftfold::log::Entry;
use leftfold::{Delivery, EventId, EventKind, Invalid, Json, StreamId};
use serde::Deserialize;

use super::raw::{Data, is_json, json, object, revision, scalar, text, time, to_the_microsecond};
use crate::message::Message;

/// The content type of a structured event.
pub(crate) const STRUCTURED: &str = "application/cloudevents+json";
/// The content type of a batch of structured events.
pub(crate) const BATCH: &str = "application/cloudevents-batch+json";

/// The prefixes of attributes in binary mode: HTTP and NATS, Kafka, AMQP.
const PREFIXES: [&str; 4] = ["ce-", "ce_", "cloudevents:", "cloudevents_"];

/// The subject of an error.
const WHAT: &str = "CloudEvents attribute";

/// A mapping from CloudEvents to events.
///
/// | CloudEvents | Event |
/// | --- | --- |
/// | `id` | event id |
/// | `subject` | stream |
/// | `type` | event type |
/// | `time` | time; when it was received, if left out |
/// | extension `sequence`: a number, or digits | revision |
/// | extension `previous`, the same | the revision before it, as this feed has it |
/// | `data` | data; `{}` if there is none |
/// | `source`, `dataschema`, other extensions | metadata, each as text |
///
/// Data that is not JSON becomes a JSON string: text (`text/…`, XML) unchanged, bytes
/// (`data_base64`, any other type) in base64. Then `datacontenttype` is in the metadata, and for
/// bytes also `"dataencoding": "base64"`. So an event is the same in both modes. For the same
/// reason numbers and booleans among the extensions become text.
///
/// The mode of a message is determined in this order:
///
/// 1. Structured, if its content type says so.
/// 2. Binary, if it has attributes that begin with `ce-`, `ce_` (Kafka), `cloudEvents:` or
///    `cloudEvents_` (AMQP).
/// 3. Structured, if it is a JSON object with a `specversion`, for brokers without content types.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "kebab-case", deny_unknown_fields)]
pub struct CloudEvents {
    /// The attribute that names the stream. The default is `subject`.
    pub stream: String,
    /// The attribute with the revision. The default is `sequence`.
    pub revision: String,
    /// The attribute with the previous revision. The default is `previous`.
    pub previous: String,
    /// The number to add to revisions: 1 for a feed whose first one is 0.
    pub offset: i64,
    /// `true` to build the event id from the source, a space and the id.
    ///
    /// CloudEvents only promises that an id is unique within its source. By default the id is used
    /// unchanged, because most producers use UUIDs. If two events then share an id, the second is a
    /// conflict.
    pub source_in_id: bool,
}

impl Default for CloudEvents {
    fn default() -> Self {
        Self {
            stream: "subject".into(),
            revision: "sequence".into(),
            previous: "previous".into(),
            offset: 0,
            source_in_id: false,
        }
    }
}

/// An event's attributes by name, and its data.
struct Parsed {
    attributes: BTreeMap<String, String>,
    data: Data,
}

impl CloudEvents {
    pub(super) fn map(&self, message: &Message, received: Timestamp) -> Result<Delivery, Invalid> {
        let kind = message.content_type();
        let parsed = match kind.as_deref() {
            Some(STRUCTURED) => structured(&message.content)?,
            Some(BATCH) => {
                let expected = format!("one event in each message, as {STRUCTURED}");
                return Err(Invalid::new("content-type", BATCH, expected));
            }
            _ => match binary(message)? {
                Some(parsed) => parsed,
                None if kind.as_deref().is_none_or(is_json) => structured(&message.content)?,
                None => {
                    let expected = format!(
                        "{STRUCTURED}, or attributes such as ce-specversion and ce-id; the message is not a \
                         CloudEvent"
                    );
                    return Err(Invalid::new("content-type", &kind.unwrap_or_default(), expected));
                }
            },
        };
        self.delivery(parsed, received)
    }

    /// Returns whether an attribute belongs to an event in binary mode.
    pub(super) fn reads(attribute: &str) -> bool {
        PREFIXES.iter().any(|prefix| attribute.starts_with(prefix))
    }

    /// Maps the content of a message that is known to be structured.
    #[cfg(feature = "http")]
    pub(super) fn map_structured(&self, content: &[u8], received: Timestamp) -> Result<Delivery, Invalid> {
        self.delivery(structured(content)?, received)
    }

    fn delivery(&self, parsed: Parsed, received: Timestamp) -> Result<Delivery, Invalid> {
        let Parsed { mut attributes, data } = parsed;
        let mut take = |name: &str, what_for: &str| {
            let missing = || Invalid::new(WHAT, name, format!("a value: {what_for}"));
            attributes.remove(name).ok_or_else(missing)
        };
        let version = take("specversion", "the version of CloudEvents, 1.0")?;
        if version != "1.0" {
            return Err(Invalid::new("CloudEvents specversion", &version, "1.0"));
        }
        let id = take("id", "the event's id")?;
        let kind = take("type", "the event's type")?;
        let source = take("source", "the sender of the event")?;
        let stream = match &self.stream[..] {
            "source" => source.clone(),
            name => take(name, "the name of the stream")?,
        };
        let mut number = |name: &str, what| {
            attributes.remove(name).map(|text| revision(what, &text, self.offset)).transpose()
        };
        let revision = number(&self.revision, "revision")?;
        let previous = number(&self.previous, "previous revision")?;
        let at = match attributes.remove("time") {
            Some(text) => time(&text)?,
            None => to_the_microsecond(received).unwrap_or(received),
        };
        let id = if self.source_in_id { format!("{source} {id}") } else { id };
        attributes.insert("source".into(), source);
        if attributes.get("datacontenttype").is_some_and(|kind| essence(kind) == "application/json") {
            attributes.remove("datacontenttype");
        }
        if data.is_base64 {
            attributes.insert("dataencoding".into(), "base64".into());
        }
        let entry = Entry {
            id: EventId::new(id)?,
            kind: EventKind::new(kind)?,
            time: at,
            data: data.json,
            // A map of strings breaks none of the rules.
            metadata: Some(Json::of(&attributes)?.assume_strict()),
        };
        Ok(Delivery { stream: StreamId::new(stream)?, revision, previous, entry: Arc::new(entry) })
    }
}

fn essence(kind: &str) -> String {
    kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

/// Parses a structured event: one JSON text.
fn structured(content: &[u8]) -> Result<Parsed, Invalid> {
    let mut values = match object(text(content)?) {
        Ok(object) => object.0,
        // For content that is not JSON at all, return the JSON error.
        Err(invalid) => return Err(json(content).err().unwrap_or(invalid)),
    };
    let data = match (values.remove("data"), values.remove("data_base64")) {
        (Some(_), Some(bytes)) => {
            return Err(Invalid::new("data_base64", bytes.get(), "either data or data_base64, not both"));
        }
        (Some(data), None) => Data::raw(data),
        (None, Some(bytes)) => match scalar("data_base64", bytes)? {
            Some(text) => Data::base64(&text)?,
            None => Data::none(),
        },
        (None, None) => Data::none(),
    };
    let mut attributes = BTreeMap::new();
    for (name, value) in values {
        let Ok(value) = scalar(WHAT, value) else {
            let expected = format!("a string, a number or a boolean for {name:?}");
            return Err(Invalid::new(WHAT, value.get(), expected));
        };
        attributes.extend(value.map(|value| (name, value)));
    }
    Ok(Parsed { attributes, data })
}

/// Parses the attributes of a binary event. Returns `None` if there are none.
fn binary(message: &Message) -> Result<Option<Parsed>, Invalid> {
    let mut attributes = BTreeMap::new();
    for (name, value) in &message.attributes {
        let Some((prefix, name)) =
            PREFIXES.iter().find_map(|prefix| Some((*prefix, name.strip_prefix(prefix)?)))
        else {
            continue;
        };
        let value = if prefix == "ce-" { unescaped(value)? } else { value.clone() };
        if let Some(other) = attributes.insert(name.to_owned(), value.clone())
            && other != value
        {
            let expected = format!("{other:?}, the value of another attribute for {name:?}");
            return Err(Invalid::new(WHAT, &value, expected));
        }
    }
    if attributes.is_empty() {
        return Ok(None);
    }
    let data = Data::of(message)?;
    if let Some(kind) = message.attribute("content-type").or_else(|| message.attribute("content_type")) {
        attributes.insert("datacontenttype".into(), kind.to_owned());
    }
    Ok(Some(Parsed { attributes, data }))
}

/// Decodes percent-encoding, which headers use for characters they can't contain.
fn unescaped(value: &str) -> Result<String, Invalid> {
    if !value.contains('%') {
        return Ok(value.to_owned());
    }
    let digit = |byte: Option<&u8>| byte.and_then(|byte| char::from(*byte).to_digit(16));
    let (bytes, mut out) = (value.as_bytes(), Vec::with_capacity(value.len()));
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        let escaped =
            (*byte == b'%').then(|| Some(digit(bytes.get(at + 1))? * 16 + digit(bytes.get(at + 2))?));
        if let Some(byte) = escaped.flatten().and_then(|byte| u8::try_from(byte).ok()) {
            out.push(byte);
            at += 3;
        } else {
            out.push(*byte);
            at += 1;
        }
    }
    String::from_utf8(out)
        .map_err(|error| Invalid::new(WHAT, value, format!("UTF-8 text, percent-encoded: {error}")))
}

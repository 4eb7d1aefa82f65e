//! From JSON text to the elements of a BSON document.
//!
//! An extended JSON object, `{"$date": …}` or `{"$oid": …}`, becomes the BSON type it names. The
//! driver's own types, for example `bson::DateTime`, are serialized this way.

use std::borrow::Cow;
use std::fmt::Write as _;

use bson::spec::ElementType;
use bson::{Bson, RawDocumentBuf};

/// The deepest nesting that is encoded: servers refuse documents that are only slightly deeper.
const MAX_DEPTH: usize = 90;

/// Walks along a valid JSON text and writes BSON. Its methods return `None` if the text is invalid.
pub(super) struct Writer<'a> {
    text: &'a str,
    pub(super) at: usize,
    pub(super) out: Vec<u8>,
    /// `true` as long as the elements alone reproduce the text.
    pub(super) exact: bool,
}

impl<'a> Writer<'a> {
    pub(super) fn new(text: &'a str, out: Vec<u8>) -> Self {
        Self { text, at: 0, out, exact: true }
    }

    pub(super) fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    /// Consumes the expected byte.
    fn expect(&mut self, byte: u8) -> Option<()> {
        (self.peek()? == byte).then(|| self.at += 1)
    }

    /// Skips whitespace, which BSON does not keep.
    pub(super) fn space(&mut self) {
        while let Some(b' ' | b'\n' | b'\r' | b'\t') = self.peek() {
            self.at += 1;
            self.exact = false;
        }
    }

    /// Writes the elements of the object that is the whole body.
    pub(super) fn top(&mut self, ours: &str) -> Option<()> {
        self.object(1, |key| key != "_id" && key != ours && !key.starts_with('$'))
    }

    /// Writes the elements of an object. Omits fields that BSON can't hold.
    fn object(&mut self, depth: usize, fits: impl Fn(&str) -> bool) -> Option<()> {
        self.expect(b'{')?;
        self.space();
        if self.peek()? == b'}' {
            return self.expect(b'}');
        }
        loop {
            let key = self.string()?;
            self.space();
            self.expect(b':')?;
            self.space();
            let before = self.out.len();
            self.element(key.as_bytes(), depth)?;
            if !fits(&key) || key.contains('\0') {
                self.out.truncate(before);
                self.exact = false;
            }
            self.space();
            match self.peek()? {
                b',' => self.at += 1,
                _ => return self.expect(b'}'),
            }
            self.space();
        }
    }

    fn array(&mut self, depth: usize) -> Option<()> {
        self.expect(b'[')?;
        self.space();
        if self.peek()? == b']' {
            return self.expect(b']');
        }
        let mut key = String::new();
        for index in 0_usize.. {
            key.clear();
            write!(key, "{index}").ok()?;
            self.element(key.as_bytes(), depth)?;
            self.space();
            match self.peek()? {
                b',' => self.at += 1,
                _ => return self.expect(b']'),
            }
            self.space();
        }
        None
    }

    /// Writes one element: its type, its name and its value.
    pub(super) fn element(&mut self, key: &[u8], depth: usize) -> Option<()> {
        match self.peek()? {
            b'{' if self.is_extended() => {
                if let Some(()) = self.extended(key) {
                    return Some(());
                }
                self.nested(ElementType::EmbeddedDocument, key, depth)
            }
            b'{' => self.nested(ElementType::EmbeddedDocument, key, depth),
            b'[' => self.nested(ElementType::Array, key, depth),
            b'"' => {
                let text = self.string()?;
                self.name(ElementType::String, key);
                let length = i32::try_from(text.len() + 1).ok()?;
                self.out.extend_from_slice(&length.to_le_bytes());
                self.out.extend_from_slice(text.as_bytes());
                self.out.push(0);
                Some(())
            }
            b't' => self.word("true", ElementType::Boolean, key, &[1]),
            b'f' => self.word("false", ElementType::Boolean, key, &[0]),
            b'n' => self.word("null", ElementType::Null, key, &[]),
            _ => self.number(key),
        }
    }

    fn name(&mut self, of: ElementType, key: &[u8]) {
        self.out.push(of as u8);
        self.out.extend_from_slice(key);
        self.out.push(0);
    }

    fn word(&mut self, word: &str, of: ElementType, key: &[u8], value: &[u8]) -> Option<()> {
        self.text[self.at..].starts_with(word).then(|| self.at += word.len())?;
        self.name(of, key);
        self.out.extend_from_slice(value);
        Some(())
    }

    /// Writes an object or an array, preceded by its length.
    fn nested(&mut self, of: ElementType, key: &[u8], depth: usize) -> Option<()> {
        let begin = self.out.len();
        self.name(of, key);
        let start = self.out.len();
        self.out.extend_from_slice(&[0; 4]);
        if of == ElementType::Array { self.array(depth + 1) } else { self.object(depth + 1, |_| true) }?;
        self.out.push(0);
        let length = i32::try_from(self.out.len() - start).ok()?;
        self.out[start..start + 4].copy_from_slice(&length.to_le_bytes());
        if depth > MAX_DEPTH {
            self.out.truncate(begin);
            self.exact = false;
        }
        Some(())
    }

    /// Returns whether an object starts here whose first field name begins with `$`, as in extended
    /// JSON and MongoDB operators.
    pub(super) fn is_extended(&self) -> bool {
        self.text[self.at..].starts_with("{\"$")
    }

    /// Writes an object that stands for a BSON value. Returns `None` and writes nothing if it does
    /// not.
    fn extended(&mut self, key: &[u8]) -> Option<()> {
        let mut values = serde_json::Deserializer::from_str(&self.text[self.at..]).into_iter();
        let value: serde_json::Value = values.next()?.ok()?;
        let length = values.byte_offset();
        let value = Bson::try_from(value).ok().filter(|value| !matches!(value, Bson::Document(_)))?;
        let exact =
            format!("{}", value.clone().into_canonical_extjson()) == self.text[self.at..self.at + length];
        let mut document = RawDocumentBuf::new();
        document.append(bson::raw::cstr!("v"), bson::RawBson::try_from(value).ok()?);
        let bytes = document.as_bytes();
        // The bytes between the length and the final zero are: the type, "v", zero, the value.
        let (of, value) = (*bytes.get(4)?, bytes.get(7..bytes.len() - 1)?);
        self.out.push(of);
        self.out.extend_from_slice(key);
        self.out.push(0);
        self.out.extend_from_slice(value);
        self.at += length;
        self.exact &= exact;
        Some(())
    }

    /// Reads a string, without its quotes and escapes.
    fn string(&mut self) -> Option<Cow<'a, str>> {
        self.expect(b'"')?;
        let (text, begin) = (self.text, self.at);
        let mut escaped = false;
        loop {
            match self.peek()? {
                b'"' => break,
                b'\\' => {
                    escaped = true;
                    self.at += 2;
                }
                _ => self.at += 1,
            }
        }
        self.at += 1;
        if !escaped {
            return Some(text[begin..self.at - 1].into());
        }
        let quoted = &text[begin - 1..self.at];
        // An unpaired surrogate is valid in JSON but is not valid text.
        let plain = serde_json::from_str::<String>(quoted).unwrap_or_default();
        self.exact &= serde_json::to_string(&plain).is_ok_and(|again| again == quoted);
        Some(plain.into())
    }

    fn number(&mut self, key: &[u8]) -> Option<()> {
        let rest = &self.text[self.at..];
        let end = rest.find(|c: char| !matches!(c, '0'..='9' | '-' | '+' | '.' | 'e' | 'E'));
        let number = &rest[..end.unwrap_or(rest.len())];
        self.at += number.len();
        match number.parse::<i64>() {
            Ok(integer) if number != "-0" => {
                if let Ok(small) = i32::try_from(integer) {
                    self.name(ElementType::Int32, key);
                    self.out.extend_from_slice(&small.to_le_bytes());
                } else {
                    self.name(ElementType::Int64, key);
                    self.out.extend_from_slice(&integer.to_le_bytes());
                }
            }
            _ => {
                let float: f64 = number.parse().ok()?;
                self.exact &= serde_json::to_string(&float).is_ok_and(|again| again == number);
                self.name(ElementType::Double, key);
                self.out.extend_from_slice(&float.to_le_bytes());
            }
        }
        Some(())
    }
}

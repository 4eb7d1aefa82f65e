//! One set of rules for JSON that enters the system, so that every later reader can parse it.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;

use serde::de::{Deserialize, DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};

/// The reason why a text breaks the rules of [`Json::strict`](super::Json::strict), and the place
/// in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JsonFault {
    path: String,
    reason: String,
}

impl JsonFault {
    /// The longest path to show, in characters.
    const MAX_QUOTE: usize = 200;

    /// Returns the place of the fault, such as `items[3].name`; empty for the whole text.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Returns the rule that the text breaks.
    pub fn reason(&self) -> &str {
        &self.reason
    }
}

impl fmt::Display for JsonFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.path.is_empty() {
            f.write_str(&self.reason)
        } else {
            write!(f, "at `{}`: {}", self.path, self.reason)
        }
    }
}

impl std::error::Error for JsonFault {}

/// Checks a text in one pass. Only a text that fails is parsed again, to find the place.
pub(super) fn check(json: &[u8], depth: usize) -> Result<(), JsonFault> {
    let mut deserializer = serde_json::Deserializer::from_slice(json);
    let checked = Strict { left: depth }.deserialize(&mut deserializer);
    match checked.and_then(|()| deserializer.end()) {
        Ok(()) => Ok(()),
        Err(error) => {
            let mut reason = error.to_string();
            if reason.contains("surrogate") || reason.contains("unexpected end of hex escape") {
                reason.push_str("; half of a surrogate pair is not a character");
            }
            Err(JsonFault { path: place(json, depth), reason })
        }
    }
}

/// Returns the path to the place where a text is rejected.
fn place(json: &[u8], depth: usize) -> String {
    let mut deserializer = serde_json::Deserializer::from_slice(json);
    let mut track = serde_path_to_error::Track::new();
    let tracked = serde_path_to_error::Deserializer::new(&mut deserializer, &mut track);
    let read = Strict { left: depth }.deserialize(tracked);
    if read.is_ok() {
        return String::new();
    }
    let path = track.path().to_string();
    match path.char_indices().nth(JsonFault::MAX_QUOTE) {
        _ if path == "." => String::new(),
        Some((end, _)) => format!("{}…", &path[..end]),
        None => path,
    }
}

/// Parses a JSON value without keeping it.
#[derive(Clone, Copy)]
struct Strict {
    /// The number of nesting levels still allowed.
    left: usize,
}

impl Strict {
    fn deeper<E: Error>(self) -> Result<Self, E> {
        match self.left.checked_sub(1) {
            Some(left) => Ok(Self { left }),
            None => Err(E::custom("recursion limit exceeded: the text is nested too deep")),
        }
    }
}

impl<'de> DeserializeSeed<'de> for Strict {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        let inside = self.deeper()?;
        while items.next_element_seed(inside)?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<(), A::Error> {
        let inside = self.deeper()?;
        let mut keys = Keys::default();
        while let Some(Key(key)) = fields.next_key()? {
            if keys.contains(&key) {
                return Err(Error::custom(format_args!("duplicate key {:?}", shortened(&key))));
            }
            keys.insert(key);
            fields.next_value_seed(inside)?;
        }
        Ok(())
    }
}

fn shortened(key: &str) -> Cow<'_, str> {
    match key.char_indices().nth(60) {
        Some((end, _)) => Cow::Owned(format!("{}…", &key[..end])),
        None => Cow::Borrowed(key),
    }
}

/// The keys of an object. Most objects have few keys, and comparing those is faster than hashing.
#[derive(Default)]
struct Keys<'k> {
    first: Vec<Cow<'k, str>>,
    others: HashSet<Cow<'k, str>>,
}

impl<'k> Keys<'k> {
    const FIRST: usize = 16;

    fn contains(&self, key: &str) -> bool {
        self.first.iter().any(|one| one == key) || (!self.others.is_empty() && self.others.contains(key))
    }

    fn insert(&mut self, key: Cow<'k, str>) {
        if self.first.len() < Self::FIRST {
            self.first.push(key);
        } else {
            self.others.insert(key);
        }
    }
}

/// A key, borrowed from the text unless it contains an escape.
struct Key<'k>(Cow<'k, str>);

impl<'de: 'k, 'k> Deserialize<'de> for Key<'k> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Name;
        impl<'de> Visitor<'de> for Name {
            type Value = Key<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a key")
            }

            fn visit_borrowed_str<E>(self, key: &'de str) -> Result<Key<'de>, E> {
                Ok(Key(Cow::Borrowed(key)))
            }

            fn visit_str<E>(self, key: &str) -> Result<Key<'de>, E> {
                Ok(Key(Cow::Owned(key.to_owned())))
            }
        }
        deserializer.deserialize_str(Name)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::Json;
    use super::*;

    fn nested(depth: usize) -> String {
        format!("{}{}", "[".repeat(depth), "]".repeat(depth))
    }

    fn fault(json: &str) -> JsonFault {
        Json::strict(json).unwrap_err()
    }

    #[test]
    fn what_every_reader_reads_alike_passes() {
        let good = r#" [1,-1,1.5,null,true,"\ud83d\ude00",{"a":{"a":[{"b":1},{"b":1}]}},1e-999,1e308] "#;
        for good in [&nested(Json::MAX_DEPTH), "{}", good, "9".repeat(300).as_str()] {
            assert_eq!(Json::strict(good).unwrap().as_str(), good.trim());
        }
    }

    #[test]
    fn a_fault_has_a_path_and_a_reason() {
        let table = [
            (r#"{"a":[0,{"b":"\ud83d"}]}"#, "a[1].b", "surrogate"),
            (r#"{"a":"\udc00x"}"#, "a", "surrogate"),
            (r#"{"a":[1e999]}"#, "a[0]", "out of range"),
            (r#"{"a":{"b":1,"b":2}}"#, "a", "duplicate key \"b\""),
            (r#"[{"a":1,"\u0061":2}]"#, "[0]", "duplicate key \"a\""),
            (r#"{"a":NaN}"#, "a", "expected value"),
            ("1 2", "", "trailing"),
            ("", "", "EOF"),
            ("\"\u{1}\"", "", "control character"),
        ];
        for (json, path, reason) in table {
            let fault = fault(json);
            assert_eq!(fault.path(), path, "{json}: {fault}");
            assert!(fault.reason().contains(reason), "{json}: {fault}");
        }
        assert!(Json::check_strict(b"[\"\xff\"]").is_err());
        assert!(fault(&"9".repeat(400)).reason().contains("out of range"));
    }

    #[test]
    fn depth_is_bounded() {
        assert!(Json::strict_within(&nested(20), 20).is_ok());
        let deep = Json::strict_within(&nested(21), 20).unwrap_err();
        assert!(deep.reason().contains("nested too deep") && deep.path().starts_with("[0][0]"), "{deep}");
        for depth in [Json::MAX_DEPTH + 1, 1_000, 100_000] {
            let deep = fault(&nested(depth));
            assert!(deep.reason().contains("recursion limit"), "{deep}");
            assert!(deep.to_string().len() < 400, "{deep}");
        }
        assert!(Json::strict_within(&nested(1_000), 1_000).is_err(), "no reader goes that deep");
    }

    #[test]
    fn a_key_is_found_again_wherever_it_stands() {
        let object = |last: usize| {
            let keys = (0..40).chain([last]).map(|key| format!("\"{key}\":0"));
            format!("{{{}}}", keys.collect::<Vec<_>>().join(","))
        };
        assert!(Json::strict(&object(40)).is_ok());
        for twice in [0, 15, 16, 39] {
            assert!(fault(&object(twice)).reason().contains("duplicate key"), "{twice}");
        }
    }

    proptest! {
        /// The parser that all other parts use can parse a text that passes.
        #[test]
        fn what_passes_can_be_read(text in r#"[\[\]{}:,"\\ud8de0-9.eE+\-a ]{0,24}"#) {
            if let Ok(json) = Json::strict(&text) {
                prop_assert!(serde_json::from_str::<serde_json::Value>(json.as_str()).is_ok());
            }
        }
    }
}

//! Decoding of a stored event to a projection's own type, by serde alone: the event's type picks
//! the variant, its data fills it.

use std::cell::Cell;
use std::fmt;

use serde::de::value::StrDeserializer;
use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, EnumAccess, Error as _, VariantAccess, Visitor,
};

use crate::event::{Event, EventKind};

/// The result of decoding an event for a projection.
pub(crate) enum Decoded<E> {
    /// The projection understands it.
    Known(Event<E>),
    /// The projection has no variant for its type.
    Ignored,
    /// The data does not fit the type; the error names the field.
    Broken(Event, String),
}

pub(crate) fn decode<E: DeserializeOwned>(event: Event) -> Decoded<E> {
    let unknown = Cell::new(false);
    let mut json = serde_json::Deserializer::from_str(event.data.as_str());
    let tagged = Tagged { kind: &event.kind, unknown: &unknown, data: &mut json };
    match E::deserialize(tagged) {
        Ok(data) => Decoded::Known(event.with_data(data)),
        Err(_) if unknown.get() => Decoded::Ignored,
        Err(error) => {
            let error = locate::<E>(&event).unwrap_or_else(|| error.to_string());
            Decoded::Broken(event, error)
        }
    }
}

/// Decodes again, more slowly, to find the field that is wrong.
fn locate<E: DeserializeOwned>(event: &Event) -> Option<String> {
    let mut json = serde_json::Deserializer::from_str(event.data.as_str());
    let mut track = serde_path_to_error::Track::new();
    let data = serde_path_to_error::Deserializer::new(&mut json, &mut track);
    let error = E::deserialize(Tagged { kind: &event.kind, unknown: &Cell::new(false), data }).err()?;
    let path = track.path().to_string();
    let place = if path == "." { "data".to_owned() } else { format!("data.{path}") };
    Some(format!("can't decode {}: {place}: {error}", event.kind))
}

/// A deserializer that presents (type, data) as an enum, and the data alone to every other type.
struct Tagged<'a, D> {
    kind: &'a EventKind,
    unknown: &'a Cell<bool>,
    data: D,
}

macro_rules! forward {
    ($($method:ident($($arg:ident: $ty:ty),*);)*) => {
        $(fn $method<V: Visitor<'de>>(self, $($arg: $ty,)* visitor: V) -> Result<V::Value, D::Error> {
            self.data.$method($($arg,)* visitor)
        })*
    };
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for Tagged<'_, D> {
    type Error = D::Error;

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        if !variants.contains(&self.kind.as_str()) {
            self.unknown.set(true);
            return Err(D::Error::unknown_variant(self.kind.as_str(), variants));
        }
        visitor.visit_enum(self)
    }

    forward! {
        deserialize_any(); deserialize_bool(); deserialize_i8(); deserialize_i16(); deserialize_i32();
        deserialize_i64(); deserialize_i128(); deserialize_u8(); deserialize_u16(); deserialize_u32();
        deserialize_u64(); deserialize_u128(); deserialize_f32(); deserialize_f64(); deserialize_char();
        deserialize_str(); deserialize_string(); deserialize_bytes(); deserialize_byte_buf();
        deserialize_option(); deserialize_unit(); deserialize_seq(); deserialize_map();
        deserialize_identifier(); deserialize_ignored_any();
        deserialize_unit_struct(name: &'static str);
        deserialize_newtype_struct(name: &'static str);
        deserialize_tuple(len: usize);
        deserialize_tuple_struct(name: &'static str, len: usize);
        deserialize_struct(name: &'static str, fields: &'static [&'static str]);
    }
}

impl<'de, 'a, D: Deserializer<'de>> EnumAccess<'de> for Tagged<'a, D> {
    type Error = D::Error;
    type Variant = Tagged<'a, D>;

    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, Self::Variant), D::Error> {
        Ok((seed.deserialize(StrDeserializer::new(self.kind.as_str()))?, self))
    }
}

impl<'de, D: Deserializer<'de>> VariantAccess<'de> for Tagged<'_, D> {
    type Error = D::Error;

    /// A variant without fields accepts any data.
    fn unit_variant(self) -> Result<(), D::Error> {
        Ok(())
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, D::Error> {
        seed.deserialize(self.data)
    }

    fn tuple_variant<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value, D::Error> {
        self.data.deserialize_tuple(len, visitor)
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.data.deserialize_struct("", fields, visitor)
    }
}

impl<E> fmt::Debug for Decoded<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Known(event) => write!(f, "known {}", event.kind),
            Self::Ignored => f.write_str("ignored"),
            Self::Broken(event, error) => write!(f, "broken {}: {error}", event.kind),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;
    use crate::event::{EventId, Partition, Position, Revision, StreamId};
    use crate::json::Json;

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(rename_all = "kebab-case")]
    enum Shape {
        Opened {
            client: String,
            items: Vec<Item>,
        },
        #[serde(alias = "item-put")]
        ItemAdded(Item),
        Pair(u8, u8),
        Closed,
    }

    #[derive(Debug, PartialEq, Deserialize)]
    struct Item {
        quantity: u32,
    }

    fn event(kind: &str, data: &str) -> Event {
        Event {
            id: EventId::new("e1").unwrap(),
            stream: StreamId::new("s").unwrap(),
            revision: Revision(1),
            kind: EventKind::new(kind).unwrap(),
            time: jiff::Timestamp::UNIX_EPOCH,
            data: Json::parse(data).unwrap(),
            metadata: None,
            partition: Partition(0),
            position: Position(1),
        }
    }

    fn known<E: DeserializeOwned>(kind: &str, data: &str) -> E {
        match decode(event(kind, data)) {
            Decoded::Known(event) => event.data,
            other => panic!("{other:?}"),
        }
    }

    fn broken<E: DeserializeOwned>(kind: &str, data: &str) -> String {
        match decode::<E>(event(kind, data)) {
            Decoded::Broken(_, error) => error,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_type_picks_the_variant() {
        let opened = Shape::Opened { client: "ann".into(), items: vec![Item { quantity: 1 }] };
        assert_eq!(known::<Shape>("opened", r#"{"client":"ann","items":[{"quantity":1}]}"#), opened);
        assert_eq!(known::<Shape>("item-added", r#"{"quantity":2}"#), Shape::ItemAdded(Item { quantity: 2 }));
        assert_eq!(known::<Shape>("item-put", r#"{"quantity":2}"#), Shape::ItemAdded(Item { quantity: 2 }));
        assert_eq!(known::<Shape>("pair", "[1,2]"), Shape::Pair(1, 2));
        assert_eq!(known::<Shape>("closed", r#"{"any":"thing"}"#), Shape::Closed);
    }

    #[test]
    fn types_without_a_variant_are_ignored() {
        assert!(matches!(decode::<Shape>(event("renamed", "{}")), Decoded::Ignored));
    }

    #[test]
    fn what_does_not_fit_is_broken_and_the_field_is_named() {
        let error =
            broken::<Shape>("opened", r#"{"client":"ann","items":[{"quantity":1},{"quantity":"two"}]}"#);
        assert!(error.contains("can't decode opened: data.items[1].quantity"), "{error}");
        let error = broken::<Shape>("item-added", "{}");
        assert!(error.contains("missing field `quantity`"), "{error}");
        assert!(broken::<Shape>("pair", "[1]").contains("can't decode pair"));
    }

    #[test]
    fn what_is_no_enum_sees_the_data_of_every_type() {
        assert_eq!(known::<Item>("whatever", r#"{"quantity":3}"#), Item { quantity: 3 });
        assert_eq!(known::<serde_json::Value>("whatever", "[1]"), serde_json::json!([1]));
    }
}

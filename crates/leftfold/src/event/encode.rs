//! Encoding of a serde value as an event's type and data: the inverse of decoding.

use std::collections::BTreeMap;
use std::fmt;

use serde::ser::{self, Impossible, Serialize, Serializer};
use serde_json::value::RawValue;

use crate::error::Invalid;
use crate::json::Json;

/// Returns the type and the data of an event. The type is the name of the variant or struct; the
/// data is its content.
pub(crate) fn encode(event: &impl Serialize) -> Result<(&'static str, Json), Invalid> {
    let (Err(name) | Ok(name)) = event.serialize(NameOf);
    let (name, holds_data) = match name {
        Name::Struct(name) => return Ok((name, Json::of(event)?)),
        Name::Unit(name) => (name, false),
        Name::Variant(name) => (name, true),
        Name::Missing => {
            return Err(Invalid::new("event", "", "an enum variant or a struct; its name becomes the type"));
        }
    };
    if !holds_data {
        return Ok((name, Json::stored("{}")));
    }
    let tagged = Json::of(event)?;
    let content = serde_json::from_str::<BTreeMap<&str, &RawValue>>(tagged.as_str())
        .ok()
        .filter(|content| content.len() == 1)
        .and_then(|content| content.get(name).map(|raw| Json::stored(raw.get())))
        .ok_or_else(|| {
            Invalid::new("event", tagged.as_str(), "an enum without a serde tag, because the type is the tag")
        })?;
    Ok((name, content))
}

/// A serializer that reads only the outermost name.
struct NameOf;

#[derive(Debug)]
enum Name {
    Unit(&'static str),
    Variant(&'static str),
    Struct(&'static str),
    Missing,
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

impl std::error::Error for Name {}

impl ser::Error for Name {
    fn custom<T: fmt::Display>(_: T) -> Self {
        Self::Missing
    }
}

macro_rules! nameless {
    ($($method:ident($($ty:ty),*);)*) => {
        $(fn $method(self, $(_: $ty),*) -> Result<Name, Name> {
            Ok(Name::Missing)
        })*
    };
}

impl Serializer for NameOf {
    type Ok = Name;
    type Error = Name;
    type SerializeSeq = Impossible<Name, Name>;
    type SerializeTuple = Impossible<Name, Name>;
    type SerializeTupleStruct = Impossible<Name, Name>;
    type SerializeTupleVariant = Impossible<Name, Name>;
    type SerializeMap = Impossible<Name, Name>;
    type SerializeStruct = Impossible<Name, Name>;
    type SerializeStructVariant = Impossible<Name, Name>;

    fn serialize_unit_variant(self, _: &'static str, _: u32, variant: &'static str) -> Result<Name, Name> {
        Ok(Name::Unit(variant))
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        _: &T,
    ) -> Result<Name, Name> {
        Ok(Name::Variant(variant))
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<Self::SerializeTupleVariant, Name> {
        Err(Name::Variant(variant))
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<Self::SerializeStructVariant, Name> {
        Err(Name::Variant(variant))
    }

    fn serialize_struct(self, name: &'static str, _: usize) -> Result<Self::SerializeStruct, Name> {
        Err(Name::Struct(name))
    }

    fn serialize_unit_struct(self, name: &'static str) -> Result<Name, Name> {
        Ok(Name::Unit(name))
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        name: &'static str,
        _: &T,
    ) -> Result<Name, Name> {
        Ok(Name::Struct(name))
    }

    fn serialize_tuple_struct(
        self,
        name: &'static str,
        _: usize,
    ) -> Result<Self::SerializeTupleStruct, Name> {
        Err(Name::Struct(name))
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<Name, Name> {
        value.serialize(self)
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<Self::SerializeSeq, Name> {
        Err(Name::Missing)
    }

    fn serialize_tuple(self, _: usize) -> Result<Self::SerializeTuple, Name> {
        Err(Name::Missing)
    }

    fn serialize_map(self, _: Option<usize>) -> Result<Self::SerializeMap, Name> {
        Err(Name::Missing)
    }

    nameless! {
        serialize_bool(bool); serialize_i8(i8); serialize_i16(i16); serialize_i32(i32); serialize_i64(i64);
        serialize_u8(u8); serialize_u16(u16); serialize_u32(u32); serialize_u64(u64); serialize_f32(f32);
        serialize_f64(f64); serialize_char(char); serialize_str(&str); serialize_bytes(&[u8]);
        serialize_none(); serialize_unit();
    }
}

#[cfg(test)]
mod tests {
    use serde::Serialize;

    use super::*;

    #[derive(Serialize)]
    #[serde(rename_all = "kebab-case")]
    enum Cart {
        ItemAdded { product: &'static str, amount: u8 },
        Named(&'static str),
        Pair(u8, u8),
        Closed,
    }

    #[derive(Serialize)]
    #[serde(rename = "price-changed")]
    struct PriceChanged {
        cents: u32,
    }

    #[derive(Serialize)]
    #[serde(tag = "type")]
    enum Tagged {
        Opened { by: u8 },
    }

    fn encoded(event: &impl Serialize) -> (&'static str, String) {
        let (kind, data) = encode(event).unwrap();
        (kind, data.as_str().to_owned())
    }

    #[test]
    fn names_become_types_and_contents_data_in_their_own_order() {
        let added = Cart::ItemAdded { product: "shoes", amount: 2 };
        assert_eq!(encoded(&added), ("item-added", r#"{"product":"shoes","amount":2}"#.into()));
        assert_eq!(encoded(&Cart::Named("x")), ("named", r#""x""#.into()));
        assert_eq!(encoded(&Cart::Pair(1, 2)), ("pair", "[1,2]".into()));
        assert_eq!(encoded(&Cart::Closed), ("closed", "{}".into()));
        assert_eq!(encoded(&Some(PriceChanged { cents: 5 })), ("price-changed", r#"{"cents":5}"#.into()));
    }

    #[test]
    fn what_has_no_name_is_refused() {
        for error in [encode(&5).unwrap_err(), encode(&"text").unwrap_err(), encode(&vec![1]).unwrap_err()] {
            assert!(error.to_string().contains("its name becomes the type"), "{error}");
        }
        assert_eq!(encoded(&Tagged::Opened { by: 1 }).0, "Tagged");
    }
}

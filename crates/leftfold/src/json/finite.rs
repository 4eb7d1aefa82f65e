//! A serializer that rejects NaN and infinite numbers. JSON can't represent them, and `serde_json`
//! writes `null` instead, which is another value.

use std::fmt::Display;

use serde::ser::{
    Serialize, SerializeMap, SerializeSeq, SerializeStruct, SerializeStructVariant, SerializeTuple,
    SerializeTupleStruct, SerializeTupleVariant, Serializer,
};

/// A value whose numbers must all be finite.
pub(super) struct Finite<T>(pub(super) T);

impl<T: Serialize + ?Sized> Serialize for Finite<&T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(Through(serializer))
    }
}

/// Forwards to another serializer, or to the serializers it creates for the parts of a value.
struct Through<S>(S);

macro_rules! hand_on {
    ($($method:ident($($name:ident: $type:ty),*))*) => {
        $(fn $method(self, $($name: $type),*) -> Result<S::Ok, S::Error> { self.0.$method($($name),*) })*
    };
}

macro_rules! begin {
    ($($method:ident($($name:ident: $type:ty),*) -> $part:ident)*) => {
        $(fn $method(self, $($name: $type),*) -> Result<Through<S::$part>, S::Error> {
            self.0.$method($($name),*).map(Through)
        })*
    };
}

impl<S: Serializer> Serializer for Through<S> {
    type Ok = S::Ok;
    type Error = S::Error;
    type SerializeSeq = Through<S::SerializeSeq>;
    type SerializeTuple = Through<S::SerializeTuple>;
    type SerializeTupleStruct = Through<S::SerializeTupleStruct>;
    type SerializeTupleVariant = Through<S::SerializeTupleVariant>;
    type SerializeMap = Through<S::SerializeMap>;
    type SerializeStruct = Through<S::SerializeStruct>;
    type SerializeStructVariant = Through<S::SerializeStructVariant>;

    fn serialize_f32(self, number: f32) -> Result<S::Ok, S::Error> {
        if !number.is_finite() {
            return Err(no_number(number));
        }
        self.0.serialize_f32(number)
    }

    fn serialize_f64(self, number: f64) -> Result<S::Ok, S::Error> {
        if !number.is_finite() {
            return Err(no_number(number));
        }
        self.0.serialize_f64(number)
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<S::Ok, S::Error> {
        self.0.serialize_some(&Finite(value))
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        name: &'static str,
        value: &T,
    ) -> Result<S::Ok, S::Error> {
        self.0.serialize_newtype_struct(name, &Finite(value))
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        name: &'static str,
        index: u32,
        variant: &'static str,
        value: &T,
    ) -> Result<S::Ok, S::Error> {
        self.0.serialize_newtype_variant(name, index, variant, &Finite(value))
    }

    fn collect_str<T: Display + ?Sized>(self, value: &T) -> Result<S::Ok, S::Error> {
        self.0.collect_str(value)
    }

    fn is_human_readable(&self) -> bool {
        self.0.is_human_readable()
    }

    hand_on! {
        serialize_bool(value: bool)
        serialize_i8(value: i8)
        serialize_i16(value: i16)
        serialize_i32(value: i32)
        serialize_i64(value: i64)
        serialize_i128(value: i128)
        serialize_u8(value: u8)
        serialize_u16(value: u16)
        serialize_u32(value: u32)
        serialize_u64(value: u64)
        serialize_u128(value: u128)
        serialize_char(value: char)
        serialize_str(value: &str)
        serialize_bytes(value: &[u8])
        serialize_none()
        serialize_unit()
        serialize_unit_struct(name: &'static str)
        serialize_unit_variant(name: &'static str, index: u32, variant: &'static str)
    }

    begin! {
        serialize_seq(length: Option<usize>) -> SerializeSeq
        serialize_tuple(length: usize) -> SerializeTuple
        serialize_tuple_struct(name: &'static str, length: usize) -> SerializeTupleStruct
        serialize_tuple_variant(name: &'static str, index: u32, variant: &'static str, length: usize) -> SerializeTupleVariant
        serialize_map(length: Option<usize>) -> SerializeMap
        serialize_struct(name: &'static str, length: usize) -> SerializeStruct
        serialize_struct_variant(name: &'static str, index: u32, variant: &'static str, length: usize) -> SerializeStructVariant
    }
}

fn no_number<E: serde::ser::Error>(number: impl Display) -> E {
    E::custom(format_args!("JSON can't represent {number}"))
}

macro_rules! parts {
    ($($part:ident::$method:ident($($name:ident: $type:ty),*))*) => {
        $(impl<P: $part> $part for Through<P> {
            type Ok = P::Ok;
            type Error = P::Error;

            fn $method<T: Serialize + ?Sized>(&mut self, $($name: $type,)* value: &T) -> Result<(), P::Error> {
                self.0.$method($($name,)* &Finite(value))
            }

            fn end(self) -> Result<P::Ok, P::Error> {
                self.0.end()
            }
        })*
    };
}

parts! {
    SerializeSeq::serialize_element()
    SerializeTuple::serialize_element()
    SerializeTupleStruct::serialize_field()
    SerializeTupleVariant::serialize_field()
    SerializeStruct::serialize_field(name: &'static str)
    SerializeStructVariant::serialize_field(name: &'static str)
}

impl<P: SerializeMap> SerializeMap for Through<P> {
    type Ok = P::Ok;
    type Error = P::Error;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), P::Error> {
        self.0.serialize_key(key)
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), P::Error> {
        self.0.serialize_value(&Finite(value))
    }

    fn end(self) -> Result<P::Ok, P::Error> {
        self.0.end()
    }
}

//! A member that is a text or a list of objects, as many APIs have it for content.

use std::fmt;
use std::marker::PhantomData;

use serde::de::value::SeqAccessDeserializer;
use serde::de::{Deserializer, SeqAccess, Visitor};
use serde::{Deserialize, Serialize, Serializer};
use trunkline_wire::chat::BoundedList;
use trunkline_wire::object::Object;

/// Text, or a list of at most `MAX` objects.
#[derive(Debug, Clone)]
pub(crate) enum TextOr<T, const MAX: usize> {
    Text(String),
    List(Vec<T>),
}

impl<'de, T: Deserialize<'de>, const MAX: usize> Deserialize<'de> for TextOr<T, MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextOrVisitor<T, const MAX: usize>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>, const MAX: usize> Visitor<'de> for TextOrVisitor<T, MAX> {
            type Value = TextOr<T, MAX>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "a string or an array of at most {MAX} objects")
            }

            fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
                Ok(TextOr::Text(text.to_owned()))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<Self::Value, A::Error> {
                let list = BoundedList::<Object<T>, MAX>::deserialize(SeqAccessDeserializer::new(seq))?;
                Ok(TextOr::List(list.0.into_iter().map(|object| object.0).collect()))
            }
        }
        deserializer.deserialize_any(TextOrVisitor(PhantomData))
    }
}

impl<T: Serialize, const MAX: usize> Serialize for TextOr<T, MAX> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Text(text) => serializer.serialize_str(text),
            Self::List(list) => list.serialize(serializer),
        }
    }
}

//! Contents and their parts exactly as on the wire.
//!
//! Parsed leniently, as Google does: names are in camelCase or snake_case, a list of one element may be the element itself,
//! unknown members are ignored, and every optional member may be null.

use std::fmt;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use trunkline_wire::chat::BoundedList;
use trunkline_wire::object::Object;

/// Maximum number of parts of a content.
const MAX_PARTS: usize = 4096;

#[derive(Debug, Deserialize)]
pub(super) struct Content {
    /// The user if absent.
    pub(super) role: Option<String>,
    pub(super) parts: Option<OneOrMany<Part, MAX_PARTS>>,
}

/// One part. A flat struct rather than an enum, so that a parse error can name the path inside it.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Part {
    pub(super) text: Option<String>,
    pub(super) thought: Option<bool>,
    #[serde(alias = "inline_data")]
    pub(super) inline_data: Option<Object<InlineData>>,
    #[serde(alias = "file_data")]
    pub(super) file_data: Option<Box<RawValue>>,
    #[serde(alias = "function_call")]
    pub(super) function_call: Option<Object<FunctionCall>>,
    #[serde(alias = "function_response")]
    pub(super) function_response: Option<Object<FunctionResponse>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct InlineData {
    #[serde(alias = "mime_type")]
    pub(super) mime_type: Option<String>,
    pub(super) data: Option<String>,
    #[serde(alias = "display_name")]
    pub(super) display_name: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct FunctionCall {
    pub(super) id: Option<String>,
    pub(super) name: Option<String>,
    pub(super) args: Option<Box<RawValue>>,
}

#[derive(Debug, Deserialize)]
pub(super) struct FunctionResponse {
    pub(super) id: Option<String>,
    pub(super) name: Option<String>,
    pub(super) response: Option<Box<RawValue>>,
}

/// An object, or a list of at most `MAX` objects.
#[derive(Debug)]
pub(super) struct OneOrMany<T, const MAX: usize>(pub(super) Vec<T>);

impl<'de, T: Deserialize<'de>, const MAX: usize> Deserialize<'de> for OneOrMany<T, MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OneOrManyVisitor<T, const MAX: usize>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>, const MAX: usize> Visitor<'de> for OneOrManyVisitor<T, MAX> {
            type Value = OneOrMany<T, MAX>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "an array of at most {MAX} objects")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map)).map(|one| OneOrMany(vec![one]))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<Self::Value, A::Error> {
                let list = BoundedList::<Object<T>, MAX>::deserialize(SeqAccessDeserializer::new(seq))?;
                Ok(OneOrMany(list.0.into_iter().map(|object| object.0).collect()))
            }
        }
        deserializer.deserialize_any(OneOrManyVisitor(PhantomData))
    }
}

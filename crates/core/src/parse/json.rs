//! JSON values that borrow their strings from the text. A line of output is read once and dropped, and copying each of its
//! names and strings would be most of the allocations of its decoder.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::Number;

/// A JSON value. As in `serde_json`, the last of several members with the same name counts.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Value<'a> {
    Null,
    Bool(bool),
    Number(Number),
    String(Cow<'a, str>),
    Array(Vec<Self>),
    Object(Vec<(Cow<'a, str>, Self)>),
}

impl<'a> Value<'a> {
    /// Returns a member of an object.
    pub(super) fn get(&self, name: &str) -> Option<&Self> {
        self.as_object()?.iter().rfind(|(known, _)| known == name).map(|(_, value)| value)
    }

    /// Returns the value at a JSON pointer without escapes.
    pub(super) fn pointer(&self, path: &str) -> Option<&Self> {
        path.split('/').skip(1).try_fold(self, |value, part| match value.as_array() {
            Some(items) => items.get(part.parse::<usize>().ok()?),
            None => value.get(part),
        })
    }

    pub(super) fn as_str(&self) -> Option<&str> {
        if let Self::String(text) = self { Some(text) } else { None }
    }

    pub(super) fn as_bool(&self) -> Option<bool> {
        if let Self::Bool(value) = self { Some(*value) } else { None }
    }

    pub(super) fn as_u64(&self) -> Option<u64> {
        if let Self::Number(number) = self { number.as_u64() } else { None }
    }

    pub(super) fn as_i64(&self) -> Option<i64> {
        if let Self::Number(number) = self { number.as_i64() } else { None }
    }

    pub(super) fn as_array(&self) -> Option<&Vec<Self>> {
        if let Self::Array(items) = self { Some(items) } else { None }
    }

    pub(super) fn as_object(&self) -> Option<&Vec<(Cow<'a, str>, Self)>> {
        if let Self::Object(members) = self { Some(members) } else { None }
    }

    pub(super) fn is_null(&self) -> bool {
        matches!(self, Self::Null)
    }

    pub(super) fn is_string(&self) -> bool {
        matches!(self, Self::String(_))
    }

    pub(super) fn is_boolean(&self) -> bool {
        matches!(self, Self::Bool(_))
    }

    pub(super) fn is_number(&self) -> bool {
        matches!(self, Self::Number(_))
    }

    pub(super) fn is_object(&self) -> bool {
        matches!(self, Self::Object(_))
    }

    /// Copies the value, so that it can be kept.
    pub(super) fn to_owned(&self) -> serde_json::Value {
        match self {
            Self::Null => serde_json::Value::Null,
            Self::Bool(value) => (*value).into(),
            Self::Number(number) => number.clone().into(),
            Self::String(text) => (**text).into(),
            Self::Array(items) => items.iter().map(Self::to_owned).collect(),
            Self::Object(members) => {
                members.iter().map(|(name, value)| (name.clone().into_owned(), value.to_owned())).collect()
            }
        }
    }
}

impl<'a> From<&'a serde_json::Value> for Value<'a> {
    fn from(value: &'a serde_json::Value) -> Self {
        match value {
            serde_json::Value::Null => Self::Null,
            serde_json::Value::Bool(value) => Self::Bool(*value),
            serde_json::Value::Number(number) => Self::Number(number.clone()),
            serde_json::Value::String(text) => Self::String(Cow::Borrowed(text)),
            serde_json::Value::Array(items) => Self::Array(items.iter().map(Self::from).collect()),
            serde_json::Value::Object(members) => Self::Object(
                members.iter().map(|(name, value)| (Cow::Borrowed(name.as_str()), Self::from(value))).collect(),
            ),
        }
    }
}

impl fmt::Display for Value<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.to_owned().fmt(f)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Value<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ValueVisitor)
    }
}

struct ValueVisitor;

impl<'de> Visitor<'de> for ValueVisitor {
    type Value = Value<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value<'de>, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value<'de>, E> {
        Ok(Value::Bool(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value<'de>, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value<'de>, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value<'de>, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Value<'de>, E> {
        Ok(Value::String(Cow::Borrowed(text)))
    }

    fn visit_str<E>(self, text: &str) -> Result<Value<'de>, E> {
        Ok(Value::String(Cow::Owned(text.to_owned())))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value<'de>, A::Error> {
        let mut all = Vec::new();
        while let Some(item) = items.next_element()? {
            all.push(item);
        }
        Ok(Value::Array(all))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value<'de>, A::Error> {
        let mut all = Vec::new();
        while let Some((MemberName(name), value)) = members.next_entry()? {
            all.push((name, value));
        }
        Ok(Value::Object(all))
    }
}

/// The name of a member. `Cow` alone would always be copied.
struct MemberName<'a>(Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for MemberName<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if let Value::String(name) = deserializer.deserialize_str(ValueVisitor)? {
            return Ok(Self(name));
        }
        Err(serde::de::Error::custom("the name of a member is not a string"))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn strings_are_borrowed_unless_they_have_escapes() {
        let value: Value<'_> = serde_json::from_str(r#"{"a":"b","c":"d\n","e":[1,-2,0.5,true,null]}"#).unwrap();
        assert!(matches!(value.get("a"), Some(Value::String(Cow::Borrowed("b")))));
        assert_eq!(value.get("c").and_then(Value::as_str), Some("d\n"));
        assert_eq!(value.pointer("/e/1").and_then(Value::as_i64), Some(-2));
        assert_eq!(value.to_owned(), json!({"a": "b", "c": "d\n", "e": [1, -2, 0.5, true, null]}));
    }

    #[test]
    fn last_member_counts_when_a_name_is_repeated() {
        let value: Value<'_> = serde_json::from_str(r#"{"id":1,"id":2}"#).unwrap();
        assert_eq!(value.get("id").and_then(Value::as_u64), Some(2));
        assert_eq!(value.to_owned(), json!({"id": 2}));
    }

    proptest! {
        #[test]
        fn every_text_is_read_as_serde_json_reads_it(text in r#"[\[\]{}:,"\\a1.e \-tu0-9]{0,24}"#) {
            let ours = serde_json::from_str::<Value<'_>>(&text).ok().map(|value| value.to_owned());
            prop_assert_eq!(ours, serde_json::from_str(&text).ok());
        }
    }
}

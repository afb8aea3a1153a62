//! Structs that deserialize from JSON objects only.
//!
//! The `Deserialize` that serde derives for a struct also accepts an array, with the members in the order of their
//! declaration: `["model", [["user", "hi"]]]` would be a request. [`Object`] rejects arrays with an error that names
//! what is expected.

use std::fmt;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, MapAccess, Visitor};

/// A struct that deserializes from a JSON object only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Object<T>(pub T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(ObjectVisitor(PhantomData))
    }
}

struct ObjectVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for ObjectVisitor<T> {
    type Value = Object<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Object<T>, A::Error> {
        T::deserialize(MapAccessDeserializer::new(map)).map(Object)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, Deserialize)]
    struct Point {
        x: i32,
        y: Option<i32>,
    }

    #[test]
    fn struct_is_rejected_unless_it_is_an_object() {
        let read = |json: &str| serde_json::from_str::<Object<Point>>(json).map_err(|error| error.to_string());
        assert_eq!(read(r#"{"x":1}"#), Ok(Object(Point { x: 1, y: None })));
        for other in ["[1,2]", "[]", "\"x\"", "7", "null", "true"] {
            let error = read(other).unwrap_err();
            assert!(error.contains("expected an object"), "{other}: {error}");
        }
        assert!(read(r#"{"y":1}"#).unwrap_err().contains("missing field `x`"));
    }
}

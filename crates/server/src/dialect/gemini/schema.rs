//! Google's schemas as JSON Schema, which is how HTTP upstreams get them.
//!
//! Google's own are a part of OpenAPI 3.0, with the names of types in capitals.

use serde_json::{Map, Value};

/// Members of Google's schemas that JSON Schema does not have.
const FOREIGN_MEMBERS: [&str; 3] = ["nullable", "propertyOrdering", "property_ordering"];

/// Depth at which the rest of a schema is left as it is.
const MAX_DEPTH: usize = 64;

/// Converts a schema.
pub(super) fn json_schema(schema: Value) -> Value {
    convert(schema, MAX_DEPTH)
}

fn convert(schema: Value, depth: usize) -> Value {
    let Value::Object(mut members) = schema else { return schema };
    let nullable = members.get("nullable") == Some(&Value::Bool(true));
    FOREIGN_MEMBERS.iter().for_each(|name| drop(members.remove(*name)));
    if depth == 0 {
        return members.into();
    }
    let members: Map<String, Value> =
        members.into_iter().map(|(name, value)| (name.clone(), member(&name, value, nullable, depth - 1))).collect();
    members.into()
}

fn member(name: &str, value: Value, nullable: bool, depth: usize) -> Value {
    match (name, value) {
        ("type", Value::String(kind)) => {
            let kind = Value::from(kind.to_lowercase());
            if nullable { vec![kind, "null".into()].into() } else { kind }
        }
        ("properties" | "$defs", Value::Object(properties)) => {
            let converted = properties.into_iter().map(|(name, property)| (name, convert(property, depth)));
            converted.collect::<Map<_, _>>().into()
        }
        ("items" | "additionalProperties", schema) => convert(schema, depth),
        ("anyOf" | "any_of", Value::Array(choices)) => {
            choices.into_iter().map(|choice| convert(choice, depth)).collect::<Vec<_>>().into()
        }
        // Numbers of 64 bits are texts in Google's JSON.
        ("minItems" | "maxItems" | "minLength" | "maxLength" | "minProperties" | "maxProperties", Value::String(n)) => {
            n.parse::<u64>().map_or_else(|_| n.into(), Value::from)
        }
        (_, value) => value,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn schemas_of_google_become_json_schema() {
        for (given, expected) in [
            (json!({"type": "STRING", "nullable": true}), json!({"type": ["string", "null"]})),
            (
                json!({"type": "OBJECT", "properties": {"type": {"type": "INTEGER", "format": "int32"}},
                    "required": ["type"], "propertyOrdering": ["type"]}),
                json!({"type": "object", "properties": {"type": {"type": "integer", "format": "int32"}},
                    "required": ["type"]}),
            ),
            (
                json!({"type": "ARRAY", "minItems": "1", "items": {"anyOf": [{"type": "NUMBER"}, {"type": "STRING"}]}}),
                json!({"type": "array", "minItems": 1, "items": {"anyOf": [{"type": "number"}, {"type": "string"}]}}),
            ),
            (json!({"type": "string", "enum": ["A"]}), json!({"type": "string", "enum": ["A"]})),
            (json!(7), json!(7)),
        ] {
            assert_eq!(json_schema(given.clone()), expected, "{given}");
        }
    }
}

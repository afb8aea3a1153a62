//! Schemas of answers that a CLI can pass on to its model. A CLI, or the service behind it, refuses a schema that breaks its
//! rules, and the turn fails. Such a schema is put into the prompt instead.

use serde_json::{Map, Value};

use crate::vocabulary::named_enum;

named_enum! {
    /// Rules for the schemas that a CLI accepts.
    pub enum SchemaRules {
        /// The answer is the arguments of a tool: an object. The CLI refuses keywords that it does not know.
        Object = "object",
        /// Strict structured output of OpenAI: every object is closed, and every property is required.
        Strict = "strict",
    }
}

/// Maximum size of a schema that is passed on. It may be one argument, for which Linux has a limit of 128 KiB.
const MAX_SCHEMA_BYTES: usize = 100 * 1024;

/// Maximum number of levels of a strict schema.
const MAX_STRICT_DEPTH: usize = 10;

/// Maximum number of properties of a strict schema.
const MAX_STRICT_PROPERTIES: usize = 5_000;

/// Maximum number of values of an `enum` in a strict schema.
const MAX_STRICT_CHOICES: usize = 1_000;

/// Formats of texts in a strict schema.
const STRICT_FORMATS: [&str; 9] =
    ["date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"];

impl SchemaRules {
    /// Returns the text to pass on for this schema, or none if the rules forbid it. `text` is the schema as the client wrote it:
    /// the order of its properties is that of the answer.
    #[must_use]
    pub fn native(self, text: &str, schema: &Value) -> Option<String> {
        let mut schema = schema.clone();
        // CLIs know one version of JSON Schema and refuse the address of another.
        let had_version = schema.as_object_mut()?.remove("$schema").is_some();
        let text = if had_version { schema.to_string() } else { text.to_owned() };
        (text.len() <= MAX_SCHEMA_BYTES && self.allows(&schema)).then_some(text)
    }

    fn allows(self, schema: &Value) -> bool {
        let Some(root) = schema.as_object() else { return false };
        let combined = ["anyOf", "oneOf", "allOf", "not", "$ref"].iter().any(|keyword| root.contains_key(*keyword));
        let is_object = root.get("type").is_some_and(|kind| kind == "object");
        let mut walk = Walk { rules: self, properties: 0 };
        is_object && !combined && walk.allows(schema, 1)
    }
}

/// Walk through a schema.
struct Walk {
    rules: SchemaRules,
    /// Properties so far.
    properties: usize,
}

impl Walk {
    fn allows(&mut self, schema: &Value, depth: usize) -> bool {
        let keywords = match (schema, self.rules) {
            (Value::Object(keywords), _) => keywords,
            (other, rules) => return other.is_boolean() && rules == SchemaRules::Object,
        };
        let fits = match self.rules {
            SchemaRules::Object => true,
            SchemaRules::Strict => depth <= MAX_STRICT_DEPTH && is_closed(keywords) && says_something(keywords),
        };
        fits && keywords.iter().all(|(keyword, operand)| self.allows_keyword(keyword, operand, depth))
            && self.properties <= MAX_STRICT_PROPERTIES
    }

    fn allows_keyword(&mut self, keyword: &str, operand: &Value, depth: usize) -> bool {
        let strict = self.rules == SchemaRules::Strict;
        match (keyword, operand) {
            ("type" | "required" | "const" | "title" | "description" | "$comment", _) => true,
            ("minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum" | "multipleOf", Value::Number(_)) => true,
            ("minItems" | "maxItems", _) => true,
            ("enum", Value::Array(choices)) => !strict || choices.len() <= MAX_STRICT_CHOICES,
            ("format", Value::String(format)) => !strict || STRICT_FORMATS.contains(&format.as_str()),
            // OpenAI's engine for patterns has no groups that look around.
            ("pattern", Value::String(pattern)) => !strict || !pattern.contains("(?"),
            ("$ref", Value::String(reference)) => reference.starts_with('#'),
            ("properties", Value::Object(members)) => {
                self.properties += members.len();
                members.values().all(|member| self.allows(member, depth + 1))
            }
            ("$defs" | "definitions", Value::Object(members)) => {
                members.values().all(|member| self.allows(member, depth))
            }
            ("items", schema @ (Value::Object(_) | Value::Bool(_))) => self.allows(schema, depth + 1),
            ("anyOf", Value::Array(schemas)) => schemas.iter().all(|schema| self.allows(schema, depth)),
            ("additionalProperties", Value::Bool(_)) => true,
            (
                "default" | "examples" | "minLength" | "maxLength" | "uniqueItems" | "minProperties" | "maxProperties"
                | "readOnly" | "writeOnly",
                _,
            ) => !strict,
            ("additionalProperties" | "not" | "propertyNames" | "contains", schema) => {
                !strict && self.allows(schema, depth + 1)
            }
            ("oneOf" | "allOf", Value::Array(schemas)) => {
                !strict && schemas.iter().all(|schema| self.allows(schema, depth))
            }
            ("patternProperties", Value::Object(members)) => {
                !strict && members.values().all(|member| self.allows(member, depth + 1))
            }
            _ => false,
        }
    }
}

/// Whether a schema of an object has no optional and no additional properties.
fn is_closed(keywords: &Map<String, Value>) -> bool {
    let is_object = match keywords.get("type") {
        Some(Value::Array(kinds)) => kinds.iter().any(|kind| kind == "object"),
        Some(kind) => kind == "object",
        None => keywords.contains_key("properties"),
    };
    if !is_object {
        return true;
    }
    let required: Vec<&str> =
        keywords.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect();
    let Some(properties) = keywords.get("properties").and_then(Value::as_object) else { return false };
    keywords.get("additionalProperties") == Some(&Value::Bool(false))
        && properties.keys().all(|name| required.contains(&name.as_str()))
        && required.iter().all(|name| properties.contains_key(*name))
}

/// Whether a schema says which values it allows. An array must say so of its elements.
fn says_something(keywords: &Map<String, Value>) -> bool {
    let is_array = match keywords.get("type") {
        Some(Value::Array(kinds)) => kinds.iter().any(|kind| kind == "array"),
        Some(kind) => kind == "array",
        None => false,
    };
    let says = ["type", "enum", "const", "anyOf", "$ref"].iter().any(|keyword| keywords.contains_key(*keyword));
    says && (!is_array || keywords.contains_key("items"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn passes_on_schemas_that_satisfy_the_rules() {
        let closed = |properties: Value| {
            let required: Vec<String> = properties.as_object().unwrap().keys().cloned().collect();
            json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false})
        };
        let mut deep = json!({"type": "string"});
        (0..MAX_STRICT_DEPTH).for_each(|_| deep = closed(json!({"a": deep.clone()})));
        let many: Map<String, Value> =
            (0..=MAX_STRICT_PROPERTIES).map(|n| (format!("p{n}"), json!({"type": "null"}))).collect();
        let recursive = json!({
            "type": "object", "properties": {"next": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}},
            "required": ["next"], "additionalProperties": false, "$defs": {"n": {"type": "integer"}},
        });
        for (schema, object, strict) in [
            (closed(json!({})), true, true),
            (closed(json!({"a": {"type": "string", "description": "d", "title": "A"}})), true, true),
            (closed(json!({"a": {"type": ["string", "null"], "enum": ["x", null]}, "b": {"const": 1}})), true, true),
            (
                closed(
                    json!({"a": {"type": "array", "items": closed(json!({"b": {"type": "number", "minimum": 0}}))}}),
                ),
                true,
                true,
            ),
            (closed(json!({"a": {"type": "string", "format": "date-time", "pattern": "^a+$"}})), true, true),
            (recursive, true, true),
            // An object with optional or additional properties, at any level.
            (json!({"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}), true, false),
            (
                json!({"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": false}),
                true,
                false,
            ),
            (closed(json!({"a": {"type": "object", "properties": {}}})), true, false),
            (closed(json!({"a": {"type": ["object", "null"]}})), true, false),
            (closed(json!({"a": {"properties": {"b": {"type": "string"}}}})), true, false),
            (json!({"type": "object"}), true, false),
            // Keywords and values that the service does not support.
            (closed(json!({"a": {"type": "string", "minLength": 1}})), true, false),
            (closed(json!({"a": {"type": "string", "default": "x"}})), true, false),
            (closed(json!({"a": {"type": "string", "format": "uri"}})), true, false),
            (closed(json!({"a": {"type": "string", "pattern": "(?=a)"}})), true, false),
            (closed(json!({"a": {"oneOf": [{"type": "string"}]}})), true, false),
            (closed(json!({"a": {"allOf": [{"type": "string"}]}})), true, false),
            (closed(json!({"a": {"not": {"type": "string"}}})), true, false),
            (closed(json!({"a": {"type": "array"}})), true, false),
            (closed(json!({"a": {}})), true, false),
            (closed(json!({"a": true})), true, false),
            (closed(json!({"a": {"enum": (0..=MAX_STRICT_CHOICES).collect::<Vec<_>>()}})), true, false),
            (closed(json!({"a": deep})), true, false),
            (closed(Value::Object(many)), false, false),
            // Keywords that a CLI refuses.
            (closed(json!({"a": {"type": "string", "x-note": 1}})), false, false),
            (closed(json!({"a": {"prefixItems": [{"type": "string"}]}})), false, false),
            (closed(json!({"a": {"$ref": "other.json"}})), false, false),
            (json!({"type": "object", "if": {}, "then": {}}), false, false),
            // Values that are no objects.
            (json!({"type": "array", "items": {"type": "string"}}), false, false),
            (json!({"type": ["object", "null"]}), false, false),
            (json!({"type": "object", "anyOf": [{"required": ["a"]}]}), false, false),
            (json!({"$ref": "#/$defs/a", "$defs": {"a": {"type": "object"}}}), false, false),
            (json!({"properties": {}}), false, false),
            (json!({}), false, false),
            (json!(true), false, false),
        ] {
            let text = schema.to_string();
            let passed = SchemaRules::ALL.map(|rules| rules.native(&text, &schema));
            assert_eq!(passed.clone().map(|passed| passed.is_some()), [object, strict], "{text}");
            assert!(passed.into_iter().flatten().all(|passed| passed == text));
        }
    }

    #[test]
    fn keeps_the_words_of_the_client_except_for_the_version() {
        let text = r#"{"type":"object", "properties":{"b":{}, "a":{}}}"#;
        let native = |text: &str| SchemaRules::Object.native(text, &serde_json::from_str(text).unwrap());
        assert_eq!(native(text).as_deref(), Some(text));
        let versioned = text.replacen('{', r#"{"$schema":"https://json-schema.org/draft/2020-12/schema","#, 1);
        assert!(!native(&versioned).unwrap().contains("$schema"));
    }

    #[test]
    fn large_schemas_are_not_passed_on() {
        for (length, passed) in [(MAX_SCHEMA_BYTES / 2, true), (MAX_SCHEMA_BYTES, false)] {
            let schema = json!({"type": "object", "description": "x".repeat(length)});
            assert_eq!(SchemaRules::Object.native(&schema.to_string(), &schema).is_some(), passed);
        }
    }
}

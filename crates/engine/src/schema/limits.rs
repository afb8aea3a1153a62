//! Limits of a schema, checked before it is compiled: size, depth, references and patterns.
//!
//! Only references within the schema are followed, by JSON pointer. Everything else that a reference can be (a URL, a file,
//! an anchor) is refused, so that nothing is fetched and [`super::cost`] finds the same targets as the validator.

use std::collections::HashMap;

use serde_json::{Map, Value};

/// Maximum size of a schema.
const MAX_SCHEMA_BYTES: usize = 1024 * 1024;

/// Maximum depth of a schema.
const MAX_SCHEMA_DEPTH: usize = 64;

/// Maximum number of levels of a schema and of all parts that references name. A compiler may go through all of them at once.
const MAX_LEVELS: usize = 4096;

/// Maximum number of regular expressions.
const MAX_PATTERNS: usize = 256;

/// Keywords whose value maps names to schemas.
const SCHEMA_MAPS: [&str; 6] =
    ["properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies"];

/// Keywords whose value is data, not a schema.
const DATA: [&str; 4] = ["const", "enum", "default", "examples"];

/// Keywords that refer to another schema.
const REFERENCES: [&str; 3] = ["$ref", "$dynamicRef", "$recursiveRef"];

/// Parses a schema and checks its limits.
pub(super) fn read(text: &str) -> Result<Value, String> {
    if text.len() > MAX_SCHEMA_BYTES {
        return Err(format!("the schema is larger than {MAX_SCHEMA_BYTES} bytes"));
    }
    let too_deep = || format!("the schema is nested deeper than {MAX_SCHEMA_DEPTH} levels");
    // The parser has a limit of its own, at twice the depth.
    let schema: Value = serde_json::from_str(text)
        .map_err(|error| if error.to_string().contains("recursion limit") { too_deep() } else { error.to_string() })?;
    if depth_exceeds(&schema, MAX_SCHEMA_DEPTH) {
        return Err(too_deep());
    }
    let Value::Object(members) = &schema else { return Err("the schema is not an object".to_owned()) };
    let draft_4 = members.get("$schema").and_then(Value::as_str).is_some_and(|uri| uri.contains("draft-04"));
    let mut survey = Survey { root: &schema, id: if draft_4 { "id" } else { "$id" }, ..Survey::new(&schema) };
    survey.schema(&schema, &mut Vec::new())?;
    if survey.patterns > MAX_PATTERNS {
        return Err(format!("the schema has more than {MAX_PATTERNS} patterns"));
    }
    let levels = depth(&schema) + survey.targets.values().sum::<usize>();
    if levels > MAX_LEVELS {
        return Err(format!("the schema and the parts that it refers to have more than {MAX_LEVELS} levels"));
    }
    Ok(schema)
}

/// Returns the part of a schema that a reference names.
pub(super) fn resolve<'a>(root: &'a Value, reference: &str) -> Option<&'a Value> {
    let pointer = reference.strip_prefix('#')?;
    if pointer.is_empty() {
        return Some(root);
    }
    root.pointer(&percent_decoded(pointer)?)
}

/// Whether a value is nested deeper than `max` levels. Scalars have one level.
pub(super) fn depth_exceeds(value: &Value, max: usize) -> bool {
    match value {
        _ if max == 0 => true,
        Value::Array(list) => list.iter().any(|element| depth_exceeds(element, max - 1)),
        Value::Object(members) => members.values().any(|member| depth_exceeds(member, max - 1)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

fn depth(value: &Value) -> usize {
    let inner = match value {
        Value::Array(list) => list.iter().map(depth).max(),
        Value::Object(members) => members.values().map(depth).max(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    };
    1 + inner.unwrap_or_default()
}

fn percent_decoded(text: &str) -> Option<String> {
    if !text.contains('%') {
        return Some(text.to_owned());
    }
    let mut parts = text.split('%');
    let mut bytes = parts.next()?.as_bytes().to_vec();
    for part in parts {
        bytes.push(u8::from_str_radix(part.get(..2)?, 16).ok()?);
        bytes.extend_from_slice(&part.as_bytes()[2..]);
    }
    String::from_utf8(bytes).ok()
}

/// A walk through a schema.
struct Survey<'a> {
    root: &'a Value,
    /// Keyword that gives a schema a base address of its own.
    id: &'static str,
    patterns: usize,
    /// Parts that references name, with their depth.
    targets: HashMap<&'a str, usize>,
}

impl<'a> Survey<'a> {
    fn new(root: &'a Value) -> Self {
        Self { root, id: "$id", patterns: 0, targets: HashMap::new() }
    }

    fn schema(&mut self, schema: &'a Value, path: &mut Vec<&'a str>) -> Result<(), String> {
        match schema {
            Value::Object(members) => self.members(members, path),
            Value::Array(list) => list.iter().try_for_each(|element| self.schema(element, path)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Ok(()),
        }
    }

    fn members(&mut self, members: &'a Map<String, Value>, path: &mut Vec<&'a str>) -> Result<(), String> {
        for (name, value) in members {
            if DATA.contains(&name.as_str()) {
                continue;
            }
            path.push(name);
            match value {
                Value::String(reference) if REFERENCES.contains(&name.as_str()) => self.reference(reference, path)?,
                Value::String(_) if name == self.id && path.len() > 1 => {
                    return Err(format!("{}: only the whole schema may have an `{name}`", pointer(path)));
                }
                Value::String(_) if name == "pattern" => self.patterns += 1,
                Value::Object(schemas) if SCHEMA_MAPS.contains(&name.as_str()) => {
                    self.patterns += if name == "patternProperties" { schemas.len() } else { 0 };
                    for (name, schema) in schemas {
                        path.push(name);
                        self.schema(schema, path)?;
                        path.pop();
                    }
                }
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
                Value::Array(_) | Value::Object(_) => self.schema(value, path)?,
            }
            path.pop();
        }
        Ok(())
    }

    fn reference(&mut self, reference: &'a str, path: &[&str]) -> Result<(), String> {
        if !(reference == "#" || reference.starts_with("#/")) {
            let shown: String = reference.chars().take(100).collect();
            return Err(format!(
                "{}: `{shown}` is not within the schema; nothing is fetched, and references are like #/$defs/name",
                pointer(path)
            ));
        }
        let Some(target) = resolve(self.root, reference) else {
            return Err(format!("{}: there is no `{reference}`", pointer(path)));
        };
        self.targets.entry(reference).or_insert_with(|| depth(target));
        Ok(())
    }
}

fn pointer(path: &[&str]) -> String {
    path.iter().map(|name| format!("/{}", name.replace('~', "~0").replace('/', "~1"))).collect()
}

//! Number of steps that a validator takes for a value, computed before it starts.
//!
//! A validator follows every reference each time it meets one, so that a schema of a few lines can take years: with `n`
//! definitions that each refer twice to the next one, it takes `2^n` steps. Here every pair of a schema and a value is
//! counted once.

use std::collections::HashMap;

use serde_json::{Map, Value};

use super::limits::resolve;

/// Maximum number of steps of a check.
const MAX_STEPS: u64 = 1_000_000;

/// Maximum depth of a check.
const MAX_CHECK_DEPTH: usize = 8192;

/// Whether checking a value takes too many steps.
pub(super) fn exceeds(schema: &Value, value: &Value) -> bool {
    let mut count = StepCount { root: schema, known: HashMap::new() };
    count.steps(schema, value, 0) > MAX_STEPS
}

struct StepCount<'a> {
    root: &'a Value,
    /// Steps for a schema and a value, by their addresses. A pair that is being counted has one step: the validator
    /// recognises loops, too.
    known: HashMap<(*const Value, *const Value), u64>,
}

impl<'a> StepCount<'a> {
    fn steps(&mut self, schema: &'a Value, value: &Value, depth: usize) -> u64 {
        let Value::Object(keywords) = schema else { return 1 };
        if depth > MAX_CHECK_DEPTH || self.known.len() as u64 > MAX_STEPS {
            return u64::MAX;
        }
        let pair = (std::ptr::from_ref(schema), std::ptr::from_ref(value));
        if let Some(steps) = self.known.get(&pair) {
            return *steps;
        }
        self.known.insert(pair, 1);
        let steps = self.of_keywords(keywords, value, depth + 1);
        self.known.insert(pair, steps);
        steps
    }

    fn of_keywords(&mut self, keywords: &'a Map<String, Value>, value: &Value, depth: usize) -> u64 {
        let mut total = keywords.len() as u64 + 1;
        for (name, operand) in keywords {
            let steps = match (name.as_str(), operand) {
                ("$ref" | "$dynamicRef" | "$recursiveRef", Value::String(reference)) => {
                    resolve(self.root, reference).map_or(1, |target| self.steps(target, value, depth))
                }
                ("enum", Value::Array(choices)) => choices.len() as u64,
                ("allOf" | "anyOf" | "oneOf", Value::Array(schemas)) => {
                    self.sum(schemas.iter().map(|schema| (schema, value)), depth)
                }
                ("not" | "if" | "then" | "else", schema) => self.steps(schema, value, depth),
                ("dependentSchemas" | "dependencies", Value::Object(schemas)) => {
                    self.sum(schemas.values().map(|schema| (schema, value)), depth)
                }
                ("properties", Value::Object(schemas)) => {
                    let present = schemas.iter().filter_map(|(name, schema)| Some((schema, value.get(name)?)));
                    self.sum(present, depth)
                }
                ("patternProperties", Value::Object(schemas)) => {
                    let of_each = |schema| children(value).map(move |child| (schema, child));
                    self.sum(schemas.values().flat_map(of_each), depth)
                }
                ("prefixItems" | "items", Value::Array(schemas)) => {
                    self.sum(schemas.iter().zip(children(value)), depth)
                }
                (
                    "items"
                    | "additionalItems"
                    | "unevaluatedItems"
                    | "contains"
                    | "additionalProperties"
                    | "unevaluatedProperties"
                    | "propertyNames",
                    schema,
                ) => self.sum(children(value).map(|child| (schema, child)), depth),
                _ => 0,
            };
            total = total.saturating_add(steps);
        }
        // The validator finds out which members the other keywords have evaluated by checking them once more.
        let again = keywords.contains_key("unevaluatedProperties") || keywords.contains_key("unevaluatedItems");
        if again { total.saturating_mul(2) } else { total }
    }

    fn sum<'v>(&mut self, pairs: impl Iterator<Item = (&'a Value, &'v Value)>, depth: usize) -> u64 {
        let mut total: u64 = 0;
        for (schema, value) in pairs {
            total = total.saturating_add(self.steps(schema, value, depth)).saturating_add(1);
        }
        total
    }
}

/// Returns the elements or the values of the members.
fn children(value: &Value) -> Box<dyn Iterator<Item = &Value> + '_> {
    match value {
        Value::Array(list) => Box::new(list.iter()),
        Value::Object(members) => Box::new(members.values()),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Box::new(std::iter::empty()),
    }
}

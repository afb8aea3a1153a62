//! YAML as a tree that remembers where everything stood. It knows nothing of routers.
//!
//! A tree rather than typed values: the order of keys, the line of each of them and the text of a number as written
//! (`3.10`) must all outlive the parsing.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::Number;
use serde_saphyr::{Error, Location, NonFiniteFloatPolicy, Options, Spanned};

use super::mistake::{Mistake, Place};

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Node {
    pub(super) at: Place,
    pub(super) value: Value,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Value {
    Nothing,
    Bool(bool),
    Number { number: Number, written: String },
    Text(String),
    List(Vec<Node>),
    Map(Vec<Entry>),
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Entry {
    pub(super) key: String,
    pub(super) at: Place,
    pub(super) node: Node,
}

/// Reads one document. Every cost is bounded: the input may be anything.
pub(super) fn parse(text: &str) -> Result<Node, Mistake> {
    let written: Written = serde_saphyr::from_str_with_options(text, options()).map_err(|error| {
        let mistake = explain(&error);
        let line = text.lines().nth(mistake.line().saturating_sub(1)).unwrap_or_default();
        // To YAML a brace inside braces opens a map.
        if line.contains('{') && line.contains("${") {
            mistake.hint("a text with `${…}` in braces needs quotes")
        } else {
            mistake
        }
    })?;
    Ok(written.locate(text))
}

/// Far above what a person writes, far below what would be felt. An alias counts as often as it is used.
fn options() -> Options {
    serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_depth: 32,
            flow_nesting_limit: 32,
            max_nodes: 20_000,
            max_events: 60_000,
            max_aliases: 1_000,
            max_anchors: 1_000,
            max_total_scalar_bytes: 2 * 1024 * 1024,
        },
        alias_limits: serde_saphyr::alias_limits! { max_total_replayed_events: 60_000 },
        // YAML 1.2: `no` is a word, not a truth value.
        strict_booleans: true,
        reject_unsupported_tags: true,
        non_finite_float_policy: NonFiniteFloatPolicy::Reject,
        with_snippet: false,
    }
}

/// The parser's error in our words where its own speak of its programming interface.
#[expect(clippy::wildcard_enum_match_arm, reason = "the parser's errors are no closed set")]
fn explain(error: &Error) -> Mistake {
    let at = error.location().map_or((1, 1), place);
    let whole = error.to_string();
    match innermost(error) {
        Error::DuplicateMappingKey { key: Some(key), .. } => {
            Mistake::new(at, format!("the key `{key}` is there twice"))
        }
        Error::DuplicateMappingKey { key: None, .. } => Mistake::new(at, "a key is there twice"),
        Error::MultipleDocuments { .. } => Mistake::new(at, "a second document begins").hint("remove the line `---`"),
        Error::NonFiniteFloat { value, .. } => {
            Mistake::new(at, format!("{value} is not a number we can keep")).hint("put text in quotes")
        }
        Error::Budget { .. }
        | Error::AliasReplayLimitExceeded { .. }
        | Error::AliasExpansionLimitExceeded { .. }
        | Error::AliasReplayStackDepthExceeded { .. } => Mistake::new(at, "too large or too deeply nested"),
        Error::RecursiveReferencesRequireWeakTypes { .. } => Mistake::new(at, "an alias refers to itself"),
        Error::NullIntoString { .. } | Error::Unexpected { expected: "string scalar", .. } => {
            Mistake::new(at, "a key must be text")
        }
        // The place is said already.
        _ => Mistake::new(at, whole.split(" at line ").next().unwrap_or(&whole)),
    }
}

fn innermost(error: &Error) -> &Error {
    let error = error.without_snippet();
    if let Error::AliasError { error, .. } = error { innermost(error) } else { error }
}

fn place(location: Location) -> Place {
    let number = |n: u64| usize::try_from(n).unwrap_or(usize::MAX).max(1);
    (number(location.line()), number(location.column()))
}

impl Node {
    /// What it is, for an error that wanted something else.
    pub(super) fn what(&self) -> &'static str {
        match self.value {
            Value::Nothing => "nothing",
            Value::Bool(_) => "true or false",
            Value::Number { .. } => "a number",
            Value::Text(_) => "text",
            Value::List(_) => "a list",
            Value::Map(_) => "a map",
        }
    }

    /// The entries of a map; none of anything else.
    pub(super) fn entries(&self) -> &[Entry] {
        if let Value::Map(entries) = &self.value { entries } else { &[] }
    }

    pub(super) fn to_json(&self) -> serde_json::Value {
        match &self.value {
            Value::Nothing => serde_json::Value::Null,
            Value::Bool(yes) => (*yes).into(),
            Value::Number { number, .. } => number.clone().into(),
            Value::Text(text) => text.as_str().into(),
            Value::List(items) => items.iter().map(Node::to_json).collect(),
            Value::Map(entries) => entries.iter().map(|entry| (entry.key.clone(), entry.node.to_json())).collect(),
        }
    }
}

/// A node as the parser gives it.
struct Written(Spanned<Raw>);

enum Raw {
    Nothing,
    Bool(bool),
    Number(Number),
    Text(String),
    List(Vec<Written>),
    Map(Vec<(Spanned<String>, Written)>),
}

impl Written {
    fn locate(self, text: &str) -> Node {
        let Spanned { value, referenced, defined } = self.0;
        let value = match value {
            Raw::Nothing => Value::Nothing,
            Raw::Bool(yes) => Value::Bool(yes),
            Raw::Text(text) => Value::Text(text),
            Raw::Number(number) => {
                let written = slice(text, defined).map_or_else(|| number.to_string(), str::to_owned);
                Value::Number { number, written }
            }
            Raw::List(items) => Value::List(items.into_iter().map(|item| item.locate(text)).collect()),
            Raw::Map(entries) => {
                let located = entries.into_iter().map(|(key, written)| {
                    let at = place(key.referenced);
                    Entry { at, key: key.value, node: written.locate(text) }
                });
                Value::Map(located.collect())
            }
        };
        Node { at: place(referenced), value }
    }
}

fn slice(text: &str, location: Location) -> Option<&str> {
    let start = usize::try_from(location.span().byte_offset()?).ok()?;
    let length = usize::try_from(location.span().byte_len()?).ok()?;
    text.get(start..start.checked_add(length)?)
}

impl<'de> Deserialize<'de> for Written {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Spanned::deserialize(deserializer).map(Self)
    }
}

impl<'de> Deserialize<'de> for Raw {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(RawVisitor)
    }
}

struct RawVisitor;

impl<'de> Visitor<'de> for RawVisitor {
    type Value = Raw;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any YAML")
    }

    fn visit_unit<E>(self) -> Result<Raw, E> {
        Ok(Raw::Nothing)
    }

    fn visit_bool<E>(self, yes: bool) -> Result<Raw, E> {
        Ok(Raw::Bool(yes))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Raw, E> {
        Ok(Raw::Number(number.into()))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Raw, E> {
        Ok(Raw::Number(number.into()))
    }

    fn visit_f64<E: serde::de::Error>(self, number: f64) -> Result<Raw, E> {
        Number::from_f64(number).map(Raw::Number).ok_or_else(|| E::custom(format!("{number} is not a number")))
    }

    fn visit_str<E>(self, text: &str) -> Result<Raw, E> {
        Ok(Raw::Text(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<Raw, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = sequence.next_element()? {
            items.push(item);
        }
        Ok(Raw::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Raw, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = map.next_entry()? {
            entries.push(entry);
        }
        Ok(Raw::Map(entries))
    }
}

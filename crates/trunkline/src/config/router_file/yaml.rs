//! YAML as a tree of nodes with their positions. Knows nothing about routers.
//!
//! A tree rather than typed values, because the order of keys, the position of each node and the text of a number as written
//! (`3.10`) must survive parsing.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::Number;
use serde_saphyr::{Error, Location, NonFiniteFloatPolicy, Options, Spanned};

use super::error::{Position, RouterFileError};

#[derive(Debug, Clone, PartialEq)]
pub(super) struct YamlNode {
    pub(super) at: Position,
    pub(super) value: YamlValue,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum YamlValue {
    Nothing,
    Bool(bool),
    Number { number: Number, written: String },
    Text(String),
    List(Vec<YamlNode>),
    Map(Vec<YamlEntry>),
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct YamlEntry {
    pub(super) key: String,
    pub(super) at: Position,
    pub(super) node: YamlNode,
}

/// Parses one document. Depth, size and aliases are bounded, because the input is not trusted.
pub(super) fn parse(text: &str) -> Result<YamlNode, RouterFileError> {
    let written: SpannedYaml = serde_saphyr::from_str_with_options(text, options()).map_err(|error| {
        let error = explain(&error);
        let line = text.lines().nth(error.line().saturating_sub(1)).unwrap_or_default();
        // To YAML a brace inside braces opens a map.
        if line.contains('{') && line.contains("${") {
            error.hint("a text with `${…}` in braces needs quotes")
        } else {
            error
        }
    })?;
    Ok(written.locate(text))
}

/// Limits far above any hand-written file, and low enough that parsing is instant. An alias counts each time it is used.
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
        // YAML 1.2: `no` is text, not a boolean.
        strict_booleans: true,
        reject_unsupported_tags: true,
        non_finite_float_policy: NonFiniteFloatPolicy::Reject,
        with_snippet: false,
    }
}

/// The parser's error, reworded where its message is about its programming interface.
#[expect(clippy::wildcard_enum_match_arm, reason = "the parser's errors are not a closed set")]
fn explain(error: &Error) -> RouterFileError {
    let at = error.location().map_or((1, 1), position);
    let whole = error.to_string();
    match innermost(error) {
        Error::DuplicateMappingKey { key: Some(key), .. } => {
            RouterFileError::new(at, format!("the key `{key}` appears twice"))
        }
        Error::DuplicateMappingKey { key: None, .. } => RouterFileError::new(at, "a key appears twice"),
        Error::MultipleDocuments { .. } => {
            RouterFileError::new(at, "a second document begins").hint("remove the line `---`")
        }
        Error::NonFiniteFloat { value, .. } => {
            RouterFileError::new(at, format!("{value} is not a finite number")).hint("put text in quotes")
        }
        Error::Budget { .. }
        | Error::AliasReplayLimitExceeded { .. }
        | Error::AliasExpansionLimitExceeded { .. }
        | Error::AliasReplayStackDepthExceeded { .. } => RouterFileError::new(at, "too large or too deeply nested"),
        Error::RecursiveReferencesRequireWeakTypes { .. } => RouterFileError::new(at, "an alias refers to itself"),
        Error::NullIntoString { .. } | Error::Unexpected { expected: "string scalar", .. } => {
            RouterFileError::new(at, "a key must be text")
        }
        // The position is reported separately.
        _ => RouterFileError::new(at, whole.split(" at line ").next().unwrap_or(&whole)),
    }
}

fn innermost(error: &Error) -> &Error {
    let error = error.without_snippet();
    if let Error::AliasError { error, .. } = error { innermost(error) } else { error }
}

fn position(location: Location) -> Position {
    let number = |n: u64| usize::try_from(n).unwrap_or(usize::MAX).max(1);
    (number(location.line()), number(location.column()))
}

impl YamlNode {
    /// Kind of the value, for an error message.
    pub(super) fn kind(&self) -> &'static str {
        match self.value {
            YamlValue::Nothing => "nothing",
            YamlValue::Bool(_) => "true or false",
            YamlValue::Number { .. } => "a number",
            YamlValue::Text(_) => "text",
            YamlValue::List(_) => "a list",
            YamlValue::Map(_) => "a map",
        }
    }

    /// The entries of a map; nothing for any other value.
    pub(super) fn entries(&self) -> &[YamlEntry] {
        if let YamlValue::Map(entries) = &self.value { entries } else { &[] }
    }

    pub(super) fn to_json(&self) -> serde_json::Value {
        match &self.value {
            YamlValue::Nothing => serde_json::Value::Null,
            YamlValue::Bool(yes) => (*yes).into(),
            YamlValue::Number { number, .. } => number.clone().into(),
            YamlValue::Text(text) => text.as_str().into(),
            YamlValue::List(items) => items.iter().map(YamlNode::to_json).collect(),
            YamlValue::Map(entries) => entries.iter().map(|entry| (entry.key.clone(), entry.node.to_json())).collect(),
        }
    }
}

/// A node as returned by the parser.
struct SpannedYaml(Spanned<RawYaml>);

enum RawYaml {
    Nothing,
    Bool(bool),
    Number(Number),
    Text(String),
    List(Vec<SpannedYaml>),
    Map(Vec<(Spanned<String>, SpannedYaml)>),
}

impl SpannedYaml {
    fn locate(self, text: &str) -> YamlNode {
        let Spanned { value, referenced, defined } = self.0;
        let value = match value {
            RawYaml::Nothing => YamlValue::Nothing,
            RawYaml::Bool(yes) => YamlValue::Bool(yes),
            RawYaml::Text(text) => YamlValue::Text(text),
            RawYaml::Number(number) => {
                let written = slice(text, defined).map_or_else(|| number.to_string(), str::to_owned);
                YamlValue::Number { number, written }
            }
            RawYaml::List(items) => YamlValue::List(items.into_iter().map(|item| item.locate(text)).collect()),
            RawYaml::Map(entries) => {
                let located = entries.into_iter().map(|(key, written)| {
                    let at = position(key.referenced);
                    YamlEntry { at, key: key.value, node: written.locate(text) }
                });
                YamlValue::Map(located.collect())
            }
        };
        YamlNode { at: position(referenced), value }
    }
}

fn slice(text: &str, location: Location) -> Option<&str> {
    let start = usize::try_from(location.span().byte_offset()?).ok()?;
    let length = usize::try_from(location.span().byte_len()?).ok()?;
    text.get(start..start.checked_add(length)?)
}

impl<'de> Deserialize<'de> for SpannedYaml {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Spanned::deserialize(deserializer).map(Self)
    }
}

impl<'de> Deserialize<'de> for RawYaml {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(RawYamlVisitor)
    }
}

struct RawYamlVisitor;

impl<'de> Visitor<'de> for RawYamlVisitor {
    type Value = RawYaml;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any YAML")
    }

    fn visit_unit<E>(self) -> Result<RawYaml, E> {
        Ok(RawYaml::Nothing)
    }

    fn visit_bool<E>(self, yes: bool) -> Result<RawYaml, E> {
        Ok(RawYaml::Bool(yes))
    }

    fn visit_i64<E>(self, number: i64) -> Result<RawYaml, E> {
        Ok(RawYaml::Number(number.into()))
    }

    fn visit_u64<E>(self, number: u64) -> Result<RawYaml, E> {
        Ok(RawYaml::Number(number.into()))
    }

    fn visit_f64<E: serde::de::Error>(self, number: f64) -> Result<RawYaml, E> {
        Number::from_f64(number).map(RawYaml::Number).ok_or_else(|| E::custom(format!("{number} is not a number")))
    }

    fn visit_str<E>(self, text: &str) -> Result<RawYaml, E> {
        Ok(RawYaml::Text(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<RawYaml, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = sequence.next_element()? {
            items.push(item);
        }
        Ok(RawYaml::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<RawYaml, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = map.next_entry()? {
            entries.push(entry);
        }
        Ok(RawYaml::Map(entries))
    }
}

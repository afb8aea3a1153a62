//! Typed access to the fields of a map in the file. Every error has the key, its owner and its position.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::ops::RangeInclusive;
use std::time::Duration;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use trunkline_core::provider::Overlay;
use trunkline_core::span::TimeSpan;

use super::super::model_options::OptionSource;
use super::super::times::millis_warning;
use super::error::{Position, RouterFileError};
use super::yaml::{YamlEntry, YamlNode, YamlValue};

/// A map whose keys are all known.
pub(super) struct Fields<'n> {
    /// Owner of the fields, for messages: `provider ollama`. Empty for the file itself.
    owner: String,
    at: Position,
    entries: &'n [YamlEntry],
    /// Warnings about values that were read.
    warnings: RefCell<Vec<String>>,
}

impl<'n> Fields<'n> {
    /// Checks that all keys are known. `advice` is a hint on an unknown key, instead of the most similar known one.
    pub(super) fn of(
        node: &'n YamlNode,
        owner: &str,
        known: &[&str],
        advice: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, RouterFileError> {
        let fields =
            Self { owner: owner.to_owned(), at: node.at, entries: entries(node, owner)?, warnings: RefCell::default() };
        match fields.entries.iter().find(|entry| !known.contains(&entry.key.as_str())) {
            None => Ok(fields),
            Some(YamlEntry { key, at, .. }) => {
                let error = fields.error(*at, format!("unknown key `{key}`"));
                Err(match advice(key) {
                    Some(advice) => error.hint(advice),
                    None => error.suggest(key, known.iter().copied()),
                })
            }
        }
    }

    pub(super) fn get(&self, key: &str) -> Option<&'n YamlNode> {
        self.entries.iter().find(|entry| entry.key == key).map(|entry| &entry.node)
    }

    /// Takes the warnings about values that were read so far.
    pub(super) fn warnings(&self) -> Vec<String> {
        self.warnings.take()
    }

    pub(super) fn at(&self) -> Position {
        self.at
    }

    pub(super) fn error(&self, at: Position, message: impl AsRef<str>) -> RouterFileError {
        RouterFileError::new(at, labelled(&self.owner, message.as_ref()))
    }

    /// A message with the owner in front of it.
    pub(super) fn labelled(&self, message: &str) -> String {
        labelled(&self.owner, message)
    }

    pub(super) fn missing(&self, key: &str) -> RouterFileError {
        self.error(self.at, format!("`{key}` is missing"))
    }

    /// Text that may be empty.
    pub(super) fn any_text(&self, key: &str) -> Result<Option<String>, RouterFileError> {
        self.get(key).map(|node| self.text_of(key, node)).transpose()
    }

    pub(super) fn text(&self, key: &str) -> Result<Option<String>, RouterFileError> {
        match (self.any_text(key)?, self.get(key)) {
            (Some(text), Some(node)) if text.trim().is_empty() => Err(self.error(node.at, format!("`{key}` is empty"))),
            (text, _) => Ok(text),
        }
    }

    pub(super) fn bool_or(&self, key: &str, default: bool) -> Result<bool, RouterFileError> {
        match self.get(key) {
            None => Ok(default),
            Some(YamlNode { value: YamlValue::Bool(yes), .. }) => Ok(*yes),
            Some(node) => Err(self.wrong_type(key, node, "true or false")),
        }
    }

    pub(super) fn integer(&self, key: &str, range: RangeInclusive<i64>) -> Result<Option<i64>, RouterFileError> {
        let Some(node) = self.get(key) else { return Ok(None) };
        let YamlValue::Number { number, written } = &node.value else {
            return Err(self.wrong_type(key, node, "a whole number"));
        };
        match number.as_i64() {
            Some(number) if range.contains(&number) => Ok(Some(number)),
            Some(_) => {
                let (min, max) = (range.start(), range.end());
                Err(self.error(node.at, format!("`{key}` is {written}, and must be from {min} to {max}")))
            }
            None => Err(self.error(node.at, format!("`{key}` must be a whole number, not {written}"))),
        }
    }

    pub(super) fn count(&self, key: &str, min: u32, max: u32) -> Result<Option<u32>, RouterFileError> {
        let count = self.integer(key, i64::from(min)..=i64::from(max))?;
        Ok(count.map(|count| u32::try_from(count).unwrap_or(max)))
    }

    pub(super) fn time(&self, key: &str) -> Result<Option<Duration>, RouterFileError> {
        self.get(key).map(|node| self.time_of(key, node)).transpose()
    }

    pub(super) fn time_of(&self, key: &str, node: &YamlNode) -> Result<Duration, RouterFileError> {
        match &node.value {
            YamlValue::Text(_) | YamlValue::Number { .. } => match TimeSpan::deserialize(node.to_json()) {
                Ok(span) => {
                    self.warnings.borrow_mut().extend(millis_warning(&self.owner, key, span));
                    Ok(span.time)
                }
                Err(error) => Err(self.error(node.at, format!("`{key}`: {error}"))),
            },
            YamlValue::Nothing | YamlValue::Bool(_) | YamlValue::List(_) | YamlValue::Map(_) => {
                Err(self.wrong_type(key, node, "a time"))
            }
        }
    }

    /// A list of texts. A key without a value is an empty list.
    pub(super) fn texts(&self, key: &str) -> Result<Vec<String>, RouterFileError> {
        match self.get(key) {
            None | Some(YamlNode { value: YamlValue::Nothing, .. }) => Ok(Vec::new()),
            Some(YamlNode { value: YamlValue::List(items), .. }) => {
                items.iter().map(|item| self.text_of(key, item)).collect()
            }
            Some(node) => Err(self.wrong_type(key, node, "a list")),
        }
    }

    /// Entries of a map in the order of the file. A key without a value is an empty map.
    pub(super) fn map(&self, key: &str) -> Result<&'n [YamlEntry], RouterFileError> {
        match self.get(key) {
            None | Some(YamlNode { value: YamlValue::Nothing, .. }) => Ok(&[]),
            Some(YamlNode { value: YamlValue::Map(entries), .. }) => Ok(entries),
            Some(node) => Err(self.wrong_type(key, node, "a map")),
        }
    }

    pub(super) fn wrong_type(&self, key: &str, node: &YamlNode, wanted: &str) -> RouterFileError {
        if node.value == YamlValue::Nothing {
            return self.error(node.at, format!("`{key}` is empty")).hint("write a value, or remove the key");
        }
        self.error(node.at, format!("`{key}` must be {wanted}, not {}", node.kind()))
    }

    /// Text, or a number or boolean as it was written: `model: 3.10` needs no quotes.
    pub(super) fn text_of(&self, key: &str, node: &YamlNode) -> Result<String, RouterFileError> {
        match &node.value {
            YamlValue::Text(text) if text.contains('\0') => {
                Err(self.error(node.at, format!("`{key}` contains a NUL character")))
            }
            YamlValue::Text(text) => Ok(text.clone()),
            YamlValue::Number { written, .. } => Ok(written.clone()),
            YamlValue::Bool(yes) => Ok(yes.to_string()),
            YamlValue::Map(_) | YamlValue::List(_) => {
                Err(self.wrong_type(key, node, "text").hint("put it in quotes if text is meant"))
            }
            YamlValue::Nothing => Err(self.wrong_type(key, node, "text")),
        }
    }
}

impl OptionSource for Fields<'_> {
    type Error = RouterFileError;

    fn flag(&self, name: &str) -> Result<bool, RouterFileError> {
        self.bool_or(name, false)
    }

    fn text(&self, name: &str) -> Result<Option<String>, RouterFileError> {
        self.any_text(name)
    }

    fn model_id(&self, name: &str) -> Result<Option<String>, RouterFileError> {
        Fields::text(self, name)
    }

    fn texts(&self, name: &str) -> Result<Vec<String>, RouterFileError> {
        Fields::texts(self, name)
    }

    fn count(&self, name: &str) -> Result<Option<u32>, RouterFileError> {
        Fields::count(self, name, 0, u32::MAX)
    }

    fn tokens(&self, name: &str) -> Result<Option<NonZeroU64>, RouterFileError> {
        let tokens = self.integer(name, 1..=i64::MAX)?;
        Ok(tokens.and_then(|tokens| NonZeroU64::new(tokens.unsigned_abs())))
    }

    fn time(&self, name: &str) -> Result<Option<Duration>, RouterFileError> {
        Fields::time(self, name)
    }

    fn variables(&self, name: &str) -> Result<BTreeMap<String, String>, RouterFileError> {
        let mut variables = BTreeMap::new();
        for YamlEntry { key, at, node } in self.map(name)? {
            if key.is_empty() || key.contains(['=', '\0']) {
                return Err(self.error(*at, format!("`{name}`: {key:?} cannot be a variable's name")));
            }
            variables.insert(key.clone(), self.text_of(&format!("{name}.{key}"), node)?);
        }
        Ok(variables)
    }

    fn word<T: DeserializeOwned, const N: usize>(
        &self,
        name: &str,
        words: [&str; N],
    ) -> Result<Option<T>, RouterFileError> {
        match self.get(name) {
            None => Ok(None),
            // A map is a field of the recipe that has the same name.
            Some(YamlNode { value: YamlValue::Map(_), .. }) if Overlay::FIELDS.contains(&name) => Ok(None),
            Some(node @ YamlNode { value: YamlValue::Text(word), .. }) => {
                let unknown = |_| self.error(node.at, format!("unknown {name} {word:?}")).suggest(word, words);
                T::deserialize(node.to_json()).map(Some).map_err(unknown)
            }
            Some(node) => {
                let expected = match words.split_last() {
                    Some((last, [first, more @ ..])) => {
                        let more: String = more.iter().map(|word| format!(", {word}")).collect();
                        format!("{first}{more} or {last}")
                    }
                    Some((last, [])) => (*last).to_owned(),
                    None => String::new(),
                };
                Err(self.wrong_type(name, node, &expected))
            }
        }
    }
}

fn entries<'n>(node: &'n YamlNode, owner: &str) -> Result<&'n [YamlEntry], RouterFileError> {
    match &node.value {
        YamlValue::Nothing => Ok(&[]),
        YamlValue::Map(entries) => Ok(entries),
        YamlValue::Bool(_) | YamlValue::Number { .. } | YamlValue::Text(_) | YamlValue::List(_) => {
            Err(RouterFileError::new(
                node.at,
                labelled(owner, &format!("expected a map of keys and values, not {}", node.kind())),
            ))
        }
    }
}

fn labelled(owner: &str, message: &str) -> String {
    match owner {
        "" => message.to_owned(),
        owner => format!("{owner}: {message}"),
    }
}

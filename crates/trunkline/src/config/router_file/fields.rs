//! The fields of a map in the file, by key and by what they must be. Every refusal names the key, its owner and its place.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::ops::RangeInclusive;
use std::time::Duration;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use trunkline_core::provider::Overlay;
use trunkline_core::span::Span;

use super::super::model_options::OptionSource;
use super::super::times::assumed;
use super::mistake::{Mistake, Place};
use super::yaml::{Entry, Node, Value};

/// A map whose keys are all known.
pub(super) struct Fields<'n> {
    /// Whose fields these are, for messages: `provider ollama`. Empty for the file itself.
    owner: String,
    at: Place,
    entries: &'n [Entry],
    /// Warnings about what was read.
    notes: RefCell<Vec<String>>,
}

impl<'n> Fields<'n> {
    /// `advice` may say more about an unknown key than its nearest neighbour.
    pub(super) fn of(
        node: &'n Node,
        owner: &str,
        known: &[&str],
        advice: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, Mistake> {
        let fields =
            Self { owner: owner.to_owned(), at: node.at, entries: entries(node, owner)?, notes: RefCell::default() };
        match fields.entries.iter().find(|entry| !known.contains(&entry.key.as_str())) {
            None => Ok(fields),
            Some(Entry { key, at, .. }) => {
                let mistake = fields.mistake(*at, format!("unknown key `{key}`"));
                Err(match advice(key) {
                    Some(advice) => mistake.hint(advice),
                    None => mistake.suggest(key, known.iter().copied()),
                })
            }
        }
    }

    pub(super) fn get(&self, key: &str) -> Option<&'n Node> {
        self.entries.iter().find(|entry| entry.key == key).map(|entry| &entry.node)
    }

    /// The warnings about what was read so far.
    pub(super) fn notes(&self) -> Vec<String> {
        self.notes.take()
    }

    pub(super) fn at(&self) -> Place {
        self.at
    }

    pub(super) fn mistake(&self, at: Place, message: impl AsRef<str>) -> Mistake {
        Mistake::new(at, said(&self.owner, message.as_ref()))
    }

    /// A message with its owner.
    pub(super) fn said(&self, message: &str) -> String {
        said(&self.owner, message)
    }

    pub(super) fn missing(&self, key: &str) -> Mistake {
        self.mistake(self.at, format!("`{key}` is missing"))
    }

    /// Any text, an empty one too.
    pub(super) fn any_text(&self, key: &str) -> Result<Option<String>, Mistake> {
        self.get(key).map(|node| self.text_of(key, node)).transpose()
    }

    pub(super) fn text(&self, key: &str) -> Result<Option<String>, Mistake> {
        match (self.any_text(key)?, self.get(key)) {
            (Some(text), Some(node)) if text.trim().is_empty() => {
                Err(self.mistake(node.at, format!("`{key}` is empty")))
            }
            (text, _) => Ok(text),
        }
    }

    pub(super) fn truth(&self, key: &str, default: bool) -> Result<bool, Mistake> {
        match self.get(key) {
            None => Ok(default),
            Some(Node { value: Value::Bool(yes), .. }) => Ok(*yes),
            Some(node) => Err(self.wanted(key, node, "true or false")),
        }
    }

    pub(super) fn integer(&self, key: &str, range: RangeInclusive<i64>) -> Result<Option<i64>, Mistake> {
        let Some(node) = self.get(key) else { return Ok(None) };
        let Value::Number { number, written } = &node.value else {
            return Err(self.wanted(key, node, "a whole number"));
        };
        match number.as_i64() {
            Some(number) if range.contains(&number) => Ok(Some(number)),
            Some(_) => {
                let (least, most) = (range.start(), range.end());
                Err(self.mistake(node.at, format!("`{key}` is {written}, and must be from {least} to {most}")))
            }
            None => Err(self.mistake(node.at, format!("`{key}` must be a whole number, not {written}"))),
        }
    }

    /// A number of things: it fits where a `u32` does.
    pub(super) fn count(&self, key: &str, least: u32, most: u32) -> Result<Option<u32>, Mistake> {
        let count = self.integer(key, i64::from(least)..=i64::from(most))?;
        Ok(count.map(|count| u32::try_from(count).unwrap_or(most)))
    }

    pub(super) fn time(&self, key: &str) -> Result<Option<Duration>, Mistake> {
        self.get(key).map(|node| self.time_of(key, node)).transpose()
    }

    pub(super) fn time_of(&self, key: &str, node: &Node) -> Result<Duration, Mistake> {
        match &node.value {
            Value::Text(_) | Value::Number { .. } => match Span::deserialize(node.to_json()) {
                Ok(span) => {
                    self.notes.borrow_mut().extend(assumed(&self.owner, key, span));
                    Ok(span.time)
                }
                Err(error) => Err(self.mistake(node.at, format!("`{key}`: {error}"))),
            },
            Value::Nothing | Value::Bool(_) | Value::List(_) | Value::Map(_) => Err(self.wanted(key, node, "a time")),
        }
    }

    /// A list of texts; a key with nothing after it is an empty one.
    pub(super) fn texts(&self, key: &str) -> Result<Vec<String>, Mistake> {
        match self.get(key) {
            None | Some(Node { value: Value::Nothing, .. }) => Ok(Vec::new()),
            Some(Node { value: Value::List(items), .. }) => items.iter().map(|item| self.text_of(key, item)).collect(),
            Some(node) => Err(self.wanted(key, node, "a list")),
        }
    }

    /// What a map holds, in the order of the file; a key with nothing after it is an empty one.
    pub(super) fn map(&self, key: &str) -> Result<&'n [Entry], Mistake> {
        match self.get(key) {
            None | Some(Node { value: Value::Nothing, .. }) => Ok(&[]),
            Some(Node { value: Value::Map(entries), .. }) => Ok(entries),
            Some(node) => Err(self.wanted(key, node, "a map")),
        }
    }

    pub(super) fn wanted(&self, key: &str, node: &Node, wanted: &str) -> Mistake {
        if node.value == Value::Nothing {
            return self.mistake(node.at, format!("`{key}` is empty")).hint("write a value, or remove the key");
        }
        self.mistake(node.at, format!("`{key}` must be {wanted}, not {}", node.what()))
    }

    /// Text, or a number or a truth value as it was written: `model: 3.10` needs no quotes.
    pub(super) fn text_of(&self, key: &str, node: &Node) -> Result<String, Mistake> {
        match &node.value {
            Value::Text(text) if text.contains('\0') => {
                Err(self.mistake(node.at, format!("`{key}` holds a NUL character")))
            }
            Value::Text(text) => Ok(text.clone()),
            Value::Number { written, .. } => Ok(written.clone()),
            Value::Bool(yes) => Ok(yes.to_string()),
            Value::Map(_) | Value::List(_) => {
                Err(self.wanted(key, node, "text").hint("put it in quotes if text is meant"))
            }
            Value::Nothing => Err(self.wanted(key, node, "text")),
        }
    }
}

impl OptionSource for Fields<'_> {
    type Error = Mistake;

    fn flag(&self, name: &str) -> Result<bool, Mistake> {
        self.truth(name, false)
    }

    fn text(&self, name: &str) -> Result<Option<String>, Mistake> {
        self.any_text(name)
    }

    fn model_id(&self, name: &str) -> Result<Option<String>, Mistake> {
        Fields::text(self, name)
    }

    fn texts(&self, name: &str) -> Result<Vec<String>, Mistake> {
        Fields::texts(self, name)
    }

    fn count(&self, name: &str) -> Result<Option<u32>, Mistake> {
        Fields::count(self, name, 0, u32::MAX)
    }

    fn tokens(&self, name: &str) -> Result<Option<NonZeroU64>, Mistake> {
        let tokens = self.integer(name, 1..=i64::MAX)?;
        Ok(tokens.and_then(|tokens| NonZeroU64::new(tokens.unsigned_abs())))
    }

    fn time(&self, name: &str) -> Result<Option<Duration>, Mistake> {
        Fields::time(self, name)
    }

    fn variables(&self, name: &str) -> Result<BTreeMap<String, String>, Mistake> {
        let mut variables = BTreeMap::new();
        for Entry { key, at, node } in self.map(name)? {
            if key.is_empty() || key.contains(['=', '\0']) {
                return Err(self.mistake(*at, format!("`{name}`: {key:?} cannot be a variable's name")));
            }
            variables.insert(key.clone(), self.text_of(&format!("{name}.{key}"), node)?);
        }
        Ok(variables)
    }

    fn word<T: DeserializeOwned>(&self, name: &str, words: [&str; 3]) -> Result<Option<T>, Mistake> {
        match self.get(name) {
            None => Ok(None),
            // A map under this name is the recipe's field.
            Some(Node { value: Value::Map(_), .. }) if Overlay::FIELDS.contains(&name) => Ok(None),
            Some(node @ Node { value: Value::Text(word), .. }) => {
                let unknown = |_| self.mistake(node.at, format!("unknown {name} {word:?}")).suggest(word, words);
                T::deserialize(node.to_json()).map(Some).map_err(unknown)
            }
            Some(node) => {
                let [first, second, third] = words;
                Err(self.wanted(name, node, &format!("{first}, {second} or {third}")))
            }
        }
    }
}

fn entries<'n>(node: &'n Node, owner: &str) -> Result<&'n [Entry], Mistake> {
    match &node.value {
        Value::Nothing => Ok(&[]),
        Value::Map(entries) => Ok(entries),
        Value::Bool(_) | Value::Number { .. } | Value::Text(_) | Value::List(_) => {
            Err(Mistake::new(node.at, said(owner, &format!("a map of keys and values is wanted, not {}", node.what()))))
        }
    }
}

fn said(owner: &str, message: &str) -> String {
    match owner {
        "" => message.to_owned(),
        owner => format!("{owner}: {message}"),
    }
}

//! `models.json` before it is interpreted: the members of each model with the text of their values, so that an error in a
//! value has its line and column.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZeroU64;
use std::path::Path;
use std::time::Duration;

use serde::Deserialize;
use serde::de::{DeserializeOwned, Error, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;
use trunkline_core::span::TimeSpan;

use super::super::error::ConfigError;
use super::super::model_options::{self, OptionSource, camel_case};
use super::super::times::millis_warning;
use super::sections::{ALIASES, SERVER};

/// Members of a model that are not among the options shared with `router.yaml`.
const MEMBERS: [&str; 13] = [
    "driver",
    "repo_path",
    "command",
    "args",
    "fallback",
    "normalize",
    "resume",
    "on_disconnect",
    "join_repeats",
    "strict_parameters",
    "policy",
    "mcp_servers",
    "allow_mcp_servers",
];

const REQUIRED: [&str; 2] = ["driver", "repo_path"];

/// Longest name of a model, in bytes.
const MAX_NAME_BYTES: usize = 200;

/// The file: models in order, no name twice, and the sections that are not models.
#[derive(Debug)]
pub(super) struct WrittenModels<'t> {
    pub(super) models: Vec<(String, WrittenModel<'t>)>,
    pub(super) aliases: Option<&'t RawValue>,
    pub(super) server: Option<&'t RawValue>,
}

/// A model's members: all known, none twice, and none that is required missing.
#[derive(Debug)]
pub(super) struct WrittenModel<'t>(Vec<(String, &'t RawValue)>);

/// Typed access to a model's members, with what messages need.
pub(super) struct ModelMembers<'a, 't> {
    pub(super) file: &'a Path,
    /// The whole file.
    pub(super) text: &'t str,
    /// The model's name.
    pub(super) name: &'a str,
    pub(super) written: &'a WrittenModel<'t>,
    /// Warnings about values that were read.
    pub(super) warnings: RefCell<Vec<String>>,
}

impl ModelMembers<'_, '_> {
    /// A member by its name in snake_case, if it was written.
    pub(super) fn value<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>, ConfigError> {
        let key = camel_case(name);
        let Some((_, raw)) = self.written.0.iter().find(|(written, _)| *written == key) else { return Ok(None) };
        let json = raw.get();
        // The raw value is a slice of the text, so its address gives its offset.
        let offset = (json.as_ptr() as usize).saturating_sub(self.text.as_ptr() as usize);
        let wrong = |error| ConfigError::json_within(self.file, self.text, offset, &error);
        serde_json::from_str(json).map(Some).map_err(wrong)
    }

    /// A member that may be `null`, which is the same as not written.
    pub(super) fn nullable<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>, ConfigError> {
        self.value::<Option<T>>(name).map(Option::flatten)
    }

    pub(super) fn or_default<T: DeserializeOwned + Default>(&self, name: &str) -> Result<T, ConfigError> {
        self.value(name).map(Option::unwrap_or_default)
    }
}

impl OptionSource for ModelMembers<'_, '_> {
    type Error = ConfigError;

    fn flag(&self, name: &str) -> Result<bool, ConfigError> {
        self.or_default(name)
    }

    fn text(&self, name: &str) -> Result<Option<String>, ConfigError> {
        self.nullable(name)
    }

    fn model_id(&self, name: &str) -> Result<Option<String>, ConfigError> {
        self.nullable(name)
    }

    fn texts(&self, name: &str) -> Result<Vec<String>, ConfigError> {
        self.or_default(name)
    }

    fn count(&self, name: &str) -> Result<Option<u32>, ConfigError> {
        self.nullable(name)
    }

    fn tokens(&self, name: &str) -> Result<Option<NonZeroU64>, ConfigError> {
        self.nullable(name)
    }

    fn time(&self, name: &str) -> Result<Option<Duration>, ConfigError> {
        let span: Option<TimeSpan> = self.nullable(name)?;
        let owner = format!("model {}", self.name);
        self.warnings.borrow_mut().extend(span.and_then(|span| millis_warning(&owner, &camel_case(name), span)));
        Ok(span.map(|span| span.time))
    }

    fn variables(&self, name: &str) -> Result<BTreeMap<String, String>, ConfigError> {
        self.or_default(name)
    }

    fn word<T: DeserializeOwned, const N: usize>(
        &self,
        name: &str,
        _words: [&str; N],
    ) -> Result<Option<T>, ConfigError> {
        self.nullable(name)
    }
}

impl<'de> Deserialize<'de> for WrittenModels<'de> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(WrittenModelsVisitor)
    }
}

struct WrittenModelsVisitor;

impl<'de> Visitor<'de> for WrittenModelsVisitor {
    type Value = WrittenModels<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of models by name")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut models: Vec<(String, WrittenModel<'de>)> = Vec::new();
        let (mut aliases, mut server) = (None, None);
        while let Some(name) = map.next_key::<String>()? {
            if name == "$schema" {
                map.next_value::<IgnoredAny>()?;
                continue;
            }
            if name.is_empty() || name.len() > MAX_NAME_BYTES || name.chars().any(char::is_control) {
                return Err(A::Error::custom(format!("{name:?} cannot be a model's name")));
            }
            if models.iter().any(|(known, _)| *known == name) {
                return Err(A::Error::custom(format!("model {name:?} appears twice")));
            }
            let section = match name.as_str() {
                ALIASES => &mut aliases,
                SERVER => &mut server,
                _ => {
                    models.push((name, map.next_value()?));
                    continue;
                }
            };
            if section.replace(map.next_value::<&RawValue>()?).is_some() {
                return Err(A::Error::custom(format!("`{name}` appears twice")));
            }
        }
        Ok(WrittenModels { models, aliases, server })
    }
}

impl<'de> Deserialize<'de> for WrittenModel<'de> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(WrittenModelVisitor)
    }
}

struct WrittenModelVisitor;

impl<'de> Visitor<'de> for WrittenModelVisitor {
    type Value = WrittenModel<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a model")
    }

    /// Reports the same errors, in the same words, as a derived implementation.
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let known: Vec<String> = MEMBERS.into_iter().chain(model_options::NAMES).map(camel_case).collect();
        let mut members: Vec<(String, &RawValue)> = Vec::new();
        while let Some(key) = map.next_key::<String>()? {
            if !known.contains(&key) {
                let known = known.join("`, `");
                return Err(A::Error::custom(format!("unknown field `{key}`, expected one of `{known}`")));
            }
            if members.iter().any(|(written, _)| *written == key) {
                return Err(A::Error::custom(format!("duplicate field `{key}`")));
            }
            members.push((key, map.next_value()?));
        }
        let missing = |name: &&str| !members.iter().any(|(key, _)| *key == camel_case(name));
        match REQUIRED.into_iter().find(missing) {
            Some(name) => Err(A::Error::custom(format!("missing field `{}`", camel_case(name)))),
            None => Ok(WrittenModel(members)),
        }
    }
}

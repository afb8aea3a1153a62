//! The members of `models.json` that are not models: `aliases` and `server`.

use std::fmt;
use std::path::Path;

use serde::Deserialize;
use serde::de::{Error, MapAccess, Visitor};
use serde_json::value::RawValue;
use trunkline_server::auth::AllowedOrigin;

use super::super::aliases::WrittenAlias;
use super::super::error::{ConfigError, line_and_column};

/// Names of the sections. No model can have one of these names.
pub(super) const ALIASES: &str = "aliases";
pub(super) const SERVER: &str = "server";

/// Settings of the server.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct ServerSettings {
    /// Origins of web pages that may use the API.
    pub(crate) allow_origins: Vec<AllowedOrigin>,
    pub(crate) side_requests: SideRequestSetting,
}

/// The model that answers requests which clients send on their own.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) enum SideRequestSetting {
    /// The model that the client asks for.
    #[default]
    Same,
    /// This model.
    Model {
        name: String,
        /// Line and column, counted from one.
        position: (usize, usize),
    },
    /// Such requests are not recognised.
    Off,
}

/// A section of the file, with the place it is read from.
pub(super) struct Section<'a, 't> {
    pub(super) file: &'a Path,
    /// The whole file.
    pub(super) text: &'t str,
    pub(super) name: &'static str,
    pub(super) raw: &'t RawValue,
}

impl<'t> Section<'_, 't> {
    pub(super) fn aliases(&self) -> Result<Vec<WrittenAlias>, ConfigError> {
        let entries: AliasEntries<'t> = self.read(self.raw)?;
        let alias = |(pattern, raw): (String, &'t RawValue)| {
            let target = self.read(raw)?;
            WrittenAlias::new(pattern, target, self.position(raw)).map_err(|why| self.wrong(raw, why))
        };
        entries.0.into_iter().map(alias).collect()
    }

    pub(super) fn server(&self) -> Result<ServerSettings, ConfigError> {
        let members: ServerMembers<'t> = self.read(self.raw)?;
        let origin = |raw: &&'t RawValue| {
            let written: String = self.read(raw)?;
            AllowedOrigin::parse(&written).map_err(|invalid| self.wrong(raw, format!("server.allowOrigins: {invalid}")))
        };
        let side_requests = match members.side_requests {
            None => SideRequestSetting::Same,
            Some(raw) => match self.read(raw)? {
                WrittenSideRequests::Switch(true) => SideRequestSetting::Same,
                WrittenSideRequests::Switch(false) => SideRequestSetting::Off,
                WrittenSideRequests::Model(name) => SideRequestSetting::Model { name, position: self.position(raw) },
            },
        };
        let allow_origins = members.allow_origins.iter().map(origin).collect::<Result<_, _>>()?;
        Ok(ServerSettings { allow_origins, side_requests })
    }

    fn read<T: Deserialize<'t>>(&self, raw: &'t RawValue) -> Result<T, ConfigError> {
        serde_json::from_str(raw.get()).map_err(|error| {
            let error = ConfigError::json_within(self.file, self.text, self.offset(raw), &error);
            match self.raw.get().contains("\"driver\"") {
                true => error.hint(format!("`{}` is a section of this file: a model needs another name", self.name)),
                false => error,
            }
        })
    }

    fn wrong(&self, raw: &RawValue, message: String) -> ConfigError {
        ConfigError::new(self.file, message).position(self.position(raw))
    }

    fn position(&self, raw: &RawValue) -> (usize, usize) {
        line_and_column(self.text, self.offset(raw))
    }

    /// Offset of a value: a raw value is a slice of the text.
    fn offset(&self, raw: &RawValue) -> usize {
        (raw.get().as_ptr() as usize).saturating_sub(self.text.as_ptr() as usize)
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct ServerMembers<'t> {
    #[serde(borrow, default)]
    allow_origins: Vec<&'t RawValue>,
    #[serde(borrow)]
    side_requests: Option<&'t RawValue>,
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "server.sideRequests is the name of a model, or false")]
enum WrittenSideRequests {
    Switch(bool),
    Model(String),
}

/// Patterns and targets in the order of the file, no pattern twice.
struct AliasEntries<'t>(Vec<(String, &'t RawValue)>);

impl<'de> Deserialize<'de> for AliasEntries<'de> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(AliasEntriesVisitor)
    }
}

struct AliasEntriesVisitor;

impl<'de> Visitor<'de> for AliasEntriesVisitor {
    type Value = AliasEntries<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of aliases and the models they lead to")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut entries: Vec<(String, &RawValue)> = Vec::new();
        while let Some(pattern) = map.next_key::<String>()? {
            if entries.iter().any(|(known, _)| *known == pattern) {
                return Err(A::Error::custom(format!("alias {pattern:?} appears twice")));
            }
            entries.push((pattern, map.next_value()?));
        }
        Ok(AliasEntries(entries))
    }
}

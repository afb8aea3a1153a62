//! Models of a provider, with display names.

use serde::Deserialize;
use serde::de::Deserializer;

/// Model of a provider.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OfferedModel {
    /// Id that the provider uses.
    pub id: String,
    /// Display name.
    pub name: Option<String>,
}

/// Model in a file: an id, or a table with an id and a name.
#[derive(Deserialize)]
#[serde(untagged, expecting = "each is a model's id, or a table with `id` and `name`")]
enum ModelEntry {
    Id(String),
    NamedModel(NamedModel),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NamedModel {
    #[serde(alias = "modelId", alias = "model_id")]
    id: String,
    name: Option<String>,
}

impl<'de> Deserialize<'de> for OfferedModel {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let (id, name) = match ModelEntry::deserialize(deserializer)? {
            ModelEntry::Id(id) => (id, None),
            ModelEntry::NamedModel(NamedModel { id, name }) => (id, name),
        };
        if id.trim().is_empty() || id.chars().any(char::is_control) {
            return Err(serde::de::Error::custom(format!("{id:?} cannot be a model's id")));
        }
        Ok(Self { id, name: name.filter(|name| !name.trim().is_empty()) })
    }
}

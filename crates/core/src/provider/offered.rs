//! The models that a provider says it has, with the names people know them by.

use serde::Deserialize;
use serde::de::Deserializer;

/// One model of a provider's own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OfferedModel {
    /// The provider's name for it.
    pub id: String,
    /// The name for people.
    pub name: Option<String>,
}

/// As it is written: its id alone, or with a name.
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

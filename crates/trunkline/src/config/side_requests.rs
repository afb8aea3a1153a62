//! Requests that clients send on their own: the user's rules of `clients.toml`, and the model that answers.

use trunkline_core::side_request::{self, ClientsError};
use trunkline_engine::Models;
use trunkline_engine::router::SideRequests;

use super::discover::{CLIENTS_FILE, ConfigFolder, MODELS_FILE, read_file};
use super::error::ConfigError;
use super::models_file::SideRequestSetting;

/// Adds the rules and the model of side requests to models that are otherwise complete.
pub(super) fn add(models: Models, folder: &ConfigFolder, setting: &SideRequestSetting) -> Result<Models, ConfigError> {
    let rules = match folder.file(CLIENTS_FILE) {
        Some(path) => {
            let text = read_file(&path)?;
            side_request::parse(&text).map_err(|error| match error {
                ClientsError::Toml(error) => ConfigError::toml(&path, &text, &error),
                ClientsError::TooWide(_) => ConfigError::new(&path, error.to_string()),
            })?
        }
        None => Vec::new(),
    };
    let (side_requests, position) = match setting {
        SideRequestSetting::Off => (SideRequests::off(), None),
        SideRequestSetting::Same => (SideRequests::new(rules, None), None),
        SideRequestSetting::Model { name, position } => (SideRequests::new(rules, Some(name.clone())), Some(*position)),
    };
    models.with_side_requests(side_requests).map_err(|name| {
        let error = ConfigError::new(
            &folder.file(MODELS_FILE).unwrap_or_default(),
            format!("server.sideRequests: {name:?} is not a model"),
        );
        match position {
            Some(position) => error.position(position),
            None => error,
        }
    })
}

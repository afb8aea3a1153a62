//! Errors in a `router.yaml`, with their position. The name of the file is added at the end, by `in_file`.

use std::path::Path;

use trunkline_core::near::near;

use super::super::error::ConfigError;

/// A line and a column, counted from one.
pub(super) type Position = (usize, usize);

#[derive(Debug)]
pub(super) struct RouterFileError {
    at: Position,
    message: String,
    hint: Option<String>,
}

impl RouterFileError {
    pub(super) fn new(at: Position, message: impl Into<String>) -> Self {
        Self { at, message: message.into(), hint: None }
    }

    pub(super) fn line(&self) -> usize {
        self.at.0
    }

    pub(super) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Adds a hint with the known names that are similar to `unknown`, or with all of them.
    pub(super) fn suggest<'a>(self, unknown: &str, known: impl IntoIterator<Item = &'a str>) -> Self {
        let known: Vec<&str> = known.into_iter().collect();
        let near = near(unknown, known.iter().copied());
        match near.is_empty() {
            false => self.hint(format!("did you mean `{}`?", near.join("` or `"))),
            true => self.hint(format!("known: {}", known.join(", "))),
        }
    }

    pub(super) fn in_file(self, path: &Path) -> ConfigError {
        let error = ConfigError::new(path, self.message).position(self.at);
        match self.hint {
            Some(hint) => error.hint(hint),
            None => error,
        }
    }
}

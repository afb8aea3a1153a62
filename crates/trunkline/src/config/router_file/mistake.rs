//! What is wrong in a file, and where in it. The file's own name is added by whoever knows it.

use std::path::Path;

use trunkline_core::near::near;

use super::super::ConfigError;

/// A line and a column, counted from one.
pub(super) type Place = (usize, usize);

#[derive(Debug)]
pub(super) struct Mistake {
    at: Place,
    message: String,
    hint: Option<String>,
}

impl Mistake {
    pub(super) fn new(at: Place, message: impl Into<String>) -> Self {
        Self { at, message: message.into(), hint: None }
    }

    pub(super) fn line(&self) -> usize {
        self.at.0
    }

    pub(super) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Names what is close to `unknown`, or all there is.
    pub(super) fn suggest<'a>(self, unknown: &str, known: impl IntoIterator<Item = &'a str>) -> Self {
        let known: Vec<&str> = known.into_iter().collect();
        let near = near(unknown, known.iter().copied());
        match near.is_empty() {
            false => self.hint(format!("did you mean `{}`?", near.join("` or `"))),
            true => self.hint(format!("known: {}", known.join(", "))),
        }
    }

    pub(super) fn in_file(self, path: &Path) -> ConfigError {
        let error = ConfigError::new(path, self.message).place(self.at);
        match self.hint {
            Some(hint) => error.hint(hint),
            None => error,
        }
    }
}

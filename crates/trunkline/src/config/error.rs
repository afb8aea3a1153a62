//! What is wrong with a configuration, where, and what was probably meant.

use std::fmt;
use std::path::{Path, PathBuf};

use trunkline_core::near::did_you_mean;

#[derive(Debug)]
pub(crate) struct ConfigError {
    file: Option<PathBuf>,
    place: Option<(usize, usize)>,
    message: String,
    hint: Option<String>,
}

impl ConfigError {
    pub(crate) fn new(file: &Path, message: impl Into<String>) -> Self {
        Self { file: Some(file.to_owned()), place: None, message: message.into(), hint: None }
    }

    /// An error of the environment or the command line, not of a file.
    pub(crate) fn elsewhere(message: impl Into<String>) -> Self {
        Self { file: None, place: None, message: message.into(), hint: None }
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Points at the line of `text` where `needle` first stands.
    pub(crate) fn at(mut self, text: &str, needle: &str) -> Self {
        self.place = text.find(needle).map(|offset| line_and_column(text, offset));
        self
    }

    /// Points at a line and a column, counted from one.
    pub(crate) fn place(mut self, place: (usize, usize)) -> Self {
        self.place = Some(place);
        self
    }

    pub(crate) fn json(file: &Path, error: &serde_json::Error) -> Self {
        let whole = error.to_string();
        let message = whole.split(" at line ").next().unwrap_or(&whole).to_owned();
        let place = (error.line() > 0).then(|| (error.line(), error.column()));
        Self { file: Some(file.to_owned()), place, hint: did_you_mean(&message), message }
    }

    /// An error of a JSON value that begins at `offset` of the file's text.
    pub(crate) fn json_within(file: &Path, text: &str, offset: usize, error: &serde_json::Error) -> Self {
        let (line, column) = line_and_column(text, offset);
        let within = (error.line().max(1), error.column().max(1));
        let place = match within {
            (1, within) => (line, column + within - 1),
            (lines, within) => (line + lines - 1, within),
        };
        Self::json(file, error).place(place)
    }

    pub(crate) fn toml(file: &Path, text: &str, error: &toml::de::Error) -> Self {
        let message = error.message().to_owned();
        let place = error.span().map(|span| line_and_column(text, span.start));
        Self { file: Some(file.to_owned()), place, hint: did_you_mean(&message), message }
    }
}

fn line_and_column(text: &str, offset: usize) -> (usize, usize) {
    let before = &text[..offset.min(text.len())];
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    (line, column)
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(file) = &self.file {
            write!(f, "{}", file.display())?;
            if let Some((line, column)) = self.place {
                write!(f, ":{line}:{column}")?;
            }
            write!(f, ": ")?;
        }
        write!(f, "{}", self.message)?;
        if let Some(hint) = &self.hint {
            write!(f, " ({hint})")?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigError {}

//! Configuration errors with file, line, column and a hint.

use std::fmt;
use std::path::{Path, PathBuf};

use trunkline_core::near::did_you_mean;

/// An error in the configuration: in a file, in the environment or on the command line. Exits with status 3.
#[derive(Debug)]
pub(crate) struct ConfigError {
    file: Option<PathBuf>,
    /// Line and column, counted from one.
    position: Option<(usize, usize)>,
    message: String,
    hint: Option<String>,
}

impl ConfigError {
    pub(crate) fn new(file: &Path, message: impl Into<String>) -> Self {
        Self { file: Some(file.to_owned()), position: None, message: message.into(), hint: None }
    }

    /// An error in the environment or on the command line, not in a file.
    pub(crate) fn elsewhere(message: impl Into<String>) -> Self {
        Self { file: None, position: None, message: message.into(), hint: None }
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Sets the position to the first occurrence of `needle` in `text`.
    pub(crate) fn at(mut self, text: &str, needle: &str) -> Self {
        self.position = text.find(needle).map(|offset| line_and_column(text, offset));
        self
    }

    /// Sets the line and the column, counted from one.
    pub(crate) fn position(mut self, position: (usize, usize)) -> Self {
        self.position = Some(position);
        self
    }

    pub(crate) fn json(file: &Path, error: &serde_json::Error) -> Self {
        let whole = error.to_string();
        let message = whole.split(" at line ").next().unwrap_or(&whole).to_owned();
        let position = (error.line() > 0).then(|| (error.line(), error.column()));
        Self { file: Some(file.to_owned()), position, hint: did_you_mean(&message), message }
    }

    /// An error in a JSON value that begins at `offset` of the file's text.
    pub(crate) fn json_within(file: &Path, text: &str, offset: usize, error: &serde_json::Error) -> Self {
        let (line, column) = line_and_column(text, offset);
        let within = (error.line().max(1), error.column().max(1));
        let position = match within {
            (1, within) => (line, column + within - 1),
            (lines, within) => (line + lines - 1, within),
        };
        Self::json(file, error).position(position)
    }

    pub(crate) fn toml(file: &Path, text: &str, error: &toml::de::Error) -> Self {
        let message = error.message().to_owned();
        let position = error.span().map(|span| line_and_column(text, span.start));
        Self { file: Some(file.to_owned()), position, hint: did_you_mean(&message), message }
    }
}

/// Line and column of an offset, counted from one.
pub(super) fn line_and_column(text: &str, offset: usize) -> (usize, usize) {
    let before = &text[..offset.min(text.len())];
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    (line, column)
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(file) = &self.file {
            write!(f, "{}", file.display())?;
            if let Some((line, column)) = self.position {
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

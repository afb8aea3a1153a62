//! Escapes prompts, so that a CLI does not read parts of them as commands.

use std::borrow::Cow;

use serde::Deserialize;

/// Changes to a prompt that make a CLI take all of it as text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PromptEscape {
    /// Puts a line break before a prompt that begins with `/`, which would be run as a command.
    #[serde(default)]
    pub slash: bool,
    /// Puts a backslash before each `@`: `@name` would be replaced by the content of that file.
    #[serde(default)]
    pub at: bool,
}

impl PromptEscape {
    /// Returns the escaped prompt.
    #[must_use]
    pub fn text(self, prompt: &str) -> Cow<'_, str> {
        let mut text = if self.at { Cow::Owned(escape_at(prompt)) } else { Cow::Borrowed(prompt) };
        if self.slash && text.starts_with('/') {
            text.to_mut().insert(0, '\n');
        }
        text
    }
}

/// Puts a backslash before each `@` that does not follow one.
fn escape_at(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len() + 8);
    let mut previous = ' ';
    for c in text.chars() {
        if c == '@' && previous != '\\' {
            escaped.push('\\');
        }
        escaped.push(c);
        previous = c;
    }
    escaped
}

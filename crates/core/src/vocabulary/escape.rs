//! Keeping a prompt from becoming a command of the CLI.

use serde::Deserialize;

/// What must be done to a prompt so that this CLI takes it as text and nothing else.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PromptEscape {
    /// A prompt that begins with `/` would be run as a command: a line break goes before it.
    #[serde(default)]
    pub slash: bool,
    /// `@name` would be replaced by that file's content: a backslash goes before it.
    #[serde(default)]
    pub at: bool,
}

impl PromptEscape {
    /// The prompt as a CLI takes it for text.
    #[must_use]
    pub fn text(self, prompt: &str) -> String {
        let mut text = if self.at { escape_at(prompt) } else { prompt.to_owned() };
        if self.slash && text.starts_with('/') {
            text.insert(0, '\n');
        }
        text
    }
}

/// Puts a backslash before each `@` that has none.
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

//! The bot's token. It is only sent to Discord and never shown.

use std::fmt;

#[derive(Clone)]
pub struct Token(String);

impl Token {
    /// Accepts a pasted token with or without the prefix `Bot`.
    #[must_use]
    pub fn new(text: &str) -> Self {
        let text = text.trim();
        Self(text.strip_prefix("Bot ").unwrap_or(text).trim().to_owned())
    }

    /// Value of the authorization header.
    pub(crate) fn header(&self) -> String {
        format!("Bot {}", self.0)
    }

    /// Replaces the token in `text`.
    pub(crate) fn mask(&self, text: &str) -> String {
        if self.0.is_empty() { text.to_owned() } else { text.replace(&self.0, "***") }
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(***)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_is_masked_in_debug_output_and_texts() {
        let token = Token::new(" Bot abc.def.ghi\n");
        assert_eq!(token.header(), "Bot abc.def.ghi");
        assert_eq!(format!("{token:?}"), "Token(***)");
        assert_eq!(token.mask("bad abc.def.ghi"), "bad ***");
    }
}

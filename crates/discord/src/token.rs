//! The bot's token: given to Discord, shown to nobody.

use std::fmt;

#[derive(Clone)]
pub struct Token(String);

impl Token {
    /// As people paste it, with or without the word `Bot`.
    #[must_use]
    pub fn new(text: &str) -> Self {
        let text = text.trim();
        Self(text.strip_prefix("Bot ").unwrap_or(text).trim().to_owned())
    }

    /// As Discord wants it in a header.
    pub(crate) fn header(&self) -> String {
        format!("Bot {}", self.0)
    }

    /// `text`, should it contain the token, without it.
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
    fn it_is_not_shown() {
        let token = Token::new(" Bot abc.def.ghi\n");
        assert_eq!(token.header(), "Bot abc.def.ghi");
        assert_eq!(format!("{token:?}"), "Token(***)");
        assert_eq!(token.mask("bad abc.def.ghi"), "bad ***");
    }
}

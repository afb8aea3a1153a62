//! Masks secrets in logs and messages: known values, and words that look like API keys.

use std::collections::VecDeque;
use std::sync::{Arc, PoisonError, RwLock};

/// Secret values of this process. They must not appear in a log, in an error, or in the environment of a child that does
/// not need them. Clones share the same set.
#[derive(Clone, Default)]
pub struct Secrets {
    values: Arc<RwLock<Vec<String>>>,
    /// Values of requests, oldest first.
    of_requests: Arc<RwLock<VecDeque<String>>>,
}

const MASK: &str = "***";

/// Values shorter than this are not masked, because that would mangle ordinary text.
const MIN_SECRET_BYTES: usize = 8;

/// Number of secrets of requests that are kept. Each takes time in every text that is masked.
const MAX_REQUEST_SECRETS: usize = 64;

/// Prefixes that mark a word as an API key.
const KEY_PREFIXES: [&str; 9] = ["sk-", "sk_", "xai-", "AIza", "ghp_", "github_pat_", "glpat-", "xoxb-", "ya29."];

impl Secrets {
    /// Creates a set of secrets. Values shorter than eight bytes are left out.
    #[must_use]
    pub fn new(values: impl IntoIterator<Item = String>) -> Self {
        let secrets = Self::default();
        secrets.learn(values);
        secrets
    }

    /// Adds secrets, for example those of a reloaded configuration. No secret is ever removed.
    pub fn learn(&self, more: impl IntoIterator<Item = String>) {
        let mut values = self.values.write().unwrap_or_else(PoisonError::into_inner);
        values.extend(more.into_iter().filter(|value| value.len() >= MIN_SECRET_BYTES));
        values.sort_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
        values.dedup();
    }

    /// Adds secrets that came with a request. Only the latest are kept: clients may bring any number.
    pub fn learn_of_request(&self, more: impl IntoIterator<Item = String>) {
        let mut values = self.of_requests.write().unwrap_or_else(PoisonError::into_inner);
        for value in more.into_iter().filter(|value| value.len() >= MIN_SECRET_BYTES) {
            values.retain(|known| *known != value);
            if values.len() == MAX_REQUEST_SECRETS {
                values.pop_front();
            }
            values.push_back(value);
        }
    }

    /// Calls `each` for every value, the longest of the configuration first.
    fn for_each(&self, mut each: impl FnMut(&str)) {
        self.values.read().unwrap_or_else(PoisonError::into_inner).iter().for_each(|value| each(value));
        self.of_requests.read().unwrap_or_else(PoisonError::into_inner).iter().for_each(|value| each(value));
    }

    /// Whether [`mask`](Self::mask) might change the text.
    #[must_use]
    pub fn may_be_in(&self, text: &str) -> bool {
        let mut found = KEY_PREFIXES.iter().any(|prefix| text.contains(prefix));
        self.for_each(|value| found = found || text.contains(value));
        found
    }

    /// Returns `text` with `***` in place of every known secret and of everything that looks like a key.
    #[must_use]
    pub fn mask(&self, text: &str) -> String {
        let mut masked = text.to_owned();
        self.for_each(|value| {
            if masked.contains(value) {
                masked = masked.replace(value, MASK);
            }
        });
        // Most texts contain no prefix, and searching for each is faster than splitting the text into words.
        if KEY_PREFIXES.iter().any(|prefix| masked.contains(prefix)) { mask_keys(&masked) } else { masked }
    }

    /// Whether a secret may begin at the end of `text` and continue in the text that follows.
    #[must_use]
    pub fn may_continue(&self, text: &str) -> bool {
        start_of_key(text) < text.len() || self.start_of_value(text) < text.len()
    }

    /// Takes the beginning of a text that is still growing, masked, and leaves the part that may be the beginning of a
    /// secret.
    #[must_use]
    pub fn mask_beginning(&self, growing: &mut String) -> String {
        let key = growing.split_off(start_of_key(growing));
        let mut masked = self.mask(growing);
        *growing = masked.split_off(self.start_of_value(&masked)) + &key;
        masked
    }

    /// Returns the index from which the end of `text` is the beginning of a known value, but not all of it.
    fn start_of_value(&self, text: &str) -> usize {
        let longest = |value: &str| {
            let begins = |length: &usize| text.as_bytes().ends_with(&value.as_bytes()[..*length]);
            (1..value.len().min(text.len() + 1)).rev().find(begins)
        };
        let mut held = 0;
        self.for_each(|value| held = held.max(longest(value).unwrap_or(0)));
        text.floor_char_boundary(text.len() - held)
    }
}

impl std::fmt::Debug for Secrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Secrets({})", self.values.read().unwrap_or_else(PoisonError::into_inner).len())
    }
}

/// Whether a character may be part of a key.
fn key_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.')
}

/// Returns the index from which the end of `text` is a word that may become a key.
fn start_of_key(text: &str) -> usize {
    let start = text.trim_end_matches(key_char).len();
    let word = &text[start..];
    let begins = |prefix: &str| !word.is_empty() && (word.starts_with(prefix) || prefix.starts_with(word));
    if KEY_PREFIXES.iter().any(|prefix| begins(prefix)) { start } else { text.len() }
}

/// Masks words that begin with the prefix of a key and continue for at least nine bytes.
fn mask_keys(text: &str) -> String {
    let mut masked = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let word_len = rest.find(|c| !key_char(c)).unwrap_or(rest.len());
        if word_len == 0 {
            masked.push(c);
            rest = &rest[c.len_utf8()..];
            continue;
        }
        let (word, after) = rest.split_at(word_len);
        match KEY_PREFIXES.iter().find(|prefix| word.starts_with(**prefix)) {
            Some(prefix) if word.len() >= prefix.len() + 9 => {
                masked.push_str(prefix);
                masked.push_str(MASK);
            }
            Some(_) | None => masked.push_str(word),
        }
        rest = after;
    }
    masked
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_known_values_and_words_that_look_like_keys() {
        let secrets = Secrets::new(["hunter2-hunter2".to_owned(), "abc".to_owned()]);
        for (text, masked) in [
            ("key hunter2-hunter2 end", "key *** end"),
            ("abc stays", "abc stays"),
            ("Incorrect API key: sk-proj-0123456789abcdef.", "Incorrect API key: sk-***"),
            ("header: Bearer ghp_0123456789abcdefABCDEF", "header: Bearer ghp_***"),
            ("sk-mock is too short to be one", "sk-mock is too short to be one"),
            ("日本 sk-日本", "日本 sk-日本"),
        ] {
            assert_eq!(secrets.mask(text), masked);
        }
    }

    #[test]
    fn masks_a_text_that_grows_by_any_pieces() {
        let secrets = Secrets::new(["hunter2-hunter2".to_owned(), "geheim-é-wort".to_owned()]);
        let text = "hunter2 hunter2-hunter2, sk-proj-0123456789abcdef geheim-é-wort geheim-é, the task and ghp_0";
        let masked = secrets.mask(text);
        for size in 1..20 {
            let (mut growing, mut seen) = (String::new(), String::new());
            for piece in text.chars().collect::<Vec<_>>().chunks(size) {
                growing.extend(piece);
                seen += &secrets.mask_beginning(&mut growing);
            }
            assert_eq!(seen + &secrets.mask(&growing), masked, "pieces of {size}");
        }
        assert!(secrets.may_continue("my key: h") && !secrets.may_continue("my key: "));
    }

    #[test]
    fn secrets_of_requests_are_masked_and_the_oldest_are_forgotten() {
        let secrets = Secrets::default();
        secrets.learn_of_request(["hunter2-hunter2".to_owned(), "short".to_owned()]);
        assert_eq!(secrets.mask("a short hunter2-hunter2"), "a short ***");
        assert!(secrets.may_be_in("x hunter2-hunter2") && secrets.may_continue("x hunter2-"));
        secrets.learn_of_request((0..MAX_REQUEST_SECRETS).map(|number| format!("another-{number:03}")));
        assert_eq!(secrets.mask("hunter2-hunter2 another-063"), "hunter2-hunter2 ***");
    }

    #[test]
    fn debug_shows_only_the_number_of_secrets() {
        assert_eq!(format!("{:?}", Secrets::new(["a-long-secret-value".to_owned()])), "Secrets(1)");
    }
}

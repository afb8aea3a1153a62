//! Keeping secrets out of what we print: known values, and what looks like a key.

use std::sync::{Arc, PoisonError, RwLock};

/// The secrets of this process: values that must not appear in a log, an error or a child that does not need them.
/// Clones share what they know.
#[derive(Clone, Default)]
pub struct Secrets {
    values: Arc<RwLock<Vec<String>>>,
}

const MASK: &str = "***";

/// Beginnings that mark a word as a key, whoever issued it.
const KEY_PREFIXES: [&str; 9] = ["sk-", "sk_", "xai-", "AIza", "ghp_", "github_pat_", "glpat-", "xoxb-", "ya29."];

impl Secrets {
    /// Values shorter than eight characters are left out: masking them would mangle ordinary text.
    #[must_use]
    pub fn new(values: impl IntoIterator<Item = String>) -> Self {
        let secrets = Self::default();
        secrets.learn(values);
        secrets
    }

    /// More of them: a configuration may bring new ones. None is ever forgotten.
    pub fn learn(&self, more: impl IntoIterator<Item = String>) {
        let mut values = self.values.write().unwrap_or_else(PoisonError::into_inner);
        values.extend(more.into_iter().filter(|value| value.len() >= 8));
        values.sort_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
        values.dedup();
    }

    /// `text` with every known secret and everything that looks like a key replaced by `***`.
    #[must_use]
    pub fn mask(&self, text: &str) -> String {
        let mut masked = text.to_owned();
        for value in &*self.values.read().unwrap_or_else(PoisonError::into_inner) {
            if masked.contains(value.as_str()) {
                masked = masked.replace(value.as_str(), MASK);
            }
        }
        // Mostly there is none, and a look for each of them is faster than a look at every word.
        if KEY_PREFIXES.iter().any(|prefix| masked.contains(prefix)) { mask_keys(&masked) } else { masked }
    }
}

impl std::fmt::Debug for Secrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Secrets({})", self.values.read().unwrap_or_else(PoisonError::into_inner).len())
    }
}

/// Masks words of twelve characters and more that begin like a key.
fn mask_keys(text: &str) -> String {
    let key_char = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
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
    fn known_values_and_key_shapes_are_masked() {
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
    fn debug_shows_no_value() {
        assert_eq!(format!("{:?}", Secrets::new(["a-long-secret-value".to_owned()])), "Secrets(1)");
    }
}

//! API keys and their limits.

use std::fs;
use std::path::Path;

use anyhow::{Result, bail};
use trunkline_engine::{Caps, KeyCaps};
use trunkline_server::auth::Keys;

use super::args::rate;
use crate::config::{ConfigError, Environment};

/// Accepted API keys: those of the environment, and those of a file. Limits of individual keys are added to `caps`.
pub(super) fn read(environment: &Environment, file: Option<&Path>, caps: &mut Caps) -> Result<Keys> {
    let given = environment.variable("TRUNKLINE_API_KEYS").unwrap_or_default();
    let mut keys = Keys::new(given.split(',').map(str::trim).filter(|key| !key.is_empty()));
    if let Some(path) = file {
        let text = fs::read_to_string(path).map_err(|error| ConfigError::new(path, error.to_string()))?;
        for (number, line) in text.lines().enumerate() {
            let mut words = line.split('#').next().unwrap_or_default().split_whitespace();
            let Some(digest) = words.next() else { continue };
            let wrong = |what: String| ConfigError::new(path, format!("line {}: {what}", number + 1));
            let Ok(owner) = keys.add_digest(digest) else {
                bail!(wrong("not a BLAKE3 digest in hexadecimal".to_owned()));
            };
            let own = key_caps(words, caps.key).map_err(wrong)?;
            caps.keys.insert(owner, own);
        }
    }
    Ok(keys)
}

/// Limits after a digest: `runs=2 queue=10 rpm=60`.
fn key_caps<'a>(words: impl Iterator<Item = &'a str>, usual: KeyCaps) -> Result<KeyCaps, String> {
    let mut caps = usual;
    for word in words {
        let (name, value) = word.split_once('=').unwrap_or((word, ""));
        let number = || value.parse::<usize>().map_err(|_| format!("{word:?}: write a number, as in {name}=10"));
        match name {
            "runs" => caps.runs = number()?.max(1),
            "queue" => caps.queue = number()?,
            "rpm" => caps.per_minute = Some(rate(value)?),
            _ => return Err(format!("unknown limit {word:?}: runs, queue and rpm are known")),
        }
    }
    Ok(caps)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_limits_of_a_key() {
        let usual = KeyCaps { runs: 8, queue: 128, per_minute: None };
        let read = |text: &str| key_caps(text.split_whitespace(), usual);
        assert_eq!(read(""), Ok(usual));
        assert_eq!(read("rpm=60 runs=2"), Ok(KeyCaps { runs: 2, per_minute: Some(60), ..usual }));
        assert_eq!(read("queue=0"), Ok(KeyCaps { queue: 0, ..usual }));
        for wrong in ["rpm=0", "runs=many", "runs", "rps=1", "alice"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}

//! What sessions have cost so far, for CLIs that count tokens for the whole session.
//!
//! A journal: each turn appends a line, which costs next to nothing, and a start reads them all and keeps the last of
//! each session.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use serde::{Deserialize, Serialize};
use trunkline_core::event::{SessionId, Usage};

/// How many sessions are kept; the oldest go first.
const MANY: usize = 10_000;

pub(crate) struct Totals {
    path: PathBuf,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    known: HashMap<SessionId, Usage>,
    journal: Option<File>,
}

#[derive(Serialize, Deserialize)]
struct Line {
    session: SessionId,
    total: Usage,
}

impl Totals {
    /// Reads what an earlier gateway counted.
    pub(crate) fn load(path: PathBuf) -> Self {
        let lines: Vec<Line> = fs::read_to_string(&path)
            .unwrap_or_default()
            .lines()
            .filter_map(|line| serde_json::from_str(line).ok())
            .collect();
        let recent = &lines[lines.len().saturating_sub(MANY)..];
        if recent.len() < lines.len()
            && let Err(error) = rewrite(&path, recent)
        {
            tracing::warn!(path = %path.display(), %error, "old token counts stay");
        }
        let known = recent.iter().map(|line| (line.session.clone(), line.total)).collect();
        Self { path, inner: Mutex::new(Inner { known, journal: None }) }
    }

    /// Takes a session's new total and returns the one before.
    pub(crate) fn replace(&self, session: &SessionId, total: Usage) -> Option<Usage> {
        let mut inner = self.inner.lock().expect("no panic while holding the lock");
        // A gateway that has seen this many since its start forgets those it does not hear of again.
        if inner.known.len() >= 8 * MANY {
            inner.known.clear();
        }
        if let Err(error) = inner.append(&self.path, &Line { session: session.clone(), total }) {
            tracing::warn!(path = %self.path.display(), %error, "a token count is lost with this gateway");
        }
        inner.known.insert(session.clone(), total)
    }
}

impl Inner {
    fn append(&mut self, path: &Path, line: &Line) -> io::Result<()> {
        let journal = match &mut self.journal {
            Some(journal) => journal,
            None => {
                if let Some(folder) = path.parent() {
                    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
                }
                let opened = OpenOptions::new().create(true).append(true).mode(0o600).open(path)?;
                self.journal.insert(opened)
            }
        };
        journal.write_all(&bytes_of(line))
    }
}

fn rewrite(path: &Path, lines: &[Line]) -> io::Result<()> {
    let beside = path.with_extension("new");
    fs::write(&beside, lines.iter().flat_map(bytes_of).collect::<Vec<u8>>())?;
    fs::rename(beside, path)
}

fn bytes_of(line: &Line) -> Vec<u8> {
    let mut bytes = serde_json::to_vec(line).expect("a line is plain data");
    bytes.push(b'\n');
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_of_each_session_survives_a_restart_and_old_ones_go() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state/totals.jsonl");
        let total = |input_tokens| Usage { input_tokens, ..Usage::default() };
        let id = |n: usize| SessionId(format!("s{n}"));
        let totals = Totals::load(path.clone());
        assert_eq!(totals.replace(&id(1), total(10)), None);
        assert_eq!(totals.replace(&id(1), total(20)), Some(total(10)));
        fs::write(&path, [fs::read(&path).unwrap(), b"{broken\n".to_vec()].concat()).unwrap();
        assert_eq!(Totals::load(path.clone()).replace(&id(1), total(30)), Some(total(20)));

        let many: Vec<Line> = (0..MANY + 5).map(|n| Line { session: id(n), total: total(1) }).collect();
        rewrite(&path, &many).unwrap();
        let totals = Totals::load(path.clone());
        assert_eq!(fs::read_to_string(&path).unwrap().lines().count(), MANY);
        assert_eq!(totals.replace(&id(MANY + 4), total(2)), Some(total(1)));
    }
}

//! What sessions have cost so far, for CLIs that count tokens for the whole session.
//!
//! A journal: each turn appends a line, which costs next to nothing, and a start reads them all and keeps the last of
//! each session. Another process may rewrite it meanwhile, to forget what is old: a lock on the file keeps them apart.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use trunkline_core::event::{SessionId, Usage};

/// How many sessions are kept; the oldest go first.
const MANY: usize = 10_000;

pub(crate) struct Totals {
    path: PathBuf,
    inner: Mutex<TotalsJournal>,
}

#[derive(Default)]
struct TotalsJournal {
    known: HashMap<Key, Usage>,
    journal: Option<File>,
    /// The last one was not written, and that was said.
    failing: bool,
}

/// A session's name, without a piece of memory of its own: there are thousands, for as long as the gateway lives.
type Key = [u8; 16];

#[derive(Serialize, Deserialize)]
struct Line {
    session: SessionId,
    total: Usage,
    /// When, in seconds since 1970.
    #[serde(default)]
    at: u64,
}

impl Totals {
    /// Reads what an earlier gateway counted.
    pub(crate) fn load(path: PathBuf) -> Self {
        let lines = read(&path);
        let recent = &lines[lines.len().saturating_sub(MANY)..];
        if recent.len() < lines.len()
            && let Err(error) = rewrite(&path, |at, _| at + MANY >= lines.len())
        {
            tracing::warn!(path = %path.display(), %error, "old token counts stay");
        }
        let known = recent.iter().map(|line| (key(&line.session), line.total)).collect();
        Self { path, inner: Mutex::new(TotalsJournal { known, ..TotalsJournal::default() }) }
    }

    /// Takes a session's new total and returns the one before.
    pub(crate) fn replace(&self, session: &SessionId, total: Usage) -> Option<Usage> {
        let mut inner = self.inner.lock().expect("no panic while holding the lock");
        // A gateway that has seen this many since its start forgets those it does not hear of again.
        if inner.known.len() >= 8 * MANY {
            inner.known.clear();
        }
        match inner.append(&self.path, &Line { session: session.clone(), total, at: now() }) {
            Ok(()) => inner.failing = false,
            Err(error) => {
                // Once, or the log would fill the disk as well.
                if !std::mem::replace(&mut inner.failing, true) {
                    tracing::warn!(path = %self.path.display(), %error, "token counts are lost with this gateway");
                }
            }
        }
        inner.known.insert(key(session), total)
    }
}

/// Forgets what was counted longer ago than that.
pub(crate) fn forget(path: &Path, age: Duration) -> io::Result<()> {
    let oldest = now().saturating_sub(age.as_secs());
    if read(path).iter().all(|line| line.at > oldest) {
        return Ok(());
    }
    rewrite(path, |_, line| line.at > oldest)
}

impl TotalsJournal {
    fn append(&mut self, path: &Path, line: &Line) -> io::Result<()> {
        loop {
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
            journal.lock()?;
            // Rewritten by somebody: what is added to the old one is lost.
            if !fs::metadata(path).is_ok_and(|now| journal.metadata().is_ok_and(|ours| ours.ino() == now.ino())) {
                self.journal = None;
                continue;
            }
            let written = journal.write_all(&bytes_of(line));
            journal.unlock()?;
            return written;
        }
    }
}

fn read(path: &Path) -> Vec<Line> {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

/// Keeps the lines that are to stay, by their number and what they say.
fn rewrite(path: &Path, stays: impl Fn(usize, &Line) -> bool) -> io::Result<()> {
    let locked = OpenOptions::new().append(true).open(path)?;
    locked.lock()?;
    let kept = read(path).into_iter().enumerate().filter(|(at, line)| stays(*at, line));
    let beside = path.with_extension("new");
    let mut file = OpenOptions::new().create(true).write(true).truncate(true).mode(0o600).open(&beside)?;
    file.write_all(&kept.flat_map(|(_, line)| bytes_of(&line)).collect::<Vec<u8>>())?;
    fs::rename(beside, path)
}

fn key(session: &SessionId) -> Key {
    let mut key = Key::default();
    blake3::Hasher::new().update(session.0.as_bytes()).finalize_xof().fill(&mut key);
    key
}

fn now() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs())
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

        let many = (0..MANY + 5).map(|n| Line { session: id(n), total: total(1), at: 0 });
        fs::write(&path, many.flat_map(|line| bytes_of(&line)).collect::<Vec<u8>>()).unwrap();
        let totals = Totals::load(path.clone());
        assert_eq!(fs::read_to_string(&path).unwrap().lines().count(), MANY);
        assert_eq!(totals.replace(&id(MANY + 4), total(2)), Some(total(1)));
    }

    #[test]
    fn what_is_old_is_forgotten_under_the_eyes_of_a_gateway() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("totals.jsonl");
        let total = |input_tokens| Usage { input_tokens, ..Usage::default() };
        let (old, new) = (SessionId("old".into()), SessionId("new".into()));
        fs::write(&path, bytes_of(&Line { session: old.clone(), total: total(1), at: 1 })).unwrap();
        let totals = Totals::load(path.clone());
        totals.replace(&new, total(2));
        forget(&path, Duration::from_secs(3600)).unwrap();
        assert_eq!(totals.replace(&new, total(3)), Some(total(2)));
        let after = Totals::load(path.clone());
        assert_eq!((after.replace(&old, total(9)), after.replace(&new, total(9))), (None, Some(total(3))));
        forget(&folder.path().join("none"), Duration::ZERO).unwrap();
    }
}

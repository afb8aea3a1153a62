//! Token totals of sessions, for CLIs that count tokens for the whole session.
//!
//! The totals are a journal: each turn appends a line, and the start of a process reads all lines and keeps the last one
//! of each session. Another process may replace the file to delete old lines. A turn takes no lock against that:
//!
//! - A turn whose file has no name any more after the write writes its line to the new file as well.
//! - A rewrite copies the lines that were added to the old file meanwhile, after the new file has its name.
//!
//! A line may thus be in the file twice, but none is lost.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use trunkline_core::event::{SessionId, Usage};

/// Journal lines kept at start; the oldest are dropped first.
const MAX_LINES: usize = 10_000;

pub(crate) struct SessionTotals {
    path: PathBuf,
    inner: Mutex<TotalsJournal>,
}

#[derive(Default)]
struct TotalsJournal {
    known: HashMap<TotalsKey, Usage>,
    journal: Option<File>,
    /// Whether the last line could not be written. The failure is in the log.
    failing: bool,
}

/// Hash of a session id. It needs no allocation: a gateway holds thousands for its whole life.
type TotalsKey = [u8; 16];

/// One line of the journal.
#[derive(Serialize, Deserialize)]
struct TotalsLine {
    session: SessionId,
    total: Usage,
    /// Time of the turn, in seconds since 1970.
    #[serde(default)]
    at: u64,
}

impl SessionTotals {
    /// Reads the totals of earlier processes.
    pub(crate) fn load(path: PathBuf) -> Self {
        let lines = read(&path);
        let recent = &lines[lines.len().saturating_sub(MAX_LINES)..];
        if recent.len() < lines.len()
            && let Err(error) = rewrite(&path, |at, _| at + MAX_LINES >= lines.len())
        {
            tracing::warn!(path = %path.display(), %error, "cannot delete old token totals");
        }
        let known = recent.iter().map(|line| (key(&line.session), line.total)).collect();
        Self { path, inner: Mutex::new(TotalsJournal { known, ..TotalsJournal::default() }) }
    }

    /// Records a session's new total and returns the previous one.
    pub(crate) fn replace(&self, session: &SessionId, total: Usage) -> Option<Usage> {
        let mut inner = self.inner.lock().expect("no panic while holding the lock");
        // Bounds the memory of a long-lived gateway. Sessions that continue lose one previous total.
        if inner.known.len() >= 8 * MAX_LINES {
            inner.known.clear();
        }
        let line = bytes_of(&TotalsLine { session: session.clone(), total, at: now() });
        match append(&self.path, &mut inner.journal, &line) {
            Ok(()) => inner.failing = false,
            Err(error) => {
                // Logged once: the cause may be a full disk, which the log must not fill further.
                if !std::mem::replace(&mut inner.failing, true) {
                    tracing::warn!(path = %self.path.display(), %error, "cannot save token totals: they are lost when this process ends");
                }
            }
        }
        inner.known.insert(key(session), total)
    }
}

/// Deletes totals that are older than `age`.
pub(crate) fn forget(path: &Path, age: Duration) -> io::Result<()> {
    let oldest = now().saturating_sub(age.as_secs());
    if read(path).iter().all(|line| line.at > oldest) {
        return Ok(());
    }
    rewrite(path, |_, line| line.at > oldest)
}

/// Appends to the journal, which `file` is as long as it has a name.
fn append(path: &Path, file: &mut Option<File>, bytes: &[u8]) -> io::Result<()> {
    loop {
        let journal = match file {
            Some(journal) => journal,
            None => {
                if let Some(folder) = path.parent() {
                    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
                }
                file.insert(OpenOptions::new().create(true).append(true).mode(0o600).open(path)?)
            }
        };
        journal.write_all(bytes)?;
        if journal.metadata()?.nlink() > 0 {
            return Ok(());
        }
        *file = None;
    }
}

fn read(path: &Path) -> Vec<TotalsLine> {
    lines(&fs::read_to_string(path).unwrap_or_default())
}

fn lines(text: &str) -> Vec<TotalsLine> {
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

/// Rewrites the journal with the lines for which `keep` returns true. It gets the index and the line.
fn rewrite(path: &Path, keep: impl Fn(usize, &TotalsLine) -> bool) -> io::Result<()> {
    let mut old = loop {
        let old = OpenOptions::new().read(true).append(true).open(path)?;
        // Another rewrite may have replaced the file meanwhile.
        old.lock()?;
        if old.metadata()?.nlink() > 0 {
            break old;
        }
    };
    let mut text = Vec::new();
    old.read_to_end(&mut text)?;
    // A line that is just being written is among those that are added.
    let mut added = text.split_off(text.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1));
    let kept = lines(&String::from_utf8_lossy(&text)).into_iter().enumerate().filter(|(at, line)| keep(*at, line));
    let new = path.with_extension("new");
    let mut file = OpenOptions::new().create(true).write(true).truncate(true).mode(0o600).open(&new)?;
    file.write_all(&kept.flat_map(|(_, line)| bytes_of(&line)).collect::<Vec<u8>>())?;
    fs::rename(new, path)?;
    old.read_to_end(&mut added)?;
    if added.is_empty() { Ok(()) } else { append(path, &mut None, &added) }
}

fn key(session: &SessionId) -> TotalsKey {
    let mut key = TotalsKey::default();
    blake3::Hasher::new().update(session.0.as_bytes()).finalize_xof().fill(&mut key);
    key
}

fn now() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

fn bytes_of(line: &TotalsLine) -> Vec<u8> {
    let mut bytes = serde_json::to_vec(line).expect("a line always serializes");
    bytes.push(b'\n');
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn restart_keeps_last_total_of_each_session_and_drops_oldest_lines() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state/totals.jsonl");
        let total = |input_tokens| Usage { input_tokens, ..Usage::default() };
        let id = |n: usize| SessionId(format!("s{n}").into());
        let totals = SessionTotals::load(path.clone());
        assert_eq!(totals.replace(&id(1), total(10)), None);
        assert_eq!(totals.replace(&id(1), total(20)), Some(total(10)));
        fs::write(&path, [fs::read(&path).unwrap(), b"{broken\n".to_vec()].concat()).unwrap();
        assert_eq!(SessionTotals::load(path.clone()).replace(&id(1), total(30)), Some(total(20)));

        let many = (0..MAX_LINES + 5).map(|n| TotalsLine { session: id(n), total: total(1), at: 0 });
        fs::write(&path, many.flat_map(|line| bytes_of(&line)).collect::<Vec<u8>>()).unwrap();
        let totals = SessionTotals::load(path.clone());
        assert_eq!(fs::read_to_string(&path).unwrap().lines().count(), MAX_LINES);
        assert_eq!(totals.replace(&id(MAX_LINES + 4), total(2)), Some(total(1)));
    }

    #[test]
    fn old_totals_are_deleted_while_a_gateway_appends() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("totals.jsonl");
        let total = |input_tokens| Usage { input_tokens, ..Usage::default() };
        let (old, new) = (SessionId("old".into()), SessionId("new".into()));
        fs::write(&path, bytes_of(&TotalsLine { session: old.clone(), total: total(1), at: 1 })).unwrap();
        let totals = SessionTotals::load(path.clone());
        totals.replace(&new, total(2));
        forget(&path, Duration::from_secs(3600)).unwrap();
        assert_eq!(totals.replace(&new, total(3)), Some(total(2)));
        let after = SessionTotals::load(path.clone());
        assert_eq!((after.replace(&old, total(9)), after.replace(&new, total(9))), (None, Some(total(3))));
        forget(&folder.path().join("none"), Duration::ZERO).unwrap();
    }

    #[test]
    fn no_total_is_lost_when_the_journal_is_rewritten_all_the_time() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("totals.jsonl");
        let totals = SessionTotals::load(path.clone());
        let id = |n: u64| SessionId(n.to_string().into());
        let total = |input_tokens| Usage { input_tokens, ..Usage::default() };
        totals.replace(&id(0), total(0));
        std::thread::scope(|scope| {
            let turns = scope.spawn(|| (1..2000).for_each(|n| _ = totals.replace(&id(n), total(n))));
            while !turns.is_finished() {
                rewrite(&path, |_, _| true).unwrap();
            }
        });
        let after = SessionTotals::load(path);
        for n in 0..2000 {
            assert_eq!(after.replace(&id(n), total(n)), Some(total(n)), "{n}");
        }
    }
}

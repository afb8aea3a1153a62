//! Which worktrees are ours and who made them: a small file each, so that a later gateway can clean up after a dead one.

use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use trunkline_core::failure::{Category, Failure};

use super::Worktree;

pub(super) struct Ledger {
    folder: PathBuf,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Entry {
    run: String,
    path: PathBuf,
    repo: PathBuf,
    common: PathBuf,
    base: String,
    /// The gateway that made it: a process id alone may be another's by now.
    pid: u32,
    started: u64,
}

impl Entry {
    pub(super) fn of(worktree: &Worktree) -> Self {
        let pid = std::process::id();
        Self {
            run: worktree.run.clone(),
            path: worktree.path.clone(),
            repo: worktree.repo.clone(),
            common: worktree.common.clone(),
            base: worktree.base.clone(),
            pid,
            started: start_time(pid).unwrap_or(0),
        }
    }

    pub(super) fn worktree(self) -> Worktree {
        let cwd = self.path.clone();
        Worktree { path: self.path, cwd, run: self.run, repo: self.repo, common: self.common, base: self.base }
    }
}

impl Ledger {
    pub(super) fn new(folder: PathBuf) -> Self {
        Self { folder }
    }

    pub(super) fn write(&self, entry: &Entry) -> Result<(), Failure> {
        let path = self.file(&entry.run);
        let written = fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&self.folder)
            .and_then(|()| fs::write(&path, serde_json::to_vec(entry).expect("an entry is plain data")));
        written
            .map_err(|error| Failure::new(Category::Configuration, format!("cannot write {}: {error}", path.display())))
    }

    pub(super) fn forget(&self, run: &str) {
        let _already_gone = fs::remove_file(self.file(run));
    }

    /// The entries whose gateway is no more.
    pub(super) fn abandoned(&self) -> Vec<Entry> {
        let files = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        files
            .filter_map(|file| serde_json::from_slice::<Entry>(&fs::read(file.path()).ok()?).ok())
            .filter(|entry| start_time(entry.pid) != Some(entry.started))
            .collect()
    }

    fn file(&self, run: &str) -> PathBuf {
        self.folder.join(format!("{run}.json"))
    }
}

/// When a process started, in the kernel's ticks; `None` if there is no such process.
fn start_time(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("stat")).ok()?;
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_whitespace().nth(19)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_dead_gateways_entries_are_abandoned() {
        let folder = tempfile::tempdir().unwrap();
        let ledger = Ledger::new(folder.path().join("worktrees"));
        let worktree = |run: &str| Worktree {
            path: "/tmp/x".into(),
            cwd: "/tmp/x".into(),
            run: run.into(),
            repo: "/repo".into(),
            common: "/repo/.git".into(),
            base: "0".into(),
        };
        ledger.write(&Entry::of(&worktree("alive"))).unwrap();
        ledger.write(&Entry { started: 1, ..Entry::of(&worktree("reused pid")) }).unwrap();
        ledger.write(&Entry { pid: u32::MAX, ..Entry::of(&worktree("dead")) }).unwrap();
        fs::write(folder.path().join("worktrees/broken.json"), "{").unwrap();
        let mut runs: Vec<String> = ledger.abandoned().into_iter().map(|entry| entry.run).collect();
        runs.sort();
        assert_eq!(runs, ["dead", "reused pid"]);
    }
}

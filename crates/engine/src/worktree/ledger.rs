//! Which worktrees are ours and who made them: a small file each, so that a later gateway can clean up after a dead one.

use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use trunkline_core::event::SessionId;
use trunkline_core::failure::{Category, Failure};

use super::Worktree;
use crate::owner::Owner;

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
    #[serde(default, skip_serializing_if = "Option::is_none")]
    session: Option<SessionId>,
    /// Its files were filled in: what differs from `base` is somebody's work.
    #[serde(default = "yes")]
    pub(super) ready: bool,
    #[serde(flatten)]
    owner: Owner,
}

/// An entry that does not say so is an older gateway's, which wrote it down in time or not: nothing is thrown away.
const fn yes() -> bool {
    true
}

impl Entry {
    pub(super) fn of(worktree: &Worktree, ready: bool) -> Self {
        Self {
            ready,
            run: worktree.run.clone(),
            path: worktree.path.clone(),
            repo: worktree.repo.clone(),
            common: worktree.common.clone(),
            base: worktree.base.clone(),
            session: worktree.session.clone(),
            owner: Owner::this_process(),
        }
    }

    pub(super) fn worktree(self) -> Worktree {
        let Self { run, path, repo, common, base, session, .. } = self;
        Worktree { cwd: path.clone(), path, run, repo, common, base, session }
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

    /// The entries whose gateway is no more, unless their folder has a new run by now.
    pub(super) fn abandoned(&self) -> Vec<Entry> {
        let files = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let entries = files.filter_map(|file| serde_json::from_slice::<Entry>(&fs::read(file.path()).ok()?).ok());
        let (living, dead): (Vec<Entry>, Vec<Entry>) = entries.partition(|entry| entry.owner.lives());
        dead.into_iter().filter(|dead| living.iter().all(|living| living.path != dead.path)).collect()
    }

    fn file(&self, run: &str) -> PathBuf {
        self.folder.join(format!("{run}.json"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_dead_gateways_entries_are_abandoned() {
        let folder = tempfile::tempdir().unwrap();
        let ledger = Ledger::new(folder.path().join("worktrees"));
        let worktree = |run: &str, path: &str| Worktree {
            path: path.into(),
            cwd: path.into(),
            run: run.into(),
            repo: "/repo".into(),
            common: "/repo/.git".into(),
            base: "0".into(),
            session: None,
        };
        ledger.write(&Entry::of(&worktree("alive", "/tmp/x"), true)).unwrap();
        let owner = Owner { pid: u32::MAX, started: 1 };
        ledger.write(&Entry { owner, ..Entry::of(&worktree("dead", "/tmp/y"), true) }).unwrap();
        ledger.write(&Entry { owner, ..Entry::of(&worktree("followed", "/tmp/x"), true) }).unwrap();
        fs::write(folder.path().join("worktrees/broken.json"), "{").unwrap();
        let mut runs: Vec<String> = ledger.abandoned().into_iter().map(|entry| entry.run).collect();
        runs.sort();
        assert_eq!(runs, ["dead"]);
    }
}

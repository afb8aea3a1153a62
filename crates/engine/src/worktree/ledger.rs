//! Ledger of worktrees: one small file for each, so that a later gateway can clean up after a dead one.
//!
//! The ledger also keeps a copy of each worktree's index from before its run.

use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use trunkline_core::event::SessionId;
use trunkline_core::failure::{Category, Failure};

use super::folder::Worktree;
use crate::runs::gateway_process::GatewayProcess;

/// Number of failed saves after which a worktree is left to its user.
const MAX_FAILED_SAVES: u32 = 5;

/// Records of all worktrees on this state folder.
pub(super) struct WorktreeLedger {
    folder: PathBuf,
}

/// Record of one worktree.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct WorktreeRecord {
    run: String,
    path: PathBuf,
    repo: PathBuf,
    common: PathBuf,
    /// Missing in old records: then the registration has the folder's name.
    registration: Option<PathBuf>,
    base: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    session: Option<SessionId>,
    /// A record without a state counts as in use, so that no work is lost.
    #[serde(default, rename = "standing")]
    state: WorktreeState,
    /// Number of failed saves.
    #[serde(default)]
    failed_saves: u32,
    #[serde(flatten)]
    owner: GatewayProcess,
}

/// Content of a worktree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum WorktreeState {
    /// Files may be missing.
    #[serde(rename = "unmade")]
    Incomplete,
    /// Differences from the base are work of a run.
    #[default]
    InUse,
    /// All work is on its branch.
    Saved,
    /// All files are present, and no run has used it.
    Spare,
}

impl WorktreeRecord {
    pub(super) fn of(worktree: &Worktree, state: WorktreeState) -> Self {
        Self {
            state,
            run: worktree.run.clone(),
            path: worktree.path.clone(),
            repo: worktree.repo.clone(),
            common: worktree.common.clone(),
            registration: Some(worktree.registration.clone()),
            base: worktree.base.clone(),
            session: worktree.session.clone(),
            failed_saves: 0,
            owner: GatewayProcess::this_process(),
        }
    }

    pub(super) const fn state(&self) -> WorktreeState {
        self.state
    }

    pub(super) fn worktree(self) -> Worktree {
        let Self { run, path, repo, common, registration, base, session, .. } = self;
        let registration = registration.unwrap_or_else(|| Worktree::default_registration(&common, &path));
        Worktree { cwd: path.clone(), path, run, repo, common, registration, base, session }
    }
}

impl WorktreeLedger {
    pub(super) fn new(folder: PathBuf) -> Self {
        Self { folder }
    }

    /// Writes a record atomically: a gateway that is killed meanwhile must not leave a worktree without a record.
    pub(super) fn write(&self, record: &WorktreeRecord) -> Result<(), Failure> {
        let path = self.file(&record.run);
        let new = path.with_extension("new");
        let written = fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&self.folder)
            .and_then(|()| fs::write(&new, serde_json::to_vec(record).expect("a record is plain data")))
            .and_then(|()| fs::rename(&new, &path));
        written
            .map_err(|error| Failure::new(Category::Configuration, format!("cannot write {}: {error}", path.display())))
    }

    pub(super) fn forget(&self, run: &str) {
        // Another process may have removed it already.
        let _ = fs::remove_file(self.file(run));
    }

    /// Records that the work in a worktree could not be saved. A later gateway tries again when this one is gone.
    pub(super) fn note_failed_save(&self, worktree: &Worktree) {
        let before = fs::read(self.file(&worktree.run))
            .ok()
            .and_then(|text| serde_json::from_slice::<WorktreeRecord>(&text).ok());
        let failed_saves = before.map_or(0, |record| record.failed_saves) + 1;
        // Without this record, the save is only tried more often.
        let _ = self.write(&WorktreeRecord { failed_saves, ..WorktreeRecord::of(worktree, WorktreeState::InUse) });
    }

    /// Returns the other runs whose unsaved work is in the same folder.
    pub(super) fn earlier_runs(&self, worktree: &Worktree) -> Vec<String> {
        let same = |record: &WorktreeRecord| record.path == worktree.path && record.run != worktree.run;
        self.records().filter(same).map(|record| record.run).collect()
    }

    /// Keeps a copy of the index from before a run starts: an agent can write the one in the worktree.
    pub(super) fn keep_index(&self, worktree: &Worktree, index: &Path) {
        let (kept, new) = (self.index(&worktree.path), self.index(&worktree.path).with_extension("index.new"));
        let copied = fs::copy(index, &new).and_then(|_| {
            // Git compares the time of the index with those of the files.
            let modified = fs::metadata(index)?.modified()?;
            fs::File::options().write(true).open(&new)?.set_modified(modified)?;
            fs::rename(&new, &kept)
        });
        if let Err(error) = copied {
            tracing::debug!(run = worktree.run, %error, "cannot copy the index of a worktree; git will read all files");
            let _ = fs::remove_file(&kept);
        }
    }

    /// Moves the kept index of a worktree to its new path.
    pub(super) fn move_index(&self, from: &Path, to: &Path) {
        if fs::rename(self.index(from), self.index(to)).is_err() {
            self.forget_index(to);
        }
    }

    pub(super) fn forget_index(&self, folder: &Path) {
        let _ = fs::remove_file(self.index(folder));
    }

    /// Copies the kept index of a worktree with its modification time.
    pub(super) fn copy_index_to(&self, worktree: &Worktree, copy: &Path) -> io::Result<()> {
        let kept = self.index(&worktree.path);
        fs::copy(&kept, copy)?;
        let modified = fs::metadata(&kept)?.modified()?;
        fs::File::options().write(true).open(copy)?.set_modified(modified)
    }

    /// Whether `index` equals the kept index.
    pub(super) fn index_is(&self, worktree: &Worktree, index: &[u8]) -> bool {
        fs::read(self.index(&worktree.path)).is_ok_and(|kept| kept == index)
    }

    /// Removes kept indexes of folders that no longer exist.
    pub(super) fn sweep_indexes(&self, base: &Path) {
        let files = fs::read_dir(&self.folder).into_iter().flatten().flatten().map(|file| file.path());
        for file in files.filter(|file| file.extension().is_some_and(|ending| ending == "index")) {
            if file.file_stem().is_some_and(|name| base.join(name).symlink_metadata().is_err()) {
                let _ = fs::remove_file(file);
            }
        }
    }

    /// Returns the records of dead gateways, except those whose folder has a new run.
    pub(super) fn abandoned(&self) -> Vec<WorktreeRecord> {
        let (living, dead): (Vec<WorktreeRecord>, Vec<WorktreeRecord>) =
            self.records().partition(|record| record.owner.is_alive());
        let due = |dead: &WorktreeRecord| dead.failed_saves < MAX_FAILED_SAVES;
        dead.into_iter().filter(|dead| due(dead) && living.iter().all(|living| living.path != dead.path)).collect()
    }

    fn records(&self) -> impl Iterator<Item = WorktreeRecord> + use<> {
        let files = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let files = files.filter(|file| file.path().extension().is_some_and(|ending| ending == "json"));
        files.filter_map(|file| serde_json::from_slice::<WorktreeRecord>(&fs::read(file.path()).ok()?).ok())
    }

    fn index(&self, folder: &Path) -> PathBuf {
        let mut name = folder.file_name().unwrap_or_default().to_owned();
        name.push(".index");
        self.folder.join(name)
    }

    fn file(&self, run: &str) -> PathBuf {
        self.folder.join(format!("{run}.json"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_abandoned_when_their_gateway_is_dead() {
        let folder = tempfile::tempdir().unwrap();
        let ledger = WorktreeLedger::new(folder.path().join("worktrees"));
        let worktree = |run: &str, path: &str| Worktree {
            path: path.into(),
            cwd: path.into(),
            run: run.into(),
            repo: "/repo".into(),
            common: "/repo/.git".into(),
            registration: "/repo/.git/worktrees/x".into(),
            base: "0".into(),
            session: None,
        };
        ledger.write(&WorktreeRecord::of(&worktree("alive", "/tmp/x"), WorktreeState::InUse)).unwrap();
        let owner = GatewayProcess { pid: u32::MAX, started: 1 };
        ledger
            .write(&WorktreeRecord { owner, ..WorktreeRecord::of(&worktree("dead", "/tmp/y"), WorktreeState::InUse) })
            .unwrap();
        ledger
            .write(&WorktreeRecord {
                owner,
                ..WorktreeRecord::of(&worktree("followed", "/tmp/x"), WorktreeState::InUse)
            })
            .unwrap();
        fs::write(folder.path().join("worktrees/broken.json"), "{").unwrap();
        fs::copy(folder.path().join("worktrees/dead.json"), folder.path().join("worktrees/dead.new")).unwrap();
        let mut runs: Vec<String> = ledger.abandoned().into_iter().map(|record| record.run).collect();
        runs.sort();
        assert_eq!(runs, ["dead"]);
    }
}

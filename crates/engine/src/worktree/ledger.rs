//! Which worktrees are ours and who made them: a small file each, so that a later gateway can clean up after a dead one.

use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use trunkline_core::event::SessionId;
use trunkline_core::failure::{Category, Failure};

use super::folder::Worktree;
use crate::runs::gateway_process::GatewayProcess;

/// A worktree whose work could not be saved this often is left to its user.
const MAX_FAILED_SAVES: u32 = 5;

pub(super) struct Ledger {
    folder: PathBuf,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Entry {
    run: String,
    path: PathBuf,
    repo: PathBuf,
    common: PathBuf,
    /// Not said in entries of old: then it has the folder's name.
    registration: Option<PathBuf>,
    base: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    session: Option<SessionId>,
    /// An entry that does not say so is taken for somebody's work: nothing is thrown away.
    #[serde(default)]
    standing: Standing,
    /// How often its work could not be saved.
    #[serde(default)]
    failed_saves: u32,
    #[serde(flatten)]
    owner: GatewayProcess,
}

/// What is to be found in a worktree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Standing {
    /// Not all of its files, if any.
    Unmade,
    /// What differs from its base is somebody's work.
    #[default]
    InUse,
    /// Nothing that is not on its branch.
    Saved,
    /// All of its files, and no run.
    Spare,
}

impl Entry {
    pub(super) fn of(worktree: &Worktree, standing: Standing) -> Self {
        Self {
            standing,
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

    pub(super) const fn standing(&self) -> Standing {
        self.standing
    }

    pub(super) fn worktree(self) -> Worktree {
        let Self { run, path, repo, common, registration, base, session, .. } = self;
        let registration = registration.unwrap_or_else(|| Worktree::usual_registration(&common, &path));
        Worktree { cwd: path.clone(), path, run, repo, common, registration, base, session }
    }
}

impl Ledger {
    pub(super) fn new(folder: PathBuf) -> Self {
        Self { folder }
    }

    /// At once or not at all: who is killed in the middle of it must not leave a worktree that nobody knows of.
    pub(super) fn write(&self, entry: &Entry) -> Result<(), Failure> {
        let path = self.file(&entry.run);
        let new = path.with_extension("new");
        let written = fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&self.folder)
            .and_then(|()| fs::write(&new, serde_json::to_vec(entry).expect("an entry is plain data")))
            .and_then(|()| fs::rename(&new, &path));
        written
            .map_err(|error| Failure::new(Category::Configuration, format!("cannot write {}: {error}", path.display())))
    }

    pub(super) fn forget(&self, run: &str) {
        let _already_gone = fs::remove_file(self.file(run));
    }

    /// Notes that the work in a worktree could not be saved. It is due again when this gateway is gone.
    pub(super) fn note_failed_save(&self, worktree: &Worktree) {
        let before =
            fs::read(self.file(&worktree.run)).ok().and_then(|text| serde_json::from_slice::<Entry>(&text).ok());
        let failed_saves = before.map_or(0, |entry| entry.failed_saves) + 1;
        // Without the note it is only tried more often.
        let _ = self.write(&Entry { failed_saves, ..Entry::of(worktree, Standing::InUse) });
    }

    /// Other runs whose unsaved work is in the same folder.
    pub(super) fn earlier_runs(&self, worktree: &Worktree) -> Vec<String> {
        let same = |entry: &Entry| entry.path == worktree.path && entry.run != worktree.run;
        self.entries().filter(same).map(|entry| entry.run).collect()
    }

    /// Keeps the index of a worktree as it is before a run starts: an agent can write the one that git uses there.
    pub(super) fn keep_index(&self, worktree: &Worktree, index: &Path) {
        let (kept, new) = (self.index(&worktree.path), self.index(&worktree.path).with_extension("index.new"));
        let copied = fs::copy(index, &new).and_then(|_| {
            // Git compares it with the times of files.
            let modified = fs::metadata(index)?.modified()?;
            fs::File::options().write(true).open(&new)?.set_modified(modified)?;
            fs::rename(&new, &kept)
        });
        if let Err(error) = copied {
            tracing::debug!(run = worktree.run, %error, "no copy of an index: every file will be read");
            let _ = fs::remove_file(&kept);
        }
    }

    /// Gives a worktree the index that was kept under its former name.
    pub(super) fn move_index(&self, from: &Path, to: &Path) {
        if fs::rename(self.index(from), self.index(to)).is_err() {
            self.forget_index(to);
        }
    }

    pub(super) fn forget_index(&self, folder: &Path) {
        let _ = fs::remove_file(self.index(folder));
    }

    /// Copies the kept index of a worktree, with its time.
    pub(super) fn copy_index_to(&self, worktree: &Worktree, copy: &Path) -> io::Result<()> {
        let kept = self.index(&worktree.path);
        fs::copy(&kept, copy)?;
        let modified = fs::metadata(&kept)?.modified()?;
        fs::File::options().write(true).open(copy)?.set_modified(modified)
    }

    /// Whether an index is the one that was kept.
    pub(super) fn index_is(&self, worktree: &Worktree, index: &[u8]) -> bool {
        fs::read(self.index(&worktree.path)).is_ok_and(|kept| kept == index)
    }

    /// Forgets indexes of folders that are gone.
    pub(super) fn sweep_indexes(&self, base: &Path) {
        let files = fs::read_dir(&self.folder).into_iter().flatten().flatten().map(|file| file.path());
        for file in files.filter(|file| file.extension().is_some_and(|ending| ending == "index")) {
            if file.file_stem().is_some_and(|name| base.join(name).symlink_metadata().is_err()) {
                let _ = fs::remove_file(file);
            }
        }
    }

    /// The entries whose gateway is no more, unless their folder has a new run by now.
    pub(super) fn abandoned(&self) -> Vec<Entry> {
        let (living, dead): (Vec<Entry>, Vec<Entry>) = self.entries().partition(|entry| entry.owner.lives());
        let due = |dead: &Entry| dead.failed_saves < MAX_FAILED_SAVES;
        dead.into_iter().filter(|dead| due(dead) && living.iter().all(|living| living.path != dead.path)).collect()
    }

    fn entries(&self) -> impl Iterator<Item = Entry> + use<> {
        let files = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let files = files.filter(|file| file.path().extension().is_some_and(|ending| ending == "json"));
        files.filter_map(|file| serde_json::from_slice::<Entry>(&fs::read(file.path()).ok()?).ok())
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
    fn only_a_dead_gateways_entries_are_abandoned() {
        let folder = tempfile::tempdir().unwrap();
        let ledger = Ledger::new(folder.path().join("worktrees"));
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
        ledger.write(&Entry::of(&worktree("alive", "/tmp/x"), Standing::InUse)).unwrap();
        let owner = GatewayProcess { pid: u32::MAX, started: 1 };
        ledger.write(&Entry { owner, ..Entry::of(&worktree("dead", "/tmp/y"), Standing::InUse) }).unwrap();
        ledger.write(&Entry { owner, ..Entry::of(&worktree("followed", "/tmp/x"), Standing::InUse) }).unwrap();
        fs::write(folder.path().join("worktrees/broken.json"), "{").unwrap();
        fs::copy(folder.path().join("worktrees/dead.json"), folder.path().join("worktrees/dead.new")).unwrap();
        let mut runs: Vec<String> = ledger.abandoned().into_iter().map(|entry| entry.run).collect();
        runs.sort();
        assert_eq!(runs, ["dead"]);
    }
}

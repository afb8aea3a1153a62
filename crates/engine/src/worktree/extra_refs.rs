//! References for commits that a run made and then abandoned: they are on no branch, and only the records of the
//! worktree name them. Each gets a reference `refs/trunkline/<run>/<n>` in addition to the branch of the run.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use trunkline_core::failure::{Category, Failure};

use super::Worktrees;
use super::folder::Worktree;
use super::private_git_dir::PrivateGitDir;
use crate::sandbox::untrusted;

/// Maximum number of extra references. With more abandoned commits than this, the worktree is kept instead.
const MAX_REFS: usize = 32;

/// Maximum size that is read of each record.
const MAX_RECORD_BYTES: u64 = 4 << 20;

/// Maximum number of object names that are taken from all records.
const MAX_NAMES: usize = 20_000;

/// Records of a worktree that may be the only ones to name a commit.
const RECORDS: [&str; 10] = [
    "logs/HEAD",
    "HEAD",
    "ORIG_HEAD",
    "MERGE_HEAD",
    "MERGE_AUTOSTASH",
    "CHERRY_PICK_HEAD",
    "REVERT_HEAD",
    "rebase-merge/autostash",
    "rebase-merge/orig-head",
    "rebase-apply/autostash",
];

impl Worktrees {
    /// Saves commits of the run that are reachable from no reference, `saved` included. Returns the new references.
    pub(super) async fn save_unreferenced_commits(
        &self,
        git_dir: &PrivateGitDir,
        worktree: &Worktree,
        saved: &str,
    ) -> Result<Vec<String>, Failure> {
        let mut names = object_names(&worktree.registration);
        names.retain(|name| *name != worktree.base && name != saved);
        if names.is_empty() {
            return Ok(Vec::new());
        }
        // `--all` would include the HEADs of all worktrees, and the HEAD of this one is removed with it.
        let mut input: String = names.iter().map(|name| format!("{name}\n")).collect();
        input.push_str(&format!("^{saved}\n^{}\n", worktree.base));
        let list = ["rev-list", "--ignore-missing", "--stdin", "--not", "--single-worktree", "--all"];
        let unreferenced = self.private_git(git_dir, worktree).stdin(input.into_bytes()).line(&list).await?;
        let unreferenced: BTreeSet<&str> = unreferenced.lines().filter(|id| names.contains(*id)).collect();
        if unreferenced.is_empty() {
            return Ok(Vec::new());
        }
        // A commit that is an ancestor of another one needs no reference.
        let all: Vec<&str> = ["merge-base", "--independent"].into_iter().chain(unreferenced).collect();
        let tips = self.private_git(git_dir, worktree).line(&all).await?;
        let tips: Vec<&str> = tips.lines().collect();
        if tips.len() > MAX_REFS {
            let message = format!("{} commits of the run are on no branch", tips.len());
            return Err(Failure::new(Category::Configuration, message));
        }
        let references: Vec<String> =
            (1..=tips.len()).map(|number| format!("refs/trunkline/{}/{number}", worktree.run)).collect();
        let create: String =
            references.iter().zip(&tips).map(|(reference, tip)| format!("update {reference} {tip}\n")).collect();
        self.private_git(git_dir, worktree)
            .writing(worktree.reference_stores())
            .stdin(create.into_bytes())
            .run(&["update-ref", "--stdin"])
            .await?;
        Ok(references)
    }
}

/// Returns the object names in the records of a worktree. An agent may have written anything there.
fn object_names(registration: &Path) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    if !untrusted::real(registration) {
        return names;
    }
    let mut records: Vec<_> = RECORDS.iter().map(|record| registration.join(record)).collect();
    for folder in ["refs/worktree", "refs/bisect", "refs/rewritten"] {
        let entries = fs::read_dir(registration.join(folder)).into_iter().flatten().flatten();
        records.extend(entries.map(|entry| entry.path()).take(MAX_NAMES));
    }
    for record in records {
        let text = untrusted::read(&record, MAX_RECORD_BYTES).unwrap_or_default();
        let words = text.split(|byte| byte.is_ascii_whitespace());
        let words = words.filter(|word| matches!(word.len(), 40 | 64) && word.iter().all(u8::is_ascii_hexdigit));
        names.extend(words.filter(|word| word.iter().any(|digit| *digit != b'0')).filter_map(|word| {
            let name = std::str::from_utf8(word).ok()?;
            Some(name.to_ascii_lowercase())
        }));
        if names.len() > MAX_NAMES {
            break;
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_only_complete_object_names_from_records() {
        let folder = tempfile::tempdir().unwrap();
        let registration = folder.path().canonicalize().unwrap();
        fs::create_dir_all(registration.join("logs")).unwrap();
        fs::create_dir_all(registration.join("refs/worktree")).unwrap();
        let (one, two, three) = ("1".repeat(40), "A".repeat(40), "b".repeat(64));
        let log = format!("{} {one} A <a@b> 1 +0000\tcommit: --upload-pack={three}\n", "0".repeat(40));
        fs::write(registration.join("logs/HEAD"), log).unwrap();
        fs::write(registration.join("ORIG_HEAD"), format!("{two}\n")).unwrap();
        fs::write(registration.join("refs/worktree/x"), format!("{three}\n")).unwrap();
        fs::write(registration.join("HEAD"), "ref: refs/heads/main\n").unwrap();
        let names: Vec<String> = object_names(&registration).into_iter().collect();
        assert_eq!(names, [one, "a".repeat(40), three]);
    }
}

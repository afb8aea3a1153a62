//! Commits that a run made and then left: they are on no branch, and only the worktree's own records name them. Each gets
//! a reference `refs/trunkline/<run>/<n>` beside the branch of the run.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use trunkline_core::failure::{Category, Failure};

use super::Worktrees;
use super::folder::Worktree;
use super::room::Room;
use crate::sandbox::untrusted;

/// More commits than this are not kept one by one: the worktree stays.
const MAX_REFS: usize = 32;

/// The most that is read of each record, and the most names that are taken from all.
const MAX_RECORD_BYTES: u64 = 4 << 20;
const MAX_NAMES: usize = 20_000;

/// Records of a worktree that can name a commit which nothing else names.
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
    pub(super) async fn save_left_commits(
        &self,
        room: &Room,
        worktree: &Worktree,
        saved: &str,
    ) -> Result<Vec<String>, Failure> {
        let mut names = named_in(&worktree.registration);
        names.retain(|name| *name != worktree.base && name != saved);
        if names.is_empty() {
            return Ok(Vec::new());
        }
        // Of other worktrees' HEADs the one of this run is among them, and goes with it.
        let mut input: String = names.iter().map(|name| format!("{name}\n")).collect();
        input.push_str(&format!("^{saved}\n^{}\n", worktree.base));
        let list = ["rev-list", "--ignore-missing", "--stdin", "--not", "--single-worktree", "--all"];
        let lost = self.in_room(room, worktree).stdin(input.into_bytes()).line(&list).await?;
        let lost: BTreeSet<&str> = lost.lines().filter(|id| names.contains(*id)).collect();
        if lost.is_empty() {
            return Ok(Vec::new());
        }
        // Of commits that follow each other the last is enough.
        let all: Vec<&str> = ["merge-base", "--independent"].into_iter().chain(lost).collect();
        let tips = self.in_room(room, worktree).line(&all).await?;
        let tips: Vec<&str> = tips.lines().collect();
        if tips.len() > MAX_REFS {
            let message = format!("{} commits of the run are on no branch", tips.len());
            return Err(Failure::new(Category::Configuration, message));
        }
        let references: Vec<String> =
            (1..=tips.len()).map(|number| format!("refs/trunkline/{}/{number}", worktree.run)).collect();
        let create: String =
            references.iter().zip(&tips).map(|(reference, tip)| format!("update {reference} {tip}\n")).collect();
        self.in_room(room, worktree)
            .writing(worktree.reference_stores())
            .stdin(create.into_bytes())
            .run(&["update-ref", "--stdin"])
            .await?;
        Ok(references)
    }
}

/// Names of objects in the records of a worktree. They may be anything that an agent wrote there.
fn named_in(registration: &Path) -> BTreeSet<String> {
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
    fn only_whole_object_names_are_taken_from_records() {
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
        let names: Vec<String> = named_in(&registration).into_iter().collect();
        assert_eq!(names, [one, "a".repeat(40), three]);
    }
}

//! Whether a worktree can be made of a folder, as far as the files of its repository tell. Git itself is not asked: it
//! would read the configuration of a folder that may hold anything.

use std::fs;
use std::path::{Path, PathBuf};

/// Why no worktree can be made of the folder, and what to do about it; none if one can be made.
pub(crate) fn no_worktree(folder: &Path) -> Option<(String, &'static str)> {
    let shown = folder.display();
    match of(folder) {
        Found::Nothing => Some((
            format!("{shown} is not in a git repository"),
            "run `git init` and commit there, or leave `worktree` out",
        )),
        Found::Bare => Some((format!("{shown} is a bare repository"), "clone it, and name the clone's folder")),
        Found::Checkout { git } if !has_commit(&git) => {
            Some((format!("the repository of {shown} has no commit"), "a worktree needs a first one: run `git commit`"))
        }
        Found::Checkout { .. } => None,
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Found {
    Nothing,
    Bare,
    /// `git` holds its HEAD.
    Checkout {
        git: PathBuf,
    },
}

/// The repository that a folder is in: the nearest one above it.
fn of(folder: &Path) -> Found {
    for folder in folder.ancestors() {
        let git = folder.join(".git");
        if let Some(git) = linked(&git).or(Some(git)).filter(|git| is_git(git)) {
            return if is_bare(&git) { Found::Bare } else { Found::Checkout { git } };
        }
        if is_git(folder) {
            return Found::Bare;
        }
    }
    Found::Nothing
}

/// Where a `.git` that is a file leads, as in a worktree or a submodule.
fn linked(git: &Path) -> Option<PathBuf> {
    let text = fs::read_to_string(git).ok()?;
    Some(git.parent()?.join(text.strip_prefix("gitdir:")?.trim()))
}

fn is_git(folder: &Path) -> bool {
    folder.join("HEAD").is_file() && common(folder).join("objects").is_dir()
}

/// The folder that all worktrees of a repository share.
fn common(git: &Path) -> PathBuf {
    match fs::read_to_string(git.join("commondir")) {
        Ok(path) => git.join(path.trim()),
        Err(_) => git.to_owned(),
    }
}

/// A checkout's own folder says so in its settings where it has been made bare.
fn is_bare(git: &Path) -> bool {
    let settings = fs::read_to_string(git.join("config")).unwrap_or_default();
    settings.lines().any(|line| line.replace([' ', '\t'], "").eq_ignore_ascii_case("bare=true"))
}

/// Whether HEAD leads to a commit. What cannot be told from the files is left to git.
fn has_commit(git: &Path) -> bool {
    let (head, common) = (fs::read_to_string(git.join("HEAD")).unwrap_or_default(), common(git));
    let Some(branch) = head.strip_prefix("ref:").map(str::trim) else { return !head.trim().is_empty() };
    if common.join("reftable").is_dir() || common.join(branch).is_file() || git.join(branch).is_file() {
        return true;
    }
    let packed = fs::read_to_string(common.join("packed-refs")).unwrap_or_default();
    packed.lines().any(|line| line.split(' ').nth(1) == Some(branch))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes files below a folder; one that ends in a slash is a folder.
    fn made(folder: &Path, files: &[(&str, &str)]) {
        for (name, text) in files {
            let path = folder.join(name);
            fs::create_dir_all(if name.ends_with('/') { &path } else { path.parent().unwrap() }).unwrap();
            if !name.ends_with('/') {
                fs::write(path, text).unwrap();
            }
        }
    }

    #[test]
    fn reports_why_when_no_worktree_can_be_made() {
        let head = (".git/HEAD", "ref: refs/heads/main\n");
        let packed = ("packed-refs", "# pack-refs\n0123 refs/heads/main\n");
        for (files, inside, said) in [
            (vec![("a/", "")], "a", Some("is not in a git repository")),
            (vec![(".git", "nonsense")], "", Some("is not in a git repository")),
            (vec![head, (".git/objects/", "")], "", Some("has no commit")),
            (vec![head, (".git/objects/", ""), (".git/refs/heads/main", "0123")], "", None),
            (vec![head, (".git/objects/", ""), (".git/refs/heads/main", "0123"), ("a/b/", "")], "a/b", None),
            (vec![head, (".git/objects/", ""), (".git/packed-refs", packed.1)], "", None),
            (
                vec![head, (".git/objects/", ""), (".git/packed-refs", "0123 refs/heads/mainly")],
                "",
                Some("has no commit"),
            ),
            (vec![(".git/HEAD", "0123"), (".git/objects/", "")], "", None),
            (vec![("HEAD", head.1), ("objects/", ""), packed], "", Some("is a bare repository")),
            (
                vec![head, (".git/objects/", ""), (".git/config", "[core]\n\tbare = true\n")],
                "",
                Some("is a bare repository"),
            ),
            (
                vec![
                    ("main/.git/HEAD", head.1),
                    ("main/.git/objects/", ""),
                    ("main/.git/worktrees/t/HEAD", "ref: refs/heads/topic"),
                    ("main/.git/worktrees/t/commondir", "../.."),
                    ("main/.git/refs/heads/topic", "0123"),
                    ("t/.git", "gitdir: ../main/.git/worktrees/t\n"),
                ],
                "t",
                None,
            ),
        ] {
            let folder = tempfile::tempdir().unwrap();
            made(folder.path(), &files);
            let told = no_worktree(&folder.path().join(inside)).map(|(why, _)| why);
            match said {
                Some(said) => assert!(told.as_deref().is_some_and(|told| told.ends_with(said)), "{files:?}: {told:?}"),
                None => assert_eq!(told, None, "{files:?}"),
            }
        }
    }
}

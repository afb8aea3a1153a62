//! Checks from the files of a repository whether a worktree can be created for a folder. Does not run git, which would read
//! the configuration of a folder that is not trusted.

use std::fs;
use std::path::{Path, PathBuf};

/// Reason why no worktree can be created for the folder, and a remedy; `None` if one can be created.
pub(crate) fn no_worktree(folder: &Path) -> Option<(String, &'static str)> {
    let shown = folder.display();
    match repository_of(folder) {
        RepositoryKind::None => Some((
            format!("{shown} is not in a git repository"),
            "run `git init` and commit there, or leave `worktree` out",
        )),
        RepositoryKind::Bare => {
            Some((format!("{shown} is a bare repository"), "clone it, and name the clone's folder"))
        }
        RepositoryKind::Checkout { git } if !has_commit(&git) => {
            Some((format!("the repository of {shown} has no commit"), "a worktree needs a first one: run `git commit`"))
        }
        RepositoryKind::Checkout { .. } => None,
    }
}

#[derive(Debug, PartialEq, Eq)]
enum RepositoryKind {
    None,
    Bare,
    /// `git` is the folder with its HEAD.
    Checkout {
        git: PathBuf,
    },
}

/// The nearest repository at or above a folder.
fn repository_of(folder: &Path) -> RepositoryKind {
    for folder in folder.ancestors() {
        let git = folder.join(".git");
        if let Some(git) = linked(&git).or(Some(git)).filter(|git| is_git(git)) {
            return if is_bare(&git) { RepositoryKind::Bare } else { RepositoryKind::Checkout { git } };
        }
        if is_git(folder) {
            return RepositoryKind::Bare;
        }
    }
    RepositoryKind::None
}

/// The target of a `.git` that is a file, as in a worktree or a submodule.
fn linked(git: &Path) -> Option<PathBuf> {
    let text = fs::read_to_string(git).ok()?;
    Some(git.parent()?.join(text.strip_prefix("gitdir:")?.trim()))
}

fn is_git(folder: &Path) -> bool {
    folder.join("HEAD").is_file() && common_folder(folder).join("objects").is_dir()
}

/// The folder that all worktrees of a repository share.
fn common_folder(git: &Path) -> PathBuf {
    match fs::read_to_string(git.join("commondir")) {
        Ok(path) => git.join(path.trim()),
        Err(_) => git.to_owned(),
    }
}

/// Whether the repository's own settings make it bare.
fn is_bare(git: &Path) -> bool {
    let settings = fs::read_to_string(git.join("config")).unwrap_or_default();
    settings.lines().any(|line| line.replace([' ', '\t'], "").eq_ignore_ascii_case("bare=true"))
}

/// Whether HEAD resolves to a commit. If the files do not tell, git decides later.
fn has_commit(git: &Path) -> bool {
    let (head, common) = (fs::read_to_string(git.join("HEAD")).unwrap_or_default(), common_folder(git));
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

    /// Creates files below a folder; a name that ends in a slash is a folder.
    fn create(folder: &Path, files: &[(&str, &str)]) {
        for (name, text) in files {
            let path = folder.join(name);
            fs::create_dir_all(if name.ends_with('/') { &path } else { path.parent().unwrap() }).unwrap();
            if !name.ends_with('/') {
                fs::write(path, text).unwrap();
            }
        }
    }

    #[test]
    fn reports_why_when_no_worktree_can_be_created() {
        let head = (".git/HEAD", "ref: refs/heads/main\n");
        let packed = ("packed-refs", "# pack-refs\n0123 refs/heads/main\n");
        for (files, inside, expected) in [
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
            create(folder.path(), &files);
            let why = no_worktree(&folder.path().join(inside)).map(|(why, _)| why);
            match expected {
                Some(end) => assert!(why.as_deref().is_some_and(|why| why.ends_with(end)), "{files:?}: {why:?}"),
                None => assert_eq!(why, None, "{files:?}"),
            }
        }
    }
}

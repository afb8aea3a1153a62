//! Links to the user's own configuration in a private home. State of the CLI is not linked.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, symlink};
use std::path::{Path, PathBuf};

use trunkline_core::provider::Home;

use crate::attempt::file_memo::Sources;

/// Links the entries of a user's folder except credentials, copies and state, and removes links whose target no longer exists. A
/// folder that also holds state becomes a real folder with links inside.
pub(super) fn share(
    home: &Home,
    state: &[String],
    own: &Path,
    folder: &Path,
    below: &Path,
    sources: &mut Sources,
) -> io::Result<()> {
    for entry in entries(folder)? {
        if fs::read_link(&entry).is_ok_and(|target| target.starts_with(own) && !target.exists()) {
            fs::remove_file(entry).or_else(|error| if_not(error, io::ErrorKind::NotFound))?;
        }
    }
    for from in entries(own)? {
        let Some(name) = from.file_name() else { continue };
        let (to, within) = (folder.join(name), below.join(name));
        let placed = home.link.iter().chain(&home.copy).any(|name| Path::new(name) == within);
        if placed || state.iter().any(|pattern| matches(pattern, &within.to_string_lossy())) {
            continue;
        }
        add_if_link(&from, sources);
        let holds_state = state.iter().any(|pattern| Path::new(pattern).parent() == Some(&*within));
        if holds_state && from.is_dir() {
            if to.is_symlink() {
                fs::remove_file(&to)?;
            }
            sources.add(&from);
            sources.add(&to);
            fs::DirBuilder::new().recursive(true).mode(0o700).create(&to)?;
            share(home, state, &from, &to, &within, sources)?;
        } else if to.is_symlink() || !to.is_dir() {
            link(&from, &to)?;
        }
    }
    Ok(())
}

/// Paths in a folder; empty if the folder does not exist.
fn entries(folder: &Path) -> io::Result<Vec<PathBuf>> {
    match fs::read_dir(folder) {
        Ok(listing) => listing.map(|entry| entry.map(|entry| entry.path())).collect(),
        Err(error) => if_not(error, io::ErrorKind::NotFound).map(|()| Vec::new()),
    }
}

pub(super) fn if_not(error: io::Error, kind: io::ErrorKind) -> io::Result<()> {
    if error.kind() == kind { Ok(()) } else { Err(error) }
}

/// Whether a name matches a pattern in which `*` stands for any characters except `/`.
fn matches(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((start, rest)) => name.strip_prefix(start).is_some_and(|tail| {
            let within = tail.find('/').unwrap_or(tail.len());
            let mut ends = (0..=within).filter(|end| tail.is_char_boundary(*end));
            ends.any(|end| matches(rest, &tail[end..]))
        }),
    }
}

/// Notes a link of the user: whether its target exists cannot be seen at the folder that the link is in.
pub(super) fn add_if_link(path: &Path, sources: &mut Sources) {
    if path.is_symlink() {
        sources.add(path);
    }
}

pub(super) fn link(from: &Path, to: &Path) -> io::Result<()> {
    if fs::read_link(to).is_ok_and(|target| target == from) || !from.exists() {
        return Ok(());
    }
    let beside = to.with_file_name(format!(".link.{}", uuid::Uuid::new_v4()));
    symlink(from, &beside)?;
    fs::rename(&beside, to)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pattern_does_not_match_across_folders() {
        for (pattern, name, expected) in [
            ("*.sqlite*", "state_5.sqlite-wal", true),
            ("*.sqlite*", "a/state.sqlite", false),
            ("log", "log", true),
            ("log", "logs", false),
            ("skills/.system", "skills/.system", true),
            ("*", "ü", true),
        ] {
            assert_eq!(matches(pattern, name), expected, "{pattern} {name}");
        }
    }
}

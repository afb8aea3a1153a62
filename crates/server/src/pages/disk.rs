//! Conversations as files that only their owner can read. Everything here blocks.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::cookie::ChatId;
use super::talk::Kept;

/// No conversation is this long: what is read is not to fill the memory.
const MAX_FILE: u64 = 32 * 1024 * 1024;

pub(crate) fn path(folder: &Path, id: &ChatId) -> PathBuf {
    folder.join(format!("{}.json", id.as_str()))
}

/// None when there is no such file.
pub(crate) fn read(path: &Path) -> io::Result<Option<Kept>> {
    let file = match fs::File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    let mut bytes = Vec::new();
    file.take(MAX_FILE).read_to_end(&mut bytes)?;
    Ok(Some(serde_json::from_slice(&bytes)?))
}

/// Whole or not at all.
pub(crate) fn write(path: &Path, kept: &Kept) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    }
    let beside = path.with_extension("new");
    let bytes = serde_json::to_vec(kept)?;
    let mut file = OpenOptions::new().create(true).write(true).truncate(true).mode(0o600).open(&beside)?;
    file.write_all(&bytes)?;
    fs::rename(beside, path)
}

pub(crate) fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// Removes the conversations that nobody said anything in for so long; how many.
pub fn forget(folder: &Path, age: Duration) -> io::Result<usize> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
        entries => entries?,
    };
    let mut forgotten = 0;
    for entry in entries {
        let path = entry?.path();
        let is_one = path.extension().is_some_and(|extension| extension == "json");
        if is_one && fs::metadata(&path)?.modified()?.elapsed().is_ok_and(|unused| unused >= age) {
            remove(&path)?;
            forgotten += 1;
        }
    }
    Ok(forgotten)
}

/// Removes the oldest files beyond `limit`, and what a gateway that was killed left half-written.
pub(crate) fn bound(folder: &Path, limit: usize) -> io::Result<()> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    let mut chats: Vec<(SystemTime, PathBuf)> = Vec::new();
    for entry in entries {
        let path = entry?.path();
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("json") => chats.push((fs::metadata(&path)?.modified()?, path)),
            Some("new") => remove(&path)?,
            Some(_) | None => {}
        }
    }
    chats.sort();
    let many = chats.len().saturating_sub(limit);
    chats.iter().take(many).try_for_each(|(_, path)| remove(path))
}

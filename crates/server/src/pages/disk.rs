//! Conversations as files that only the user of the gateway can read. All functions block.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::cookie::ChatId;
use super::talk::SavedChat;

/// Maximum size of a file that is read.
const MAX_FILE_BYTES: u64 = 32 * 1024 * 1024;

pub(crate) fn path(folder: &Path, id: &ChatId) -> PathBuf {
    folder.join(format!("{}.json", id.as_str()))
}

/// Reads a conversation; `None` if there is no such file.
pub(crate) fn read(path: &Path) -> io::Result<Option<SavedChat>> {
    let file = match fs::File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    let mut bytes = Vec::new();
    file.take(MAX_FILE_BYTES).read_to_end(&mut bytes)?;
    Ok(Some(serde_json::from_slice(&bytes)?))
}

/// Writes a file atomically.
pub(crate) fn write(path: &Path, kept: &SavedChat) -> io::Result<()> {
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

/// Removes conversations without a message for `age`, and returns their number.
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

/// Removes the oldest files beyond `limit`, and partial files that a killed gateway left.
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

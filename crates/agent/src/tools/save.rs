//! Puts new content in place of a file at once: whoever looks sees all of the old or all of the new.

use std::fs::{self, File, Metadata, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};
use std::path::Path;

use tokio_util::sync::CancellationToken;

/// What a new file may have, less the umask.
const NEW_FILE: u32 = 0o666;

/// Writes `content` to `path`, which must not be a link. `existing` is the file that is there now, if any: its mode is
/// kept. Nothing happens if the caller has `gone` in the meantime.
pub(super) fn save(
    path: &Path,
    existing: Option<&Metadata>,
    content: &[u8],
    gone: &CancellationToken,
) -> io::Result<()> {
    if existing.is_some() {
        // Taking its place needs no right to write to it; but a file is write-protected for a reason.
        OpenOptions::new().write(true).open(path)?;
    }
    let folder = path.parent().ok_or(io::ErrorKind::IsADirectory)?;
    let mut beside = tempfile::Builder::new()
        .prefix(".trunkline-")
        .permissions(Permissions::from_mode(NEW_FILE))
        .tempfile_in(folder)?;
    beside.write_all(content)?;
    if let Some(existing) = existing {
        take_after(beside.as_file(), existing)?;
    }
    if gone.is_cancelled() {
        return Err(io::Error::other("no longer wanted"));
    }
    beside.persist(path)?;
    Ok(())
}

/// Gives a file the owner, as far as we may, and the mode of another.
fn take_after(file: &File, other: &Metadata) -> io::Result<()> {
    let own = file.metadata()?;
    if (own.uid(), own.gid()) != (other.uid(), other.gid()) {
        let _ = fchown(file, Some(other.uid()), Some(other.gid()));
    }
    file.set_permissions(fs::Permissions::from_mode(other.mode() & 0o7777))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unwanted_file_is_not_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.txt");
        fs::write(&path, "old").unwrap();
        let gone = CancellationToken::new();
        gone.cancel();
        save(&path, Some(&path.metadata().unwrap()), b"new", &gone).unwrap_err();
        assert_eq!(fs::read_to_string(&path).unwrap(), "old");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is left beside it");
    }
}

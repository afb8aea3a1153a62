//! Replaces the content of a file atomically: readers see either the old or the new content.

use std::fs::{self, File, Metadata, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};
use std::path::Path;

use tokio_util::sync::CancellationToken;

/// Mode of a new file, before the umask.
const NEW_FILE_MODE: u32 = 0o666;

/// Writes `content` to `path`, which must not be a link. The mode and owner of an `existing` file are kept. The file stays
/// unchanged if `cancelled` is cancelled before the content is in place.
pub(super) fn save(
    path: &Path,
    existing: Option<&Metadata>,
    content: &[u8],
    cancelled: &CancellationToken,
) -> io::Result<()> {
    if existing.is_some() {
        // A rename needs no write permission for the file, but write protection is to be respected.
        OpenOptions::new().write(true).open(path)?;
    }
    let folder = path.parent().ok_or(io::ErrorKind::IsADirectory)?;
    let mut temporary = tempfile::Builder::new()
        .prefix(".trunkline-")
        .permissions(Permissions::from_mode(NEW_FILE_MODE))
        .tempfile_in(folder)?;
    temporary.write_all(content)?;
    if let Some(existing) = existing {
        copy_attributes(temporary.as_file(), existing)?;
    }
    if cancelled.is_cancelled() {
        return Err(io::Error::other("the call was cancelled"));
    }
    temporary.persist(path)?;
    Ok(())
}

/// Copies the mode of another file, and its owner if this process is allowed to.
fn copy_attributes(file: &File, other: &Metadata) -> io::Result<()> {
    let own = file.metadata()?;
    if (own.uid(), own.gid()) != (other.uid(), other.gid()) {
        // Only root may change the owner.
        let _ = fchown(file, Some(other.uid()), Some(other.gid()));
    }
    file.set_permissions(fs::Permissions::from_mode(other.mode() & 0o7777))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_is_unchanged_when_call_is_cancelled() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.txt");
        fs::write(&path, "old").unwrap();
        let cancelled = CancellationToken::new();
        cancelled.cancel();
        save(&path, Some(&path.metadata().unwrap()), b"new", &cancelled).unwrap_err();
        assert_eq!(fs::read_to_string(&path).unwrap(), "old");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "no temporary file is left");
    }
}

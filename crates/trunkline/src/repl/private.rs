//! Files that are nobody else's business: what was said, and to whom.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

/// Opens a file to read it and add to it, and makes it and its folder where they are not there.
pub(super) fn open(path: &Path) -> io::Result<File> {
    if let Some(folder) = path.parent() {
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    }
    OpenOptions::new().create(true).read(true).append(true).mode(0o600).open(path)
}

//! Keeps the state folder private to its user. Checked at each start, because a run can change modes.
//!
//! Landlock has no right for `chmod`, so a confined run that may not write to the state folder can still open it to other
//! users. Files and folders that are open to others are closed again, with a warning. If one cannot be closed, the program
//! does not start.

use std::fs::{self, Metadata, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use rustix::process::geteuid;

use crate::config::ConfigError;

/// Mode bits of the group and of others.
const OTHERS: u32 = 0o077;

/// Write bits of the group and of others.
const OTHERS_WRITE: u32 = 0o022;

/// Mode bit of a folder in which users can remove only their own files, like `/tmp`.
const STICKY: u32 = 0o1000;

/// Folders in the state folder that hold prompts and answers.
const CONTENT_FOLDERS: [&str; 3] = ["log", "runs", "chats"];

/// Removes the permissions of other users from the state folder, its files and its folders.
pub(crate) fn make_private(state: &Path) -> Result<(), ConfigError> {
    let Ok(about) = fs::metadata(state) else { return Ok(()) };
    if !is_ours(&about) || about.mode() & STICKY != 0 {
        return check_shared(state, &about);
    }
    if let Some(before) = close(state, &about).map_err(|error| refused(state, &error))? {
        tracing::warn!("the state folder {} was open to other users (mode {before:o}): closed", state.display());
    }
    let inside = fs::read_dir(state).into_iter().flatten().flatten().map(|entry| entry.path());
    let below = CONTENT_FOLDERS.iter().filter_map(|name| fs::read_dir(state.join(name)).ok());
    let below = below.flatten().flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    for path in inside.chain(below.map(|entry| entry.path())) {
        match fs::symlink_metadata(&path) {
            Ok(about) if !about.is_symlink() && is_ours(&about) => {
                // Not logged: other users cannot reach it now that the folder is closed.
                let _ = close(&path, &about).map_err(|error| refused(&path, &error))?;
            }
            // A link, another user's file, or already removed.
            Ok(_) | Err(_) => {}
        }
    }
    Ok(())
}

fn is_ours(about: &Metadata) -> bool {
    about.uid() == geteuid().as_raw()
}

/// Checks a folder that is shared or owned by another user: it is used as it is, unless others can create files in it.
fn check_shared(state: &Path, about: &Metadata) -> Result<(), ConfigError> {
    if about.mode() & OTHERS_WRITE == 0 || about.mode() & STICKY != 0 {
        return Ok(());
    }
    let message = format!("the state folder belongs to user {}, and others may write to it", about.uid());
    Err(ConfigError::new(state, message).hint("choose a folder of your own with --state, or change its owner and mode"))
}

/// Closes a file or folder to other users. Returns its previous mode if it had to be changed.
fn close(path: &Path, about: &Metadata) -> io::Result<Option<u32>> {
    let mode = about.mode() & 0o7777;
    if mode & OTHERS == 0 {
        return Ok(None);
    }
    fs::set_permissions(path, Permissions::from_mode(mode & 0o700))?;
    Ok(Some(mode))
}

fn refused(path: &Path, error: &io::Error) -> ConfigError {
    let message = format!("is open to other users, and its mode cannot be changed: {error}");
    ConfigError::new(path, message).hint("chmod it to 700 (a file: 600), or choose another folder with --state")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().mode() & 0o7777
    }

    fn open_to_all(path: &Path) {
        fs::set_permissions(path, Permissions::from_mode(0o777)).unwrap();
    }

    #[test]
    fn closes_state_to_others_when_a_run_has_opened_it() {
        let folder = tempfile::tempdir().unwrap();
        let (state, outside) = (folder.path().join("state"), folder.path().join("outside"));
        let day = state.join("runs/01234");
        fs::create_dir_all(&day).unwrap();
        fs::write(state.join("trunkline.db"), "").unwrap();
        fs::write(&outside, "").unwrap();
        std::os::unix::fs::symlink(&outside, state.join("link")).unwrap();
        let all = [state.clone(), state.join("trunkline.db"), state.join("runs"), day.clone(), outside.clone()];
        all.iter().for_each(|path| open_to_all(path));
        make_private(&state).unwrap();
        let modes: Vec<u32> = all.iter().map(|path| mode(path)).collect();
        assert_eq!(modes, [0o700, 0o700, 0o700, 0o700, 0o777], "the target of a link is not changed");
        make_private(&folder.path().join("none")).unwrap();
    }

    #[test]
    fn leaves_a_sticky_folder_unchanged() {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), Permissions::from_mode(0o1777)).unwrap();
        make_private(folder.path()).unwrap();
        assert_eq!(mode(folder.path()), 0o1777);
    }
}

//! Private home of a CLI: its state lives in our state folder, with links to the user's credentials and configuration. Also the
//! settings files that the gateway provides.

mod share;

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, symlink};
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use trunkline_core::failure::{Category, Failure};
use trunkline_core::provider::{Home, SettingsFile};

use crate::attempt::file_memo::Sources;
use share::{add_if_link, if_not, link, share};

/// File that marks a private home as filled.
const FILLED_MARK: &str = ".shared";

/// Folder of a provider's private home.
pub(crate) fn folder(state: &Path, provider: &str) -> PathBuf {
    state.join("homes").join(provider)
}

/// Prepares the private home. `own` is the user's own folder for this CLI. Notes the files on which the home depends.
pub(crate) fn prepare(
    home: &Home,
    state: &Path,
    provider: &str,
    own: &Path,
    sources: &mut Sources,
) -> Result<(), Failure> {
    let folder = folder(state, provider);
    fill(home, &folder, own, sources)
        .map_err(|error| Failure::new(Category::Configuration, format!("cannot prepare {}: {error}", folder.display())))
}

/// Path of a provider's settings file.
pub(crate) fn settings_path(state: &Path, provider: &str) -> PathBuf {
    state.join("settings").join(provider).with_extension("json")
}

/// Writes a provider's settings file, unless it is up to date.
pub(crate) fn write_settings(
    file: &SettingsFile,
    state: &Path,
    provider: &str,
    sources: &mut Sources,
) -> Result<(), Failure> {
    let path = settings_path(state, provider);
    write_once(&state.join("settings"), &format!("{provider}.json"), &file.content, sources)
        .map_err(|error| Failure::new(Category::Configuration, format!("cannot write {}: {error}", path.display())))
}

/// Folder of a recipe's own files.
pub(crate) fn files_path(state: &Path, provider: &str) -> PathBuf {
    state.join("settings").join(provider)
}

/// Writes a recipe's own files, except those that are up to date.
pub(crate) fn write_files(
    files: &BTreeMap<String, String>,
    state: &Path,
    provider: &str,
    sources: &mut Sources,
) -> Result<(), Failure> {
    let folder = files_path(state, provider);
    let refuse = |name: &str, why: &dyn fmt::Display| {
        Failure::new(Category::Configuration, format!("cannot write {name} of {provider}: {why}"))
    };
    for (name, content) in files {
        if name.is_empty() || name.starts_with('.') || name.contains('/') {
            return Err(refuse(&format!("{name:?}"), &"it is not a plain file name"));
        }
        write_once(&folder, name, content, sources)
            .map_err(|error| refuse(&folder.join(name).display().to_string(), &error))?;
    }
    Ok(())
}

/// Writes a file atomically, unless it has the same content already.
fn write_once(folder: &Path, name: &str, content: &str, sources: &mut Sources) -> io::Result<()> {
    let path = folder.join(name);
    sources.add(&path);
    match fs::read_to_string(&path) {
        Ok(text) if text == content => return Ok(()),
        // The process that is started next needs file descriptors as well, and reports the error.
        Err(error) if is_exhausted(&error) && path.exists() => {
            sources.set_incomplete();
            return Ok(());
        }
        Ok(_) | Err(_) => {}
    }
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let beside = folder.join(uuid::Uuid::new_v4().to_string());
    fs::write(&beside, content)?;
    fs::rename(beside, path)
}

fn fill(home: &Home, folder: &Path, own: &Path, sources: &mut Sources) -> io::Result<()> {
    // A file that appears or disappears changes its folder.
    sources.add(folder);
    sources.add(own);
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    for name in &home.link {
        let from = own.join(name);
        add_if_link(&from, sources);
        link(&from, &folder.join(name))?;
    }
    for name in &home.copy {
        let from = own.join(name);
        // A file that does not exist yet would change its folder.
        if from.symlink_metadata().is_ok() {
            sources.add(&from);
        }
        copy(&from, folder, name)?;
    }
    let Some(state) = &home.state else { return Ok(()) };
    let shared = folder.join(FILLED_MARK);
    match share(home, state, own, folder, Path::new(""), sources) {
        Ok(()) if shared.is_symlink() => Ok(()),
        // A dangling link: a run can write here, and a file that it puts in this place is not followed.
        Ok(()) => symlink("filled", shared).or_else(|error| if_not(error, io::ErrorKind::AlreadyExists)),
        // Everything is there from the last time. The start that follows needs files as well, and reports it.
        Err(error) if is_exhausted(&error) && shared.is_symlink() => {
            sources.set_incomplete();
            Ok(())
        }
        Err(error) => Err(error),
    }
}

fn is_exhausted(error: &io::Error) -> bool {
    let limits = [Errno::MFILE, Errno::NFILE].map(Errno::raw_os_error);
    error.raw_os_error().is_some_and(|code| limits.contains(&code))
}

/// Copies a file of the user if it has changed since the last copy, and removes the copy of a file that no longer exists. Until
/// then, changes that the CLI makes to the copy persist.
fn copy(from: &Path, folder: &Path, name: &str) -> io::Result<()> {
    let (to, stamp) = (folder.join(name), folder.join(format!(".{name}.copied")));
    let Ok(found) = fs::metadata(from) else {
        if stamp.is_symlink() {
            for file in [to, stamp] {
                fs::remove_file(file).or_else(|error| if_not(error, io::ErrorKind::NotFound))?;
            }
        }
        return Ok(());
    };
    // The stamp is a symlink, which can be read without a file descriptor: there may be none left.
    let now = format!("{}.{}-{}", found.mtime(), found.mtime_nsec(), found.len());
    if to.exists() && fs::read_link(&stamp).is_ok_and(|before| before == Path::new(&now)) {
        return Ok(());
    }
    let beside = folder.join(format!(".{name}.{}", uuid::Uuid::new_v4()));
    fs::copy(from, &beside)?;
    fs::rename(&beside, &to)?;
    let beside = folder.join(format!(".{name}.{}", uuid::Uuid::new_v4()));
    symlink(now, &beside)?;
    fs::rename(beside, stamp)
}

#[cfg(test)]
mod tests;

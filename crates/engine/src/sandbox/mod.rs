//! The paths that a run may write, enforced by the kernel. The CLI gets the same permissions as arguments; the kernel enforces them
//! for a CLI that ignores its arguments, and for every process that it starts.
//!
//! A Landlock rule opens a folder with everything below: nothing inside can be closed again. So a run in a worktree gets the parts
//! of the repository that git needs for a commit one by one, without hooks and settings; a run in the checkout itself gets all of
//! it, `.git` included.

mod places;
pub(crate) mod untrusted;

use std::fmt;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, openat2, statat};
use rustix::io::Errno;
use trunkline_core::event::Enforcement;
use trunkline_core::failure::{Category, Failure};
use trunkline_core::model::{Backend, Model, Sandbox};
use trunkline_core::provider::Provider;
use trunkline_core::vocabulary::{CliPermissions, Permissions, PromptDelivery};
use trunkline_process::{Confinement, Landlock, LandlockUnavailable};

use self::untrusted::MAX_GIT_FILE_BYTES;
use places::{CACHES, DEVICES, TEMPORARY};
pub(crate) use places::{Variable, expand, in_list};

/// The paths that a run may write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Bounds {
    /// Everything that the user may write, and the reason.
    Free(Free),
    /// These files, and these folders with everything below.
    Within(Vec<PathBuf>),
}

/// Reason why the gateway does not confine a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Free {
    /// The model has `full` permissions.
    Full,
    /// The sandbox is off for the model or for all models.
    Off,
    /// The CLI confines its tools itself, and its sandbox does not work inside ours.
    Own,
    /// The provider is a protocol executable: a program of the user, not of an agent.
    Executable,
    /// The kernel does not support it.
    Missing(LandlockUnavailable),
}

impl fmt::Display for Free {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full => f.write_str("anywhere: its permissions are full"),
            Self::Off => f.write_str("anywhere, if the CLI lets it: the sandbox is off"),
            Self::Own => f.write_str("what the CLI's own sandbox allows"),
            Self::Executable => f.write_str("anywhere: a provider executable is not confined"),
            Self::Missing(missing) => write!(f, "anywhere, if the CLI lets it: {missing}"),
        }
    }
}

/// The paths that a confined run may write.
pub(crate) struct Scene<'a> {
    pub(crate) permissions: Permissions,
    /// The workspace, and the parts of the repository that git needs.
    pub(crate) workspace: Vec<PathBuf>,
    /// Paths that do not depend on the run, from [`usual_places`].
    pub(crate) usual: &'a Arc<[PathBuf]>,
}

impl Scene<'_> {
    /// The paths, the workspace first.
    pub(crate) fn writable(&self) -> Vec<PathBuf> {
        let workspace = self.writable_workspace();
        let others = self.usual.iter().filter(|path| !workspace.contains(path));
        workspace.iter().chain(others).cloned().collect()
    }

    /// Whether a path is inside a writable one.
    pub(crate) fn can_write(&self, path: &Path) -> bool {
        self.writable_workspace().iter().chain(&**self.usual).any(|place| path.starts_with(place))
    }

    /// The paths in the form that a keeper applies. Creates the state and cache folders of the CLI, which it could not create inside
    /// its bounds.
    ///
    /// Earlier runs could write in the workspace, so its paths are pinned: a symlink that one of them left opens nothing.
    pub(crate) fn confinement(self) -> Confinement {
        let of_workspace = |path: &&PathBuf| self.workspace.contains(path);
        let shared = if self.usual.iter().any(|path| of_workspace(&path)) {
            self.usual.iter().filter(|path| !of_workspace(path)).cloned().collect()
        } else {
            Arc::clone(self.usual)
        };
        for folder in shared.iter().filter(|path| ends_in_slash(path)) {
            // If this fails, the CLI reports it with more context.
            let _ = create_folder(folder);
        }
        let pinned = match self.permissions {
            Permissions::Read => self.usual.iter().filter(of_workspace).cloned().collect(),
            Permissions::Edit | Permissions::Full => self.workspace,
        };
        Confinement { shared, writable: Vec::new(), pinned }
    }

    fn writable_workspace(&self) -> &[PathBuf] {
        match self.permissions {
            Permissions::Read => &[],
            Permissions::Edit | Permissions::Full => &self.workspace,
        }
    }
}

/// Writable paths that are the same for every run of a model: `own` (a private home), those of the model, the state of its CLI, and
/// the places of every run. `recipe` is `None` for the built-in agent, and `variable` returns paths in the environment of a run.
pub(crate) fn usual_places(
    model: &Model,
    recipe: Option<&Provider>,
    own: Vec<PathBuf>,
    variable: Variable<'_>,
) -> Vec<PathBuf> {
    let state = recipe.iter().flat_map(|recipe| &recipe.state).filter_map(|place| expand(place, variable));
    let everybody = TEMPORARY.into_iter().chain(DEVICES).chain(CACHES).filter_map(|place| expand(place, variable));
    let mut all: Vec<PathBuf> =
        own.into_iter().chain(model.writable.iter().cloned()).chain(state).chain(everybody).collect();
    let mut seen = std::collections::BTreeSet::new();
    all.retain(|path| seen.insert(path.clone()));
    all
}

/// Reason why the gateway does not confine a run of the model; `None` if it does. Fails if the run must be confined and cannot be.
pub(crate) fn freedom(model: &Model, usual: Sandbox, recipe: Option<&Provider>) -> Result<Option<Free>, Failure> {
    let sandbox = model.sandbox.unwrap_or(usual);
    match (free(model, sandbox, recipe), sandbox) {
        (Some(Free::Missing(missing)), Sandbox::Required) => {
            let message = format!("{} must be confined, and cannot be: {missing}", model.name);
            Err(Failure::new(Category::Configuration, message).hint("sandbox: required"))
        }
        (free, _) => Ok(free),
    }
}

/// Creates a folder and those above it. One that exists costs a single system call.
fn create_folder(folder: &Path) -> io::Result<()> {
    match rustix::fs::mkdir(folder, Mode::RWXU) {
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(_) => fs::DirBuilder::new().recursive(true).mode(0o700).create(folder),
    }
}

/// Reason why the gateway does not confine a run of the model; `None` if it does.
fn free(model: &Model, sandbox: Sandbox, recipe: Option<&Provider>) -> Option<Free> {
    match (model.permissions, sandbox, recipe) {
        (Permissions::Full, ..) => Some(Free::Full),
        (_, _, Some(recipe)) if recipe.prompt == PromptDelivery::Request => Some(Free::Executable),
        (_, Sandbox::On | Sandbox::Off, Some(recipe)) if recipe.own_sandbox => Some(Free::Own),
        (_, Sandbox::Off, _) => Some(Free::Off),
        (_, Sandbox::On | Sandbox::Required, _) => Landlock::here().err().map(Free::Missing),
    }
}

/// Permissions that the CLI gets as arguments. If the kernel confines the run to its workspace, `edit` includes commands. A CLI
/// whose own sandbox does not work inside ours then gets all permissions, and only the kernel confines it.
pub(crate) fn told(model: &Model, usual: Sandbox, recipe: &Provider) -> CliPermissions {
    let confined = free(model, model.sandbox.unwrap_or(usual), Some(recipe)).is_none();
    match (model.permissions, confined) {
        (Permissions::Read | Permissions::Edit, true) if recipe.own_sandbox => CliPermissions::Full,
        (Permissions::Read, _) => CliPermissions::Read,
        (Permissions::Edit, true) => CliPermissions::EditConfined,
        (Permissions::Edit, false) => CliPermissions::Edit,
        (Permissions::Full, _) => CliPermissions::Full,
    }
}

/// The layer that enforces the permissions of a run of the model; `None` if there is nothing to enforce.
pub(crate) fn held(model: &Model, usual: Sandbox) -> Option<Enforcement> {
    let recipe = match &model.backend {
        Backend::Api(_) => return None,
        Backend::Agent(_) => None,
        Backend::Program(provider) => Some(provider.as_ref()),
    };
    match free(model, model.sandbox.unwrap_or(usual), recipe) {
        None => Some(Enforcement::Kernel),
        Some(Free::Own) => Some(Enforcement::Cli),
        Some(Free::Off | Free::Missing(_)) => Some(Enforcement::Off),
        Some(Free::Full | Free::Executable) => None,
    }
}

fn ends_in_slash(path: &Path) -> bool {
    path.as_os_str().as_encoded_bytes().ends_with(b"/")
}

/// Writable paths of a checkout: the folder and, for a linked worktree, the parts of its repository. Examined for every run, because
/// an earlier run may have replaced a part of the path by a symlink, or the repository's `.git` by another.
pub(crate) fn checkout(repo: &Path) -> Vec<PathBuf> {
    if let Ok(git) = real_folder(repo).and_then(|folder| git_entry(&folder))
        && git != Some(FileType::RegularFile)
    {
        return vec![repo.to_owned()];
    }
    let repo = &repo.canonicalize().unwrap_or_else(|_| repo.to_owned());
    let mut parts = vec![repo.clone()];
    parts.extend(linked(repo).map(|registration| of_worktree(&registration)).unwrap_or_default());
    parts
}

/// Opens a folder whose path is canonical: absolute, and without a symlink anywhere. That takes one system call, and finding the
/// canonical path one for each part.
fn real_folder(folder: &Path) -> rustix::io::Result<OwnedFd> {
    let is_plain = folder.is_absolute() && folder.components().all(|part| part != Component::ParentDir);
    if !is_plain || ends_in_slash(folder) {
        return Err(Errno::INVAL);
    }
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    openat2(CWD, folder, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS)
}

/// The kind of `.git` in a folder; `None` if there is none.
fn git_entry(folder: &OwnedFd) -> rustix::io::Result<Option<FileType>> {
    match statat(folder, ".git", AtFlags::SYMLINK_NOFOLLOW) {
        Ok(found) => Ok(Some(FileType::from_raw_mode(found.st_mode))),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Paths that git writes for a commit in a worktree, outside of the worktree. Excludes hooks, settings, the index and HEAD of the
/// checkout, and other worktrees.
pub(crate) fn of_worktree(registration: &Path) -> Vec<PathBuf> {
    let common = registration.parent().and_then(Path::parent).unwrap_or(registration);
    let shared = ["objects", "refs", "logs", "reftable", "lfs"].map(|part| common.join(part));
    [registration.to_owned()].into_iter().chain(shared).collect()
}

/// The folder in which a repository registers this worktree. The worktree's own `.git` file is not enough: an agent may have made it
/// point elsewhere. The repository must confirm it.
fn linked(repo: &Path) -> Option<PathBuf> {
    let link = repo.join(".git");
    let read = |path: &Path| String::from_utf8(untrusted::read(path, MAX_GIT_FILE_BYTES).ok()?).ok();
    let said = fs::symlink_metadata(&link).ok().filter(fs::Metadata::is_file).and_then(|_| read(&link))?;
    let registration = repo.join(said.strip_prefix("gitdir: ")?.trim_end()).canonicalize().ok()?;
    let worktrees = registration.parent().filter(|folder| folder.ends_with("worktrees"))?;
    let back = read(&registration.join("gitdir"))?;
    let back = worktrees.join(back.trim_end()).canonicalize().ok()?;
    (back == link.canonicalize().ok()?).then_some(registration)
}

#[cfg(test)]
mod tests;

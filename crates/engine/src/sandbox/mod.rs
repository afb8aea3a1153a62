//! The paths that a run may write, enforced by the kernel. The CLI gets the same permissions as arguments; the kernel enforces them
//! for a CLI that ignores its arguments, and for every process that it starts.
//!
//! A Landlock rule opens a folder with everything below: nothing inside can be closed again. So a run in a worktree gets the parts
//! of the repository that git needs for a commit one by one, without hooks and settings; a run in the checkout itself gets all of
//! it, `.git` included.

mod places;
pub(crate) mod untrusted;

use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use trunkline_core::event::Held;
use trunkline_core::failure::{Category, Failure};
use trunkline_core::model::{Backend, Model, Sandbox};
use trunkline_core::provider::{Delivery, Permissions, Provider, Told};
use trunkline_process::{Confinement, Landlock, Missing};

use self::untrusted::MAX_GIT_FILE_BYTES;
pub(crate) use places::expand;
use places::{CACHES, DEVICES, TEMPORARY};

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
    Missing(Missing),
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

/// Input for the bounds of a run.
pub(crate) struct Scene<'a> {
    /// Sandbox setting of models that do not set it.
    pub(crate) usual: Sandbox,
    pub(crate) model: &'a Model,
    /// `None` for the built-in agent.
    pub(crate) recipe: Option<&'a Provider>,
    /// Environment of the run, with the locations of its home and caches.
    pub(crate) env: &'a [(OsString, OsString)],
    /// The workspace, and the parts of the repository that git needs.
    pub(crate) workspace: Vec<PathBuf>,
    /// Further writable paths: a private home.
    pub(crate) own: Vec<PathBuf>,
}

impl Scene<'_> {
    /// The bounds of the run. Fails if the run must be confined and cannot be.
    pub(crate) fn bounds(&self) -> Result<Bounds, Failure> {
        let sandbox = self.model.sandbox.unwrap_or(self.usual);
        match (free(self.model, sandbox, self.recipe), sandbox) {
            (None, _) => Ok(Bounds::Within(self.writable())),
            (Some(Free::Missing(missing)), Sandbox::Required) => {
                let message = format!("{} must be confined, and cannot be: {missing}", self.model.name);
                Err(Failure::new(Category::Configuration, message).hint("sandbox: required"))
            }
            (Some(free), _) => Ok(Bounds::Free(free)),
        }
    }

    /// The bounds in the form that a keeper applies. Creates the state and cache folders of the CLI, which it could not create inside
    /// its bounds.
    ///
    /// Earlier runs could write in the workspace, so its paths are pinned: a symlink that one of them left opens nothing.
    pub(crate) fn confinement(&self) -> Result<Option<Confinement>, Failure> {
        let Bounds::Within(writable) = self.bounds()? else { return Ok(None) };
        let (pinned, writable): (Vec<_>, Vec<_>) = writable.into_iter().partition(|path| self.workspace.contains(path));
        for folder in writable.iter().filter(|path| ends_in_slash(path)) {
            // If this fails, the CLI reports it with more context.
            let _ = fs::DirBuilder::new().recursive(true).mode(0o700).create(folder);
        }
        Ok(Some(Confinement { writable, pinned }))
    }

    fn writable(&self) -> Vec<PathBuf> {
        let workspace = match self.model.permissions {
            Permissions::Read => &[],
            Permissions::Edit | Permissions::Full => &self.workspace[..],
        };
        let everybody = TEMPORARY.into_iter().chain(DEVICES).chain(CACHES).filter_map(|place| expand(place, self.env));
        let own = self.own.iter().chain(&self.model.writable).cloned();
        let mut all: Vec<PathBuf> = workspace.iter().cloned().chain(own).chain(self.state()).chain(everybody).collect();
        let mut seen = std::collections::BTreeSet::new();
        all.retain(|path| seen.insert(path.clone()));
        all
    }

    fn state(&self) -> Vec<PathBuf> {
        let places = self.recipe.iter().flat_map(|recipe| &recipe.state);
        places.filter_map(|place| expand(place, self.env)).collect()
    }
}

/// Reason why the gateway does not confine a run of the model; `None` if it does.
fn free(model: &Model, sandbox: Sandbox, recipe: Option<&Provider>) -> Option<Free> {
    match (model.permissions, sandbox, recipe) {
        (Permissions::Full, ..) => Some(Free::Full),
        (_, _, Some(recipe)) if recipe.prompt == Delivery::Request => Some(Free::Executable),
        (_, Sandbox::On | Sandbox::Off, Some(recipe)) if recipe.own_sandbox => Some(Free::Own),
        (_, Sandbox::Off, _) => Some(Free::Off),
        (_, Sandbox::On | Sandbox::Required, _) => Landlock::here().err().map(Free::Missing),
    }
}

/// Permissions that the CLI gets as arguments. If the kernel confines the run to its workspace, `edit` includes commands. A CLI
/// whose own sandbox does not work inside ours then gets all permissions, and only the kernel confines it.
pub(crate) fn told(model: &Model, usual: Sandbox, recipe: &Provider) -> Told {
    let confined = free(model, model.sandbox.unwrap_or(usual), Some(recipe)).is_none();
    match (model.permissions, confined) {
        (Permissions::Read | Permissions::Edit, true) if recipe.own_sandbox => Told::Full,
        (Permissions::Read, _) => Told::Read,
        (Permissions::Edit, true) => Told::EditConfined,
        (Permissions::Edit, false) => Told::Edit,
        (Permissions::Full, _) => Told::Full,
    }
}

/// The layer that enforces the permissions of a run of the model; `None` if there is nothing to enforce.
pub(crate) fn held(model: &Model, usual: Sandbox) -> Option<Held> {
    let recipe = match &model.backend {
        Backend::Api(_) => return None,
        Backend::Agent(_) => None,
        Backend::Program(provider) => Some(provider.as_ref()),
    };
    match free(model, model.sandbox.unwrap_or(usual), recipe) {
        None => Some(Held::Kernel),
        Some(Free::Own) => Some(Held::Cli),
        Some(Free::Off | Free::Missing(_)) => Some(Held::Off),
        Some(Free::Full | Free::Executable) => None,
    }
}

fn ends_in_slash(path: &Path) -> bool {
    path.as_os_str().as_encoded_bytes().ends_with(b"/")
}

/// Writable paths of a checkout: the folder and, for a linked worktree, the parts of its repository.
pub(crate) fn checkout(repo: &Path) -> Vec<PathBuf> {
    let repo = &repo.canonicalize().unwrap_or_else(|_| repo.to_owned());
    let mut parts = vec![repo.clone()];
    parts.extend(linked(repo).map(|registration| of_worktree(&registration)).unwrap_or_default());
    parts
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

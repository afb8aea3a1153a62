//! What a run of a model may write, as the kernel will hold it. The permissions are also told to the CLI; here they are
//! meant for one that does not listen, and for everything that it starts.
//!
//! What a rule opens it opens with all that is beneath: nothing inside can be closed again. So a worktree's run gets the
//! parts of the repository that git needs for a commit one by one, and neither its hooks nor its settings; a run in the
//! checkout itself has all of it, `.git` included.

mod places;

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

use crate::untrusted::{self, MAX_GIT_FILE_BYTES};
pub(crate) use places::expand;
use places::{CACHES, DEVICES, TEMPORARY};

/// What a run may write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Bounds {
    /// Whatever the user may, and why.
    Free(Free),
    /// These files, and these folders with all that is in them.
    Within(Vec<PathBuf>),
}

/// Why a run is not confined by us.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Free {
    /// Its permissions are full.
    Full,
    /// It is switched off for the model, or for all.
    Off,
    /// Its CLI confines its tools itself, and cannot inside bounds of ours.
    Own,
    /// An executable of the provider protocol: a program of the user's own, not an agent's.
    Executable,
    /// This machine cannot.
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

/// What is known of a run when its bounds are drawn.
pub(crate) struct Scene<'a> {
    /// What holds for a model that does not say.
    pub(crate) usual: Sandbox,
    pub(crate) model: &'a Model,
    /// None for the built-in agent.
    pub(crate) recipe: Option<&'a Provider>,
    /// The run's own environment, which says where its home and its caches are.
    pub(crate) env: &'a [(OsString, OsString)],
    /// Its workspace, and what of git's it needs.
    pub(crate) workspace: Vec<PathBuf>,
    /// What else it must write: a home that we gave it.
    pub(crate) own: Vec<PathBuf>,
}

impl Scene<'_> {
    /// The bounds of the run; an error where it must have some and cannot.
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

    /// The bounds as a program is started with them. Folders that a CLI makes for itself, for its state and its cache, are
    /// there before: inside its bounds it could not make them.
    ///
    /// The workspace lies where earlier runs could write, and is pinned: a link that one of them left there opens nothing.
    pub(crate) fn confinement(&self) -> Result<Option<Confinement>, Failure> {
        let Bounds::Within(writable) = self.bounds()? else { return Ok(None) };
        let (pinned, writable): (Vec<_>, Vec<_>) = writable.into_iter().partition(|path| self.workspace.contains(path));
        for folder in writable.iter().filter(|path| ends_in_slash(path)) {
            // Where it cannot be made, the CLI says it better than we could.
            let _tried = fs::DirBuilder::new().recursive(true).mode(0o700).create(folder);
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

/// Why a run of the model is not confined by us; none if it is.
fn free(model: &Model, sandbox: Sandbox, recipe: Option<&Provider>) -> Option<Free> {
    match (model.permissions, sandbox, recipe) {
        (Permissions::Full, ..) => Some(Free::Full),
        (_, _, Some(recipe)) if recipe.prompt == Delivery::Request => Some(Free::Executable),
        (_, Sandbox::On | Sandbox::Off, Some(recipe)) if recipe.own_sandbox => Some(Free::Own),
        (_, Sandbox::Off, _) => Some(Free::Off),
        (_, Sandbox::On | Sandbox::Required, _) => Landlock::here().err().map(Free::Missing),
    }
}

/// Permissions as the CLI is told them. Where the kernel confines the run to its workspace, `edit` includes commands. A CLI
/// whose own sandbox does not work inside ours is then told that it may do anything: the kernel alone holds it.
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

/// Who holds a run of the model to its permissions; none where there is nothing to hold.
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

/// What of a checkout is written: the folder, and if it is a worktree that git made, what it keeps of it elsewhere.
pub(crate) fn checkout(repo: &Path) -> Vec<PathBuf> {
    let repo = &repo.canonicalize().unwrap_or_else(|_| repo.to_owned());
    let mut parts = vec![repo.clone()];
    parts.extend(linked(repo).map(|registration| of_worktree(&registration)).unwrap_or_default());
    parts
}

/// What git writes for a commit in a worktree, beside the worktree: not the hooks, the settings, the checkout's own index
/// and HEAD, nor another worktree's.
pub(crate) fn of_worktree(registration: &Path) -> Vec<PathBuf> {
    let common = registration.parent().and_then(Path::parent).unwrap_or(registration);
    let shared = ["objects", "refs", "logs", "reftable", "lfs"].map(|part| common.join(part));
    [registration.to_owned()].into_iter().chain(shared).collect()
}

/// The folder that a repository keeps for this worktree of its. The worktree alone is not believed: an agent may have
/// written there that it belongs to somebody's home. The repository must say so as well.
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

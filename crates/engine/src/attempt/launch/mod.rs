//! One turn of one model as a command to start: where its program is, what it is told, and how it is called.
//!
//! [`prompt`] builds its input, [`command`] the process, and [`places`] its environment and the paths that it may write.

mod command;
mod places;
mod prompt;

use std::path::PathBuf;
use std::sync::Arc;

use trunkline_core::failure::Failure;
use trunkline_core::model::Model;
use trunkline_core::provider::Provider;
use trunkline_core::turn::Turn;

use crate::attempt::agent_file;
use crate::attempt::program::{Located, locate_noting};
use crate::attempt::request::BeginError;
use crate::attempt::template::LaunchTemplate;
use crate::router::models::Models;
use crate::settings::EngineSettings;

/// The turn that a [`Launch`] is for.
#[derive(Clone, Copy)]
pub(crate) struct LaunchRequest<'a> {
    pub(crate) settings: &'a EngineSettings,
    pub(crate) turn: &'a Turn,
    pub(crate) models: &'a Models,
    pub(crate) run: &'a str,
    /// Mark of this gateway in the environment of its processes.
    pub(crate) owner: &'a str,
}

/// A turn on a model.
pub(crate) struct Launch<'a> {
    pub(crate) request: LaunchRequest<'a>,
    pub(crate) model: &'a Model,
    pub(crate) provider: &'a Provider,
    template: Arc<LaunchTemplate>,
}

impl<'a> LaunchRequest<'a> {
    /// A launch of a model that has had turns before, or will have more.
    pub(crate) fn of(self, model: &'a Arc<Model>, provider: &'a Provider) -> Launch<'a> {
        let template = self.models.templates().of(model, || self.template(model, provider));
        Launch { request: self, model, provider, template }
    }

    /// A launch of a model for which nothing is kept.
    pub(crate) fn once(self, model: &'a Model, provider: &'a Provider) -> Launch<'a> {
        Launch { request: self, model, provider, template: Arc::new(self.template(model, provider)) }
    }

    fn template(&self, model: &Model, provider: &Provider) -> LaunchTemplate {
        LaunchTemplate::new(self.settings, self.models, model, provider, self.owner)
    }
}

impl Launch<'_> {
    /// Path of the program. Fails if the program or the repository is missing.
    pub(crate) fn program(&self) -> Result<PathBuf, Failure> {
        agent_file::check_repo(&self.model.repo)?;
        self.located().map(|located| located.path)
    }

    /// As [`program`](Self::program), but leaves it to the start to notice what is missing: [`explain`](Self::explain) then
    /// gives the reason.
    pub(crate) fn program_unchecked(&self) -> Result<PathBuf, Failure> {
        let command = self.model.command.as_deref();
        // A launcher may stand for another program.
        let own = || Some(self.provider.program.as_str()).filter(|_| self.provider.native.is_empty());
        match command.or_else(own).filter(|program| program.contains('/')) {
            Some(path) => Ok(PathBuf::from(path)),
            None => self.located().map(|located| located.path),
        }
    }

    /// The reason why the process could not be started, if it is a program or a repository that is missing.
    pub(crate) fn explain(&self, failed: BeginError) -> BeginError {
        match (&failed, self.program()) {
            (BeginError::Failed(_), Err(missing)) => BeginError::Failed(missing),
            (BeginError::Failed(_) | BeginError::Exhausted(_), _) => failed,
        }
    }

    fn located(&self) -> Result<Located, Failure> {
        let (command, path) = (self.model.command.as_deref(), self.request.settings.variable("PATH"));
        self.template.program.get(|sources| locate_noting(self.provider, command, path, sources))
    }
}

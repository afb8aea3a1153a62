//! The surroundings of a process: its environment, the files that the gateway provides for it, and the paths that it may write.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use trunkline_core::failure::Failure;
use trunkline_core::live::OwnServers;
use trunkline_core::provider::SettingsFile;
use trunkline_process::Environment;

use super::Launch;
use crate::attempt::environment::{Child, of_child};
use crate::attempt::template::PrivateHome;
use crate::attempt::{compile_cache, home};
use crate::sandbox::{self, Bounds, Free, Scene};
use crate::shared::Shared;

impl Launch<'_> {
    /// Folder with the program's compiled code, whether it exists or not. `None` for a program that is not run by Node, and for
    /// a run that could write the folder.
    pub(crate) fn compiled(&self, program: &Path) -> Option<PathBuf> {
        let own = [compile_cache::VARIABLE, "NODE_DISABLE_COMPILE_CACHE"];
        let own = || {
            own.iter().any(|name| self.model.env.contains_key(*name) || self.request.settings.variable(name).is_some())
        };
        if !self.provider.node_compile_cache || own() {
            return None;
        }
        let path = self.request.settings.variable("PATH")?;
        let name = self.template.compiled.get(|sources| {
            let nodes = std::env::split_paths(path).map(|folder| folder.join("node"));
            let node = { nodes }.find(|node| {
                sources.add(node);
                node.is_file()
            });
            sources.add(program);
            Ok::<_, Infallible>(node.and_then(|node| compile_cache::folder_name(self.name(), program, &node)))
        });
        let Ok(name) = name;
        let folder = self.request.settings.state.join("compiled").join(name?);
        match self.freedom().ok()? {
            None => Some(folder).filter(|folder| !self.scene(self.usual_workspace()).can_write(folder)),
            Some(_) => None,
        }
    }

    /// Fills the compile cache for the program's next start.
    pub(crate) fn compile_ahead(&self, shared: &Shared, program: &Path, folder: PathBuf) {
        // `--warm 0` means that no process starts except for a turn.
        if shared.warm.is_open() {
            let question = self.question(program.to_owned(), &self.provider.version, compile_cache::FILL_TIMEOUT);
            shared.compile_cache.fill(folder, self.provider.name.clone(), question);
        }
    }

    /// The paths that a run may write.
    pub(crate) fn bounds(&self) -> Result<Bounds, Failure> {
        Ok(match self.freedom()? {
            None => Bounds::Within(self.scene(self.usual_workspace()).writable()),
            Some(free) => Bounds::Free(free),
        })
    }

    /// Reason why the run is not confined. Fails if it must be confined and cannot be.
    pub(crate) fn freedom(&self) -> Result<Option<Free>, Failure> {
        sandbox::freedom(self.model, self.request.settings.sandbox, Some(self.provider))
    }

    fn usual_workspace(&self) -> Vec<PathBuf> {
        match self.model.worktree {
            true => vec![self.request.settings.worktrees.join(self.request.run)],
            false => sandbox::checkout(&self.model.repo),
        }
    }

    pub(super) fn scene(&self, workspace: Vec<PathBuf>) -> Scene<'_> {
        Scene { permissions: self.model.permissions, workspace, usual: &self.template.writable }
    }

    /// The environment of a run, with the path of the settings file that the gateway provides.
    pub(super) fn environment(&self, run: &str, cwd: &Path) -> Environment {
        let mut env = self.template.environment(run, cwd);
        if let Some(file) = self.own_settings() {
            env.set(&file.env, home::settings_path(&self.request.settings.state, self.name()));
        }
        env
    }

    /// Sets a variable, unless the model does.
    pub(super) fn set_own(&self, env: &mut Environment, name: &str, value: &str) {
        if !self.model.env.contains_key(name) {
            env.set(name, value);
        }
    }

    /// As [`environment`](Self::environment), from another inherited environment and recipe.
    pub(super) fn variables(
        &self,
        inherited: &[(OsString, OsString)],
        recipe: &BTreeMap<String, String>,
        cwd: &Path,
    ) -> Vec<(OsString, OsString)> {
        let all_keys = self.request.models.all_keys();
        let (keys, run, owner, model) = (&self.provider.keys, self.request.run, self.request.owner, &self.model.env);
        of_child(inherited, &Child { keys, all_keys: &all_keys, cwd, run, owner, recipe, model })
    }

    /// Variables for the private home and the settings file that the gateway provides.
    pub(super) fn places(&self) -> BTreeMap<String, String> {
        let home = self.provider.home.as_ref().zip(self.template.private_home.as_ref());
        let home = home.map(|(home, private)| (home.env.clone(), private.folder.clone()));
        let settings = self
            .own_settings()
            .map(|file| (file.env.clone(), home::settings_path(&self.request.settings.state, self.name())));
        home.into_iter().chain(settings).map(|(name, path)| (name, path.to_string_lossy().into_owned())).collect()
    }

    /// Creates the private home, the settings file and the recipe's own files, unless they are complete.
    pub(super) fn prepare_places(&self) -> Result<(), Failure> {
        let (template, state) = (&self.template, &self.request.settings.state);
        if let (Some(home), Some(PrivateHome { own, .. })) = (&self.provider.home, &template.private_home) {
            template.home_is_ready.get(|sources| home::prepare(home, state, self.name(), own, sources))?;
        }
        let settings = self.own_settings();
        if settings.is_none() && self.provider.files.is_empty() {
            return Ok(());
        }
        template.files_are_ready.get(|sources| {
            if let Some(file) = settings {
                home::write_settings(file, state, self.name(), sources)?;
            }
            home::write_files(&self.provider.files, state, self.name(), sources)
        })
    }

    /// Names of the MCP servers in the user's own configuration of the CLI.
    pub(super) fn own_servers(&self, own: &OwnServers) -> Vec<String> {
        let Some(home) = &self.provider.home else { return Vec::new() };
        let of_model = || self.model.env.get(&home.env).map(PathBuf::from);
        let folder = self.template.private_home.as_ref().map(|private| private.own.clone()).or_else(of_model);
        let text = folder.and_then(|folder| fs::read_to_string(folder.join(&own.file)).ok());
        text.map(|text| own.names(&text)).unwrap_or_default()
    }

    fn name(&self) -> &str {
        &self.provider.name
    }

    /// The provider's settings file, unless the user or the system has one.
    fn own_settings(&self) -> Option<&SettingsFile> {
        self.provider.settings.as_ref().filter(|file| {
            !self.model.env.contains_key(&file.env)
                && self.request.settings.variable(&file.env).is_none()
                && (file.system.is_empty() || !Path::new(&file.system).exists())
        })
    }
}

//! The parts of a launch that are the same for every turn of a model: most of its environment, its folders and writable
//! places, and what was found out about its files.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use trunkline_core::model::Model;
use trunkline_core::provider::Provider;
use trunkline_process::Environment;

use crate::attempt::environment::{Child, RUN, of_child};
use crate::attempt::file_memo::FileMemo;
use crate::attempt::home;
use crate::attempt::plan::Folders;
use crate::attempt::program::Located;
use crate::router::models::Models;
use crate::sandbox;
use crate::settings::EngineSettings;

/// Number of templates that are kept. A client may invent model names, each of which has a template of its own.
const MAX_TEMPLATES: usize = 64;

/// Room for the variables of one run.
const RUN_VARIABLES_BYTES: usize = 512;

/// The parts of a launch that are the same for every turn of a model.
#[derive(Debug)]
pub(crate) struct LaunchTemplate {
    env: Environment,
    pub(crate) folders: Folders,
    pub(crate) private_home: Option<PrivateHome>,
    /// Writable paths other than the workspace and the run's own folder for temporary files.
    pub(crate) writable: Arc<[PathBuf]>,
    pub(crate) program: FileMemo<Located>,
    pub(crate) agent_file: FileMemo<Option<Arc<str>>>,
    /// Whether the private home, the settings file and the recipe's own files are complete.
    pub(crate) home_is_ready: FileMemo<()>,
    pub(crate) files_are_ready: FileMemo<()>,
    /// Name of the folder with the program's compiled code.
    pub(crate) compiled: FileMemo<Option<String>>,
}

/// The private home of a CLI, unless the model sets a home itself.
#[derive(Debug)]
pub(crate) struct PrivateHome {
    pub(crate) folder: PathBuf,
    /// The user's own folder for this CLI.
    pub(crate) own: PathBuf,
}

impl LaunchTemplate {
    pub(crate) fn new(
        settings: &EngineSettings,
        models: &Models,
        model: &Model,
        provider: &Provider,
        owner: &str,
    ) -> Self {
        let private_home = private_home(settings, model, provider);
        let mut recipe = provider.env.clone();
        let permissions = sandbox::told(model, settings.sandbox, provider);
        recipe.extend(provider.permissions.of(permissions).env.clone());
        if let (Some(home), Some(private)) = (&provider.home, &private_home) {
            recipe.insert(home.env.clone(), private.folder.to_string_lossy().into_owned());
        }
        let env = environment(settings, models, model, provider, owner, &recipe);
        let own = match (&provider.home, &private_home) {
            (Some(home), Some(private)) => {
                let linked = home.link.iter().map(|name| private.own.join(name));
                [private.folder.clone()].into_iter().chain(linked).collect()
            }
            _ => Vec::new(),
        };
        // A run with a folder of its own for temporary files cannot write to the usual one, unless the model names one.
        let has_own_tmp = provider.private_tmp && !model.env.contains_key("TMPDIR");
        let variable = |name: &str| env.get(name).filter(|_| name != "TMPDIR" || !has_own_tmp).map(PathBuf::from);
        let writable = sandbox::usual_places(model, Some(provider), own, &variable).into();
        Self {
            folders: folders(settings, model, provider),
            private_home,
            writable,
            env,
            program: FileMemo::default(),
            agent_file: FileMemo::default(),
            home_is_ready: FileMemo::default(),
            files_are_ready: FileMemo::default(),
            compiled: FileMemo::default(),
        }
    }

    /// The environment of one run.
    pub(crate) fn environment(&self, run: &str, cwd: &Path) -> Environment {
        let mut env = self.env.clone_with_room(RUN_VARIABLES_BYTES);
        env.set(RUN, run);
        // OpenCode reads PWD instead of its working directory.
        env.set("PWD", cwd);
        env
    }
}

fn environment(
    settings: &EngineSettings,
    models: &Models,
    model: &Model,
    provider: &Provider,
    owner: &str,
    recipe: &BTreeMap<String, String>,
) -> Environment {
    let all_keys = models.all_keys();
    let (keys, model) = (&provider.keys, &model.env);
    let child = Child { keys, all_keys: &all_keys, cwd: Path::new(""), run: "", owner, recipe, model };
    let of_run = |name: &std::ffi::OsStr| name == RUN || name == "PWD";
    of_child(&settings.env, &child).into_iter().filter(|(name, _)| !of_run(name)).collect()
}

/// The provider's private home and the user's own folder, unless the model sets a home itself.
fn private_home(settings: &EngineSettings, model: &Model, provider: &Provider) -> Option<PrivateHome> {
    let home = provider.home.as_ref().filter(|home| !model.env.contains_key(&home.env))?;
    let own = match (settings.variable(&home.env), settings.variable("HOME")) {
        (Some(own), _) => PathBuf::from(own),
        (None, Some(user)) => Path::new(user).join(&home.default),
        (None, None) => return None,
    };
    Some(PrivateHome { folder: home::folder(&settings.state, &provider.name), own })
}

/// Folders that arguments of the recipe may refer to.
fn folders(settings: &EngineSettings, model: &Model, provider: &Provider) -> Folders {
    let files = (!provider.files.is_empty()).then(|| home::files_path(&settings.state, &provider.name));
    let own_home = model.env.get("HOME").map(String::as_str);
    Folders {
        files: files.map(|folder| folder.to_string_lossy().into_owned()),
        home: own_home.or_else(|| settings.variable("HOME")?.to_str()).map(str::to_owned),
    }
}

/// Templates of models, made when they are first used.
#[derive(Debug, Default)]
pub(crate) struct LaunchTemplates(Mutex<HashMap<usize, ModelTemplate>>);

#[derive(Debug)]
struct ModelTemplate {
    /// Kept alive, so that no other model has its address.
    _model: Arc<Model>,
    template: Arc<LaunchTemplate>,
}

impl LaunchTemplates {
    /// The template of a model. `make` is called if there is none.
    pub(crate) fn of(&self, model: &Arc<Model>, make: impl FnOnce() -> LaunchTemplate) -> Arc<LaunchTemplate> {
        let address = Arc::as_ptr(model) as usize;
        let mut templates = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = templates.get(&address) {
            return Arc::clone(&known.template);
        }
        if templates.len() >= MAX_TEMPLATES {
            templates.clear();
        }
        let template = Arc::new(make());
        templates.insert(address, ModelTemplate { _model: Arc::clone(model), template: Arc::clone(&template) });
        template
    }
}

/// A copy has other models, or is about to.
impl Clone for LaunchTemplates {
    fn clone(&self) -> Self {
        Self::default()
    }
}

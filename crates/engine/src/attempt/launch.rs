//! Turns one turn of one model into a command to start.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use trunkline_core::failure::Failure;
use trunkline_core::limits::RunLimits;
use trunkline_core::model::Model;
use trunkline_core::prompt::{self, Prompt};
use trunkline_core::protocol;
use trunkline_core::provider::{Arguments, Placeholder, Provider, SettingsFile, Values};
use trunkline_core::turn::{AnswerTiming, Message, Role, Turn};
use trunkline_core::vocabulary::SystemPlacement;
use trunkline_core::vocabulary::{OutputForm, PromptDelivery, StopSignal};
use trunkline_process::{Environment, Spec};

use crate::attempt::environment::{Child, of_child};
use crate::attempt::plan::{Plan, bounded, values};
use crate::attempt::program::{Located, locate, locate_noting};
use crate::attempt::request::BeginError;
use crate::attempt::resources::AttemptResources;
use crate::attempt::template::{LaunchTemplate, PrivateHome};
use crate::attempt::{agent_file, compile_cache, home};
use crate::router::models::Models;
use crate::sandbox::{self, Bounds, Free, Scene};
use crate::settings::EngineSettings;
use crate::shared::Shared;
use crate::warm::{BootSpec, WarmTarget};

pub(crate) struct Launch<'a> {
    pub(crate) settings: &'a EngineSettings,
    pub(crate) turn: &'a Turn,
    pub(crate) model: &'a Model,
    pub(crate) provider: &'a Provider,
    pub(crate) models: &'a Models,
    pub(crate) run: &'a str,
    /// Mark of this gateway in the environment of its processes.
    pub(crate) owner: &'a str,
    pub(crate) template: Arc<LaunchTemplate>,
}

/// The model and the turn that a [`Launch`] is for.
pub(crate) struct LaunchRequest<'a> {
    pub(crate) settings: &'a EngineSettings,
    pub(crate) turn: &'a Turn,
    pub(crate) models: &'a Models,
    pub(crate) run: &'a str,
    pub(crate) owner: &'a str,
}

impl<'a> LaunchRequest<'a> {
    /// A launch of a model that has had turns before, or will have more.
    pub(crate) fn of(self, model: &'a Arc<Model>, provider: &'a Provider) -> Launch<'a> {
        let templates = self.models.templates();
        let template = templates.of(model, || self.template(model, provider));
        self.with(template, model, provider)
    }

    /// A launch of a model for which nothing is kept.
    pub(crate) fn once(self, model: &'a Model, provider: &'a Provider) -> Launch<'a> {
        let template = Arc::new(self.template(model, provider));
        self.with(template, model, provider)
    }

    fn template(&self, model: &Model, provider: &Provider) -> LaunchTemplate {
        LaunchTemplate::new(self.settings, self.models, model, provider, self.owner)
    }

    fn with(self, template: Arc<LaunchTemplate>, model: &'a Model, provider: &'a Provider) -> Launch<'a> {
        let Self { settings, turn, models, run, owner } = self;
        Launch { settings, turn, model, provider, models, run, owner, template }
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
        match self.model.command.as_deref().filter(|command| command.contains('/')) {
            Some(command) => Ok(PathBuf::from(command)),
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
        let (command, path) = (self.model.command.as_deref(), self.settings.variable("PATH"));
        self.template.program.get(|sources| locate_noting(self.provider, command, path, sources))
    }

    /// The content of the agent file, if the model has one.
    fn agent_file(&self) -> Result<Option<Arc<str>>, Failure> {
        let Some(name) = &self.model.agent_file else { return Ok(None) };
        self.template.agent_file.get(|sources| agent_file::read_noting(&self.model.repo, name, sources))
    }

    pub(crate) fn prompt(&self) -> Result<Prompt, Failure> {
        let file = self.agent_file()?;
        if self.provider.prompt == PromptDelivery::Request {
            return Ok(self.request(file.as_deref()));
        }
        let apart = self.provider.has_placeholder(Placeholder::SystemFile);
        let placement = if apart { SystemPlacement::Apart } else { SystemPlacement::Inline };
        let standing = self.turn.messages.iter().filter(|message| message.role == Role::System);
        let standing = standing.map(|message| message.text.as_str());
        let system: Vec<&str> = self.model.system_prompt.as_deref().into_iter().chain(standing).collect();
        Ok(prompt::build_from(file.as_deref(), &system, self.unsent_messages(), placement))
    }

    /// Messages to send: only the new ones if the CLI resumes a session.
    fn unsent_messages(&self) -> &[Message] {
        if self.turn.session.is_some() { prompt::new_messages(&self.turn.messages) } else { &self.turn.messages }
    }

    /// The request to a protocol executable. It has no memory, so the request contains the whole conversation.
    fn request(&self, agent_file: Option<&str>) -> Prompt {
        let standing = agent_file.into_iter().chain(self.model.system_prompt.as_deref());
        let mut messages: Vec<Message> = standing.map(|text| Message::new(Role::System, text.trim_end())).collect();
        messages.extend(self.turn.messages.iter().cloned());
        let (turn, model) = (bounded(self.turn, self.model), self.model.upstream.as_deref());
        Prompt { text: protocol::request(&messages, &turn.options, model, &self.model.config), system: None }
    }

    /// An agent streams unless the turn asks for a whole answer. A protocol executable streams only if the client sees the stream.
    pub(crate) fn form(&self) -> OutputForm {
        match (self.turn.form, self.provider.prompt, self.turn.shown) {
            (OutputForm::Whole, _, _) | (OutputForm::Streamed, PromptDelivery::Request, AnswerTiming::AtTheEnd) => {
                OutputForm::Whole
            }
            (OutputForm::Streamed, PromptDelivery::Request | PromptDelivery::Stdin | PromptDelivery::Arg, _) => {
                OutputForm::Streamed
            }
        }
    }

    fn limits(&self) -> RunLimits {
        let usual = self.model.limits;
        if self.provider.is_silent(self.form()) { RunLimits::all(usual.total) } else { usual }
    }

    /// The process to start. Writes its private files.
    pub(crate) fn spec(
        &self,
        prompt: &Prompt,
        program: PathBuf,
        compiled: Option<&Path>,
        resources: &mut AttemptResources,
    ) -> Result<Spec, Failure> {
        let (model, turn) = (self.model, self.turn);
        let cwd = resources.cwd(model);
        let scratch = &mut resources.scratch;
        let system_file =
            prompt.system.as_ref().map(|text| scratch.write("system.txt", text.as_bytes())).transpose()?;
        let images: Vec<String> = self
            .unsent_messages()
            .iter()
            .flat_map(|message| &message.images)
            .enumerate()
            .map(|(index, image)| scratch.write(&format!("image-{index}.{}", image.extension), &image.bytes))
            .collect::<Result<_, _>>()?;
        let cwd_text = cwd.to_string_lossy();
        let mut values = self.values(&prompt.text, &cwd_text);
        values.session = turn.session.as_ref().map(|session| &*session.0);
        values.system_file = system_file.as_deref();
        values.images = &images;
        let arguments = self.provider.arguments(self.form(), &values)?;
        let temporary = self.provider.private_tmp.then(|| scratch.folder("tmp")).transpose()?;
        let mut env = self.environment(&cwd);
        if let Some(folder) = &temporary {
            self.set_own(&mut env, "TMPDIR", folder);
        }
        if let Some(folder) = compiled {
            env.set(compile_cache::VARIABLE, folder);
        }
        let mut spec = self.process(arguments, env, program, cwd, || resources.workspace(model))?;
        if let (Some(confinement), Some(folder)) = (&mut spec.confinement, temporary) {
            confinement.writable.push(folder.into());
        }
        Ok(spec)
    }

    /// The same request without streaming, for a protocol executable. `None` for any other provider.
    pub(crate) fn generating(&self, streaming: &Spec, prompt: &Prompt) -> Result<Option<Spec>, Failure> {
        if self.provider.prompt != PromptDelivery::Request
            || self.provider.whole.is_none()
            || self.form() != OutputForm::Streamed
        {
            return Ok(None);
        }
        let cwd = streaming.cwd.to_string_lossy();
        let arguments = self.provider.arguments(OutputForm::Whole, &self.values(&prompt.text, &cwd))?;
        let args = arguments.args.into_iter().map(OsString::from).collect();
        let limits = RunLimits::all(self.model.limits.total);
        Ok(Some(Spec { args, limits, ..streaming.clone() }))
    }

    /// The warm process that could run turns like this one. `None` if the provider or this turn does not support it.
    pub(crate) fn boot(&self, prompt: &Prompt, program: PathBuf, cwd: PathBuf) -> Result<Option<BootSpec>, Failure> {
        let (model, provider) = (self.model, self.provider);
        let pictures = self.unsent_messages().iter().any(|message| !message.images.is_empty());
        let can = !model.worktree && !pictures && self.form() == OutputForm::Streamed;
        let Some(live) = provider.live.as_ref().filter(|live| can && WarmTarget::is_any(model, live)) else {
            return Ok(None);
        };
        let cwd_text = cwd.to_string_lossy();
        let values = self.values("", &cwd_text);
        let (args, greeting) = provider.live_arguments(live, &values, prompt.system.as_deref())?;
        let mut env = Launch { run: "", template: Arc::clone(&self.template), ..*self }.environment(&cwd);
        live.env.iter().for_each(|(name, value)| self.set_own(&mut env, name, value));
        let arguments = Arguments { args, stdin: None };
        let clients_own = prompt.system.is_some() && prompt.system != model.system_prompt;
        Ok(Some(BootSpec {
            provider: provider.name.clone(),
            protocol: live.protocol,
            spec: self.process(arguments, env, program, cwd, || sandbox::checkout(&model.repo))?,
            greeting,
            private_tmp: provider.private_tmp,
            reads: live.reads.clone(),
            uses_first: if clients_own { 2 } else { 1 },
        }))
    }

    /// Adds folder and confinement to a command.
    fn process(
        &self,
        arguments: Arguments,
        env: Environment,
        program: PathBuf,
        cwd: PathBuf,
        workspace: impl FnOnce() -> Vec<PathBuf>,
    ) -> Result<Spec, Failure> {
        self.prepare_places()?;
        let confinement = match self.freedom()? {
            None => Some(self.scene(workspace()).confinement()),
            Some(_) => None,
        };
        Ok(Spec {
            env,
            program,
            args: arguments.args.into_iter().map(OsString::from).collect(),
            cwd,
            stdin: arguments.stdin.unwrap_or_default().into_bytes(),
            stop: match self.provider.stop {
                StopSignal::Term => trunkline_process::StopSignal::Term,
                StopSignal::Int => trunkline_process::StopSignal::Int,
            },
            grace: self.settings.grace,
            limits: self.limits(),
            confinement,
        })
    }

    /// Folder with the program's compiled code, whether it exists or not. `None` for a program that is not run by Node, and for
    /// a run that could write the folder.
    pub(crate) fn compiled(&self, program: &Path) -> Option<PathBuf> {
        let own = [compile_cache::VARIABLE, "NODE_DISABLE_COMPILE_CACHE"];
        let own =
            || own.iter().any(|name| self.model.env.contains_key(*name) || self.settings.variable(name).is_some());
        if !self.provider.node_compile_cache || own() {
            return None;
        }
        let path = self.settings.variable("PATH")?;
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
        let folder = self.settings.state.join("compiled").join(name?);
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
        sandbox::freedom(self.model, self.settings.sandbox, Some(self.provider))
    }

    fn usual_workspace(&self) -> Vec<PathBuf> {
        match self.model.worktree {
            true => vec![self.settings.worktrees.join(self.run)],
            false => sandbox::checkout(&self.model.repo),
        }
    }

    fn scene(&self, workspace: Vec<PathBuf>) -> Scene<'_> {
        Scene { permissions: self.model.permissions, workspace, usual: &self.template.writable }
    }

    /// A short call of the program itself: its version or its health. The call is not confined, so it runs in `/`, where the
    /// program reads no file that an agent could have written.
    pub(crate) fn question(&self, program: PathBuf, args: &[String], limit: Duration) -> Spec {
        let cwd = PathBuf::from("/");
        Spec {
            env: self.variables(&self.settings.env, &self.provider.env, &cwd).into(),
            program,
            args: args.iter().map(OsString::from).collect(),
            cwd,
            stdin: Vec::new(),
            stop: trunkline_process::StopSignal::Term,
            grace: Duration::from_secs(1),
            limits: RunLimits::all(limit),
            confinement: None,
        }
    }

    /// The environment of a run, with the path of the settings file that the gateway provides.
    fn environment(&self, cwd: &Path) -> Environment {
        let mut env = self.template.environment(self.run, cwd);
        if let Some(file) = self.own_settings() {
            env.set(&file.env, home::settings_path(&self.settings.state, self.name()));
        }
        env
    }

    /// Sets a variable, unless the model does.
    fn set_own(&self, env: &mut Environment, name: &str, value: &str) {
        if !self.model.env.contains_key(name) {
            env.set(name, value);
        }
    }

    /// As [`environment`](Self::environment), from another inherited environment and recipe.
    fn variables(
        &self,
        inherited: &[(OsString, OsString)],
        recipe: &BTreeMap<String, String>,
        cwd: &Path,
    ) -> Vec<(OsString, OsString)> {
        let all_keys = self.models.all_keys();
        let (keys, run, owner, model) = (&self.provider.keys, self.run, self.owner, &self.model.env);
        of_child(inherited, &Child { keys, all_keys: &all_keys, cwd, run, owner, recipe, model })
    }

    fn values<'a>(&'a self, prompt: &'a str, cwd: &'a str) -> Values<'a> {
        values(self.model, self.provider, self.settings.sandbox, prompt, cwd, &self.template.folders)
    }

    /// The command that would run the model.
    pub(crate) fn plan(&self) -> Result<Plan, Failure> {
        let model = self.model;
        let cwd = if model.worktree { self.settings.worktrees.join(self.run) } else { model.repo.clone() };
        let cwd_text = cwd.to_string_lossy();
        let values = self.values("<prompt>", &cwd_text);
        let mut command = self.provider.command(OutputForm::Streamed, &values)?;
        command.env.extend(self.places());
        let located = locate(self.provider, model.command.as_deref(), self.settings.variable("PATH"));
        Ok(Plan {
            program: located.map(|located| located.path),
            env: self.variables(&[], &command.env, &cwd),
            args: command.args,
            cwd,
            delivery: self.provider.prompt,
        })
    }

    /// Variables for the private home and the settings file that the gateway provides.
    fn places(&self) -> BTreeMap<String, String> {
        let home = self.provider.home.as_ref().zip(self.template.private_home.as_ref());
        let home = home.map(|(home, private)| (home.env.clone(), private.folder.clone()));
        let settings =
            self.own_settings().map(|file| (file.env.clone(), home::settings_path(&self.settings.state, self.name())));
        home.into_iter().chain(settings).map(|(name, path)| (name, path.to_string_lossy().into_owned())).collect()
    }

    /// Creates the private home, the settings file and the recipe's own files, unless they are complete.
    fn prepare_places(&self) -> Result<(), Failure> {
        let (template, state) = (&self.template, &self.settings.state);
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

    fn name(&self) -> &str {
        &self.provider.name
    }

    /// The provider's settings file, unless the user or the system has one.
    fn own_settings(&self) -> Option<&SettingsFile> {
        self.provider.settings.as_ref().filter(|file| {
            !self.model.env.contains_key(&file.env)
                && self.settings.variable(&file.env).is_none()
                && (file.system.is_empty() || !Path::new(&file.system).exists())
        })
    }
}

#[cfg(test)]
mod tests {
    use trunkline_core::model::{Backend, Sandbox};
    use trunkline_core::provider::built_in;
    use trunkline_core::secret::Secrets;

    use super::*;
    use crate::Caps;
    use crate::router::test_models::model;

    /// A CLI that prints nothing until its end has only a total limit; one that streams also has idle and startup limits.
    #[test]
    fn silent_clis_have_only_a_total_limit() {
        let settings = EngineSettings {
            env: Vec::new(),
            state: PathBuf::new(),
            worktrees: PathBuf::new(),
            caps: Caps::default(),
            git_timeout: Duration::from_secs(60),
            grace: Duration::ZERO,
            linger: Duration::ZERO,
            secrets: Secrets::default(),
            embedded_llm: None,
            sandbox: Sandbox::On,
            durability: trunkline_store::Durability::Process,
        };
        let seconds = Duration::from_secs;
        let usual = RunLimits { idle: seconds(60), startup: seconds(30), ..RunLimits::all(seconds(90)) };
        let watched = (seconds(60), seconds(30));
        let in_all = (seconds(90), seconds(90));
        for (name, form, shown, expected) in [
            ("claude", OutputForm::Whole, AnswerTiming::AtTheEnd, (OutputForm::Whole, in_all)),
            ("gemini", OutputForm::Whole, AnswerTiming::AtTheEnd, (OutputForm::Whole, in_all)),
            ("codex", OutputForm::Whole, AnswerTiming::AtTheEnd, (OutputForm::Whole, watched)),
            // The gateway streams from an agent even if its client wants a whole answer.
            ("claude", OutputForm::Streamed, AnswerTiming::AtTheEnd, (OutputForm::Streamed, watched)),
            ("claude", OutputForm::Streamed, AnswerTiming::AsItComes, (OutputForm::Streamed, watched)),
        ] {
            let provider = built_in().remove(name).unwrap();
            let model = Model { backend: Backend::Program(provider.clone().into()), limits: usual, ..model(name) };
            let (turn, models) = (Turn { form, shown, ..Turn::default() }, Models::default());
            let request = LaunchRequest { settings: &settings, turn: &turn, models: &models, run: "r", owner: "o" };
            let launch = request.once(&model, &provider);
            let limits = launch.limits();
            assert_eq!((launch.form(), (limits.idle, limits.startup)), expected, "{name} {form:?} {shown:?}");
            assert_eq!(limits.total, usual.total);
        }
    }
}

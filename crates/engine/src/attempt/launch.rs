//! Turns one turn of one model into a command to start.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use trunkline_core::failure::Failure;
use trunkline_core::limits::RunLimits;
use trunkline_core::model::Model;
use trunkline_core::prompt::{self, Prompt};
use trunkline_core::protocol;
use trunkline_core::provider::{CommandLine, Home, Placeholder, Provider, SettingsFile};
use trunkline_core::turn::{AnswerTiming, Message, Role, Turn};
use trunkline_core::vocabulary::SystemPlacement;
use trunkline_core::vocabulary::{OutputForm, PromptDelivery, StopSignal};
use trunkline_process::Spec;

use crate::attempt::environment::{Child, of_child};
use crate::attempt::plan::{Folders, Plan, bounded, values};
use crate::attempt::program::locate;
use crate::attempt::resources::AttemptResources;
use crate::attempt::{agent_file, compile_cache, home};
use crate::router::models::Models;
use crate::sandbox::{self, Bounds, Scene};
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
}

impl Launch<'_> {
    /// Path of the program. Fails if the program or the repository is missing.
    pub(crate) fn program(&self) -> Result<PathBuf, Failure> {
        agent_file::check_repo(&self.model.repo)?;
        let located = locate(self.provider, self.model.command.as_deref(), self.settings.variable("PATH"))?;
        Ok(located.path)
    }

    pub(crate) fn prompt(&self) -> Result<Prompt, Failure> {
        let file = match &self.model.agent_file {
            Some(name) => agent_file::read(&self.model.repo, name)?,
            None => None,
        };
        if self.provider.prompt == PromptDelivery::Request {
            return Ok(self.request(file));
        }
        let apart = self.provider.has_placeholder(Placeholder::SystemFile);
        let placement = if apart { SystemPlacement::Apart } else { SystemPlacement::Inline };
        let mut messages = Vec::new();
        messages.extend(self.model.system_prompt.as_ref().map(|text| Message::new(Role::System, text.clone())));
        let said = self.unsent_messages();
        let standing = self.turn.messages.iter().filter(|message| message.role == Role::System);
        messages.extend(standing.cloned());
        messages.extend(said.iter().filter(|message| message.role != Role::System).cloned());
        Ok(prompt::build(file.as_deref(), &messages, placement))
    }

    /// Messages to send: only the new ones if the CLI resumes a session.
    fn unsent_messages(&self) -> &[Message] {
        if self.turn.session.is_some() { prompt::new_messages(&self.turn.messages) } else { &self.turn.messages }
    }

    /// The request to a protocol executable. It has no memory, so the request contains the whole conversation.
    fn request(&self, agent_file: Option<String>) -> Prompt {
        let standing = agent_file.into_iter().chain(self.model.system_prompt.clone());
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
        resources: &mut AttemptResources,
    ) -> Result<Spec, Failure> {
        let (model, turn) = (self.model, self.turn);
        let (cwd, workspace) = (resources.cwd(model), resources.workspace(model));
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
        let folders = self.folders();
        let mut values = values(model, self.provider, self.settings.sandbox, &prompt.text, &cwd_text, &folders);
        values.session = turn.session.as_ref().map(|session| session.0.as_str());
        values.system_file = system_file.as_deref();
        values.images = &images;
        let mut command = self.provider.command(self.form(), &values)?;
        if self.provider.private_tmp {
            command.env.insert("TMPDIR".to_owned(), scratch.folder("tmp")?);
        }
        if let Some(folder) = self.compiled(&program).filter(|folder| folder.is_dir()) {
            command.env.insert(compile_cache::VARIABLE.to_owned(), folder.to_string_lossy().into_owned());
        }
        self.process(command, program, cwd, workspace)
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
        let folders = self.folders();
        let values = values(self.model, self.provider, self.settings.sandbox, &prompt.text, &cwd, &folders);
        let command = self.provider.command(OutputForm::Whole, &values)?;
        let args = command.args.into_iter().map(OsString::from).collect();
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
        let folders = self.folders();
        let values = values(model, provider, self.settings.sandbox, "", &cwd_text, &folders);
        let (command, greeting) = provider.live_command(live, &values, prompt.system.as_deref())?;
        let clients_own = prompt.system.is_some() && prompt.system != model.system_prompt;
        Ok(Some(BootSpec {
            provider: provider.name.clone(),
            protocol: live.protocol,
            spec: Launch { run: "", ..*self }.process(command, program, cwd, sandbox::checkout(&model.repo))?,
            greeting,
            private_tmp: provider.private_tmp,
            reads: live.reads.clone(),
            uses_first: if clients_own { 2 } else { 1 },
        }))
    }

    /// Adds folder, environment and confinement to a command.
    fn process(
        &self,
        mut command: CommandLine,
        program: PathBuf,
        cwd: PathBuf,
        workspace: Vec<PathBuf>,
    ) -> Result<Spec, Failure> {
        self.prepare_places()?;
        command.env.extend(self.places());
        let env = self.environment(&self.settings.env, &command, &cwd);
        let confinement = self.scene(&env, workspace).confinement()?;
        Ok(Spec {
            env,
            program,
            args: command.args.into_iter().map(OsString::from).collect(),
            cwd,
            stdin: command.stdin.unwrap_or_default().into_bytes(),
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
    fn compiled(&self, program: &Path) -> Option<PathBuf> {
        let own = [compile_cache::VARIABLE, "NODE_DISABLE_COMPILE_CACHE"];
        let own = own.iter().any(|name| self.model.env.contains_key(*name) || self.settings.variable(name).is_some());
        if !self.provider.node_compile_cache || own {
            return None;
        }
        let folders = std::env::split_paths(self.settings.variable("PATH")?);
        let node = folders.map(|folder| folder.join("node")).find(|node| node.is_file())?;
        let name = compile_cache::folder_name(&self.provider.name, program, &node)?;
        let folder = self.settings.state.join("compiled").join(name);
        match self.bounds().ok()? {
            Bounds::Within(writable) if !writable.iter().any(|place| folder.starts_with(place)) => Some(folder),
            Bounds::Within(_) | Bounds::Free(_) => None,
        }
    }

    /// Fills the compile cache for the program's next start, unless it is filled already.
    pub(crate) fn compile_ahead(&self, shared: &Shared, program: &Path) {
        // `--warm 0` means that no process starts except for a turn.
        let Some(folder) = self.compiled(program).filter(|folder| shared.warm.is_open() && !folder.is_dir()) else {
            return;
        };
        let question = self.question(program.to_owned(), &self.provider.version, compile_cache::FILL_TIMEOUT);
        shared.compile_cache.fill(folder, self.provider.name.clone(), question);
    }

    /// The paths that a run may write.
    pub(crate) fn bounds(&self) -> Result<Bounds, Failure> {
        let model = self.model;
        let recipe = CommandLine { program: String::new(), args: Vec::new(), stdin: None, env: self.places() };
        let env = self.environment(&self.settings.env, &recipe, &model.repo);
        let workspace = match model.worktree {
            true => vec![self.settings.worktrees.join(self.run)],
            false => sandbox::checkout(&model.repo),
        };
        self.scene(&env, workspace).bounds()
    }

    fn scene<'a>(&'a self, env: &'a [(OsString, OsString)], workspace: Vec<PathBuf>) -> Scene<'a> {
        let mut own = Vec::new();
        if let Some((home, users)) = self.private_home() {
            own.push(home::folder(&self.settings.state, self.name()));
            own.extend(home.link.iter().map(|name| users.join(name)));
        }
        let (usual, recipe) = (self.settings.sandbox, Some(self.provider));
        Scene { usual, model: self.model, recipe, env, workspace, own }
    }

    /// A short call of the program itself: its version or its health. The call is not confined, so it runs in `/`, where the
    /// program reads no file that an agent could have written.
    pub(crate) fn question(&self, program: PathBuf, args: &[String], limit: Duration) -> Spec {
        let cwd = PathBuf::from("/");
        let recipe =
            CommandLine { program: String::new(), args: Vec::new(), stdin: None, env: self.provider.env.clone() };
        Spec {
            env: self.environment(&self.settings.env, &recipe, &cwd),
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

    fn environment(
        &self,
        inherited: &[(OsString, OsString)],
        command: &CommandLine,
        cwd: &Path,
    ) -> Vec<(OsString, OsString)> {
        let all_keys = self.models.all_keys();
        let child = Child {
            keys: &self.provider.keys,
            all_keys: &all_keys,
            cwd,
            run: self.run,
            owner: self.owner,
            recipe: &command.env,
            model: &self.model.env,
        };
        of_child(inherited, &child)
    }

    /// The command that would run the model.
    pub(crate) fn plan(&self) -> Result<Plan, Failure> {
        let model = self.model;
        let cwd = if model.worktree { self.settings.worktrees.join(self.run) } else { model.repo.clone() };
        let (cwd_text, folders) = (cwd.to_string_lossy(), self.folders());
        let values = values(model, self.provider, self.settings.sandbox, "<prompt>", &cwd_text, &folders);
        let mut command = self.provider.command(OutputForm::Streamed, &values)?;
        command.env.extend(self.places());
        let located = locate(self.provider, model.command.as_deref(), self.settings.variable("PATH"));
        Ok(Plan {
            program: located.map(|located| located.path),
            env: self.environment(&[], &command, &cwd),
            args: command.args,
            cwd,
            delivery: self.provider.prompt,
        })
    }

    /// Variables for the private home and the settings file that the gateway provides.
    fn places(&self) -> BTreeMap<String, String> {
        let home =
            self.private_home().map(|(home, _)| (home.env.clone(), home::folder(&self.settings.state, self.name())));
        let settings =
            self.own_settings().map(|file| (file.env.clone(), home::settings_path(&self.settings.state, self.name())));
        home.into_iter().chain(settings).map(|(name, path)| (name, path.to_string_lossy().into_owned())).collect()
    }

    /// Folders that arguments of the recipe may refer to.
    fn folders(&self) -> Folders {
        let files = (!self.provider.files.is_empty()).then(|| home::files_path(&self.settings.state, self.name()));
        let own_home = self.model.env.get("HOME").map(String::as_str);
        Folders {
            files: files.map(|folder| folder.to_string_lossy().into_owned()),
            home: own_home.or_else(|| self.settings.variable("HOME")?.to_str()).map(str::to_owned),
        }
    }

    /// Creates the private home, the settings file and the recipe's own files.
    fn prepare_places(&self) -> Result<(), Failure> {
        if let Some((home, own)) = self.private_home() {
            home::prepare(home, &self.settings.state, self.name(), &own)?;
        }
        if let Some(file) = self.own_settings() {
            home::write_settings(file, &self.settings.state, self.name())?;
        }
        home::write_files(&self.provider.files, &self.settings.state, self.name())
    }

    fn name(&self) -> &str {
        &self.provider.name
    }

    /// The provider's private home and the user's own folder, unless the model sets a home itself.
    fn private_home(&self) -> Option<(&Home, PathBuf)> {
        let home = self.provider.home.as_ref().filter(|home| !self.model.env.contains_key(&home.env))?;
        let own = match (self.settings.variable(&home.env), self.settings.variable("HOME")) {
            (Some(own), _) => PathBuf::from(own),
            (None, Some(user)) => Path::new(user).join(&home.default),
            (None, None) => return None,
        };
        Some((home, own))
    }

    /// The provider's settings file, unless the user or the system has one.
    fn own_settings(&self) -> Option<&SettingsFile> {
        self.provider.settings.as_ref().filter(|file| {
            !self.model.env.contains_key(&file.env)
                && self.settings.variable(&file.env).is_none()
                && !Path::new(&file.system).exists()
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
            let (provider, model) = (&provider, &model);
            let launch =
                Launch { settings: &settings, turn: &turn, model, provider, models: &models, run: "r", owner: "o" };
            let limits = launch.limits();
            assert_eq!((launch.form(), (limits.idle, limits.startup)), expected, "{name} {form:?} {shown:?}");
            assert_eq!(limits.total, usual.total);
        }
    }
}

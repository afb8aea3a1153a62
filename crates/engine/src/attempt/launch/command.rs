//! The process of a turn: its arguments, environment, folder and confinement.

use std::path::{Path, PathBuf};
use std::time::Duration;

use trunkline_core::failure::{Category, Failure};
use trunkline_core::limits::RunLimits;
use trunkline_core::live::{LiveRecipe, ServerArguments};
use trunkline_core::mcp_server::McpServer;
use trunkline_core::prompt::Prompt;
use trunkline_core::provider::{Arguments, Placeholder, Values};
use trunkline_core::turn::OwnTools;
use trunkline_core::vocabulary::{OutputForm, PromptDelivery, StopSignal};
use trunkline_process::{ArgumentList, Environment, Spec};

use super::Launch;
use crate::attempt::compile_cache;
use crate::attempt::plan::{Plan, values};
use crate::attempt::program::locate;
use crate::attempt::resources::AttemptResources;
use crate::sandbox;
use crate::warm::{BootSpec, WarmTarget};

/// Arguments and input of a process.
struct ProcessInput {
    args: ArgumentList,
    stdin: Vec<u8>,
}

impl From<Arguments<'_>> for ProcessInput {
    fn from(Arguments { args, stdin }: Arguments<'_>) -> Self {
        let stdin = stdin.map(|stdin| stdin.into_owned().into_bytes()).unwrap_or_default();
        Self { args: args.iter().map(|arg| &**arg).collect(), stdin }
    }
}

impl Launch<'_> {
    /// The process to start. Writes its private files.
    pub(crate) fn spec(
        &self,
        prompt: &Prompt,
        program: PathBuf,
        compiled: Option<&Path>,
        schema: Option<&str>,
        resources: &mut AttemptResources,
    ) -> Result<Spec, Failure> {
        let (model, turn) = (self.model, self.request.turn);
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
        let in_file = self.provider.has_placeholder(Placeholder::SchemaFile);
        let schema_file = schema.filter(|_| in_file).map(|text| scratch.write("schema.json", text.as_bytes()));
        let schema_file = schema_file.transpose()?;
        let cwd_text = cwd.to_string_lossy();
        let mut values = self.values(&prompt.text, &cwd_text);
        values.schema = schema;
        values.schema_file = schema_file.as_deref();
        values.session = turn.session.as_ref().map(|session| &*session.0);
        values.system_file = system_file.as_deref();
        values.images = &images;
        let input = ProcessInput::from(self.provider.arguments(self.form(), &values)?);
        let temporary = self.provider.private_tmp.then(|| scratch.folder("tmp")).transpose()?;
        let mut env = self.environment(self.request.run, &cwd);
        if let Some(folder) = &temporary {
            self.set_own(&mut env, "TMPDIR", folder);
        }
        if let Some(folder) = compiled {
            env.set(compile_cache::VARIABLE, folder);
        }
        let mut spec = self.process(input, env, program, cwd, || resources.workspace(model))?;
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
        let limits = RunLimits::all(self.model.limits.total);
        Ok(Some(Spec { args: ProcessInput::from(arguments).args, limits, ..streaming.clone() }))
    }

    /// The warm process that could run turns like this one. `None` if the provider or this turn does not support it.
    pub(crate) fn boot(&self, prompt: &Prompt, program: &Path, cwd: &Path) -> Result<Option<BootSpec>, Failure> {
        let (model, provider) = (self.model, self.provider);
        let pictures = self.unsent_messages().iter().any(|message| !message.images.is_empty());
        let can = !model.worktree && !pictures && self.form() == OutputForm::Streamed;
        let Some(live) = provider.live.as_ref().filter(|live| can && WarmTarget::is_any(model, live)) else {
            return Ok(None);
        };
        self.boot_of(live, prompt, program, cwd, || sandbox::checkout(&model.repo), None).map(Some)
    }

    /// The warm process for turns of the model that bring nothing of their own. `None` if there cannot be one.
    pub(crate) fn own_boot(&self, prompt: &Prompt, program: &Path, cwd: &Path) -> Result<Option<BootSpec>, Failure> {
        if self.always_with_tools() {
            let workspace = sandbox::checkout(&self.model.repo);
            return self.tool_boot(prompt, program, cwd, workspace, None).map(Some);
        }
        self.boot(prompt, program, cwd)
    }

    /// Whether every turn of the model needs a process with tools: the model has MCP servers, or its CLI has no tools of its own.
    pub(crate) fn always_with_tools(&self) -> bool {
        self.provider.takes_tools() && (!self.model.mcp_servers.is_empty() || self.model.own_tools == OwnTools::Off)
    }

    /// The process for a turn with tools of the client. Fails if the provider cannot have them.
    /// With `resume`, it continues this session and has the servers of the request from its start.
    pub(crate) fn tool_boot(
        &self,
        prompt: &Prompt,
        program: &Path,
        cwd: &Path,
        workspace: Vec<PathBuf>,
        resume: Option<&str>,
    ) -> Result<BootSpec, Failure> {
        let Some((live, tools)) = self.provider.live.as_ref().and_then(|live| Some((live, live.tools.as_ref()?)))
        else {
            let message = format!("the own tools of {} cannot be switched off", self.provider.name);
            return Err(Failure::new(Category::Validation, message));
        };
        let mut live = live.clone();
        let requested = self.requested_servers();
        let servers = [self.model.mcp_servers.as_slice(), &requested].concat();
        let ServerArguments { args, files } = tools.server_arguments(&servers);
        let mut more = [tools.args.clone(), args].concat();
        live.env.extend(tools.env.clone());
        let mut servers_off = Vec::new();
        if self.own_tools() == OwnTools::Off {
            more.extend(tools.own_tools_off(&servers));
            live.env.extend(tools.own_tools_off_env(&servers));
            servers_off = tools.own_servers.as_ref().map(|own| self.own_servers(own)).unwrap_or_default();
        }
        // A subcommand is the last argument.
        live.args.splice(0..0, more);
        let mut boot = self.boot_of(&live, prompt, program, cwd, || workspace, resume)?;
        boot.files = files;
        boot.greeting.servers_off = servers_off;
        boot.greeting.session = resume.map(str::to_owned);
        boot.greeting.servers = if resume.is_some() { servers } else { self.model.mcp_servers.clone() };
        if !requested.is_empty() {
            boot.uses_first = boot.uses_first.max(2);
        }
        Ok(boot)
    }

    /// MCP servers of the request. A side request has none.
    pub(crate) fn requested_servers(&self) -> Vec<McpServer> {
        let turn = self.request.turn;
        turn.servers.iter().filter(|_| turn.side.is_none()).map(|requested| requested.server.clone()).collect()
    }

    pub(crate) fn has_requested_servers(&self) -> bool {
        self.request.turn.side.is_none() && !self.request.turn.servers.is_empty()
    }

    /// Whether the CLI keeps its own tools in this turn.
    pub(crate) fn own_tools(&self) -> OwnTools {
        self.request.turn.own_tools.unwrap_or(self.model.own_tools)
    }

    fn boot_of(
        &self,
        live: &LiveRecipe,
        prompt: &Prompt,
        program: &Path,
        cwd: &Path,
        workspace: impl FnOnce() -> Vec<PathBuf>,
        resume: Option<&str>,
    ) -> Result<BootSpec, Failure> {
        let (model, provider) = (self.model, self.provider);
        let cwd_text = cwd.to_string_lossy();
        let mut values = self.values("", &cwd_text);
        values.session = resume;
        let (args, greeting) = provider.live_arguments(live, &values, prompt.system.as_deref())?;
        let mut env = self.environment("", cwd);
        live.env.iter().for_each(|(name, value)| self.set_own(&mut env, name, value));
        let input = ProcessInput::from(Arguments { args, stdin: None });
        let clients_own = prompt.system.is_some() && prompt.system != model.system_prompt;
        Ok(BootSpec {
            provider: provider.name.clone(),
            protocol: live.protocol,
            spec: self.process(input, env, program.to_owned(), cwd.to_owned(), workspace)?,
            greeting,
            private_tmp: provider.private_tmp,
            files: Vec::new(),
            reads: live.reads.clone(),
            uses_first: if clients_own { 2 } else { 1 },
        })
    }

    /// Adds folder and confinement to a command.
    fn process(
        &self,
        input: ProcessInput,
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
            args: input.args,
            cwd,
            stdin: input.stdin,
            stop: match self.provider.stop {
                StopSignal::Term => trunkline_process::StopSignal::Term,
                StopSignal::Int => trunkline_process::StopSignal::Int,
            },
            grace: self.request.settings.grace,
            limits: self.limits(),
            confinement,
        })
    }

    /// A short call of the program itself: its version or its health. The call is not confined, so it runs in `/`, where the
    /// program reads no file that an agent could have written.
    pub(crate) fn question(&self, program: PathBuf, args: &[String], limit: Duration) -> Spec {
        let cwd = PathBuf::from("/");
        Spec {
            env: self.variables(&self.request.settings.env, &self.provider.env, &cwd).into(),
            program,
            args: args.iter().collect(),
            cwd,
            stdin: Vec::new(),
            stop: trunkline_process::StopSignal::Term,
            grace: Duration::from_secs(1),
            limits: RunLimits::all(limit),
            confinement: None,
        }
    }

    /// The command that would run the model.
    pub(crate) fn plan(&self) -> Result<Plan, Failure> {
        let model = self.model;
        let cwd =
            if model.worktree { self.request.settings.worktrees.join(self.request.run) } else { model.repo.clone() };
        let cwd_text = cwd.to_string_lossy();
        let values = self.values("<prompt>", &cwd_text);
        let mut command = self.provider.command(OutputForm::Streamed, &values)?;
        command.env.extend(self.places());
        let located = locate(self.provider, model.command.as_deref(), self.request.settings.variable("PATH"));
        Ok(Plan {
            program: located.map(|located| located.path),
            env: self.variables(&[], &command.env, &cwd),
            args: command.args,
            cwd,
            delivery: self.provider.prompt,
        })
    }

    fn values<'a>(&'a self, prompt: &'a str, cwd: &'a str) -> Values<'a> {
        values(self.model, self.provider, self.request.settings.sandbox, prompt, cwd, &self.template.folders)
    }
}

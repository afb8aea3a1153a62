//! The four tools of the agent, which work in a workspace within its permissions.
//!
//! The user of the tools is an LLM. A failure is therefore a normal outcome whose text says what is wrong and how to fix it.
//!
//! The permissions apply to the file tools. `bash` is limited by the [`Confinement`](trunkline_process::Confinement) of
//! its [`Shell`]; without one, a command may do everything that the user may.

mod bash;
mod call;
mod client;
mod cut;
mod edit;
mod outcome;
mod output;
mod read;
mod replace;
mod save;
mod shell;
#[cfg(test)]
pub(crate) mod tests;
mod workspace;
mod write;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio_util::sync::CancellationToken;
use trunkline_core::turn::Json;
use trunkline_core::vocabulary::Permissions;

use self::call::{AllowedTools, ToolRequest};
pub use self::client::ClientToolbox;
pub use self::outcome::ToolOutcome;
use self::outcome::ToolResult;
pub use self::shell::Shell;
use self::workspace::Workspace;
use crate::transcript::INTERRUPTED;

/// Default time limit of a command.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(30);

/// The tools of a workspace.
#[derive(Clone)]
pub struct Toolbox {
    workspace: Arc<Workspace>,
    /// Tools that may be used; all if empty.
    only: Vec<String>,
    shell: Shell,
    time_limit: Duration,
    /// Cancelled to end a running tool.
    stop: CancellationToken,
    /// Tools of the client, beside those of the agent.
    client: Option<Arc<dyn ClientToolbox>>,
}

/// Names of the tools that are offered under these permissions. `only` restricts them unless it is empty.
#[must_use]
pub fn offered(permissions: Permissions, only: &[String]) -> Vec<&'static str> {
    call::names(AllowedTools { permissions, only })
}

impl Toolbox {
    /// Tools for the workspace `root`, which must be an absolute path.
    #[must_use]
    pub fn new(root: PathBuf, permissions: Permissions, shell: Shell) -> Self {
        let workspace = Arc::new(Workspace { root, permissions, readable: Vec::new() });
        let stop = CancellationToken::new();
        Self { workspace, only: Vec::new(), shell, time_limit: COMMAND_TIMEOUT, stop, client: None }
    }

    /// Replaces the default time limit of commands.
    #[must_use]
    pub fn with_time_limit(self, time_limit: Duration) -> Self {
        Self { time_limit, ..self }
    }

    /// Allows reading below these folders, too. Folders that do not exist are ignored. Writing stays limited to the workspace.
    #[must_use]
    pub fn reading(self, folders: &[PathBuf]) -> Self {
        let Workspace { root, permissions, .. } = &*self.workspace;
        let readable = folders.iter().filter_map(|folder| folder.canonicalize().ok()).collect();
        let workspace = Workspace { root: root.clone(), permissions: *permissions, readable };
        Self { workspace: Arc::new(workspace), ..self }
    }

    /// Restricts the tools to these names, unless the list is empty.
    #[must_use]
    pub fn only(self, names: &[String]) -> Self {
        Self { only: names.to_vec(), ..self }
    }

    /// Adds tools of the client.
    #[must_use]
    pub fn with_client_tools(self, client: Option<Arc<dyn ClientToolbox>>) -> Self {
        Self { client, ..self }
    }

    /// Ends a running command, whose outcome is its output so far. No command starts after that.
    pub fn stop(&self) {
        self.stop.cancel();
    }

    /// Definitions of the allowed tools, as a JSON array in OpenAI's format. `None` if there are none, because services
    /// refuse an empty list.
    #[must_use]
    pub fn definitions(&self) -> Option<Json> {
        let own = call::definitions(self.allowed());
        let Some(client) = self.client.as_deref() else { return own };
        let mut all: Vec<Value> = own.and_then(|own| serde_json::from_str(own.as_str()).ok()).unwrap_or_default();
        all.extend(client::definitions(client, &call::names(self.allowed())));
        (!all.is_empty()).then(|| Json::from(&Value::Array(all)))
    }

    /// Runs one call. Every failure is described in the outcome, for the model.
    ///
    /// Dropping the future ends a command with all its child processes. A file is then either unchanged or completely
    /// written.
    pub async fn run(&self, name: &str, arguments: &str) -> ToolOutcome {
        if let Some(client) = self.client.as_deref()
            && let Some(offered) = client::offered_name(client, &call::names(self.allowed()), name)
        {
            let called = self.stop.run_until_cancelled(client.call(offered, arguments)).await;
            return called.unwrap_or_else(|| Err(INTERRUPTED.to_owned())).into();
        }
        let call = match call::parse(name, arguments, self.allowed()) {
            Ok(call) => call,
            Err(output) => return ToolOutcome { output, ok: false },
        };
        match call {
            ToolRequest::Read { path } => {
                self.run_blocking(move |workspace, _| read::read(workspace, &path)).await.into()
            }
            ToolRequest::Write { path, content } => self
                .run_blocking(move |workspace, cancelled| write::write(workspace, &path, &content, cancelled))
                .await
                .into(),
            ToolRequest::Edit { path, old, new } => self
                .run_blocking(move |workspace, cancelled| edit::edit(workspace, &path, &old, &new, cancelled))
                .await
                .into(),
            ToolRequest::Bash { command } => self.bash(&command).await,
        }
    }

    /// Runs a command in the workspace regardless of the permissions, which only limit the model. Cancel safe as
    /// [`run`](Self::run).
    pub async fn bash(&self, command: &str) -> ToolOutcome {
        bash::run(&self.shell, &self.workspace.root, command, self.time_limit, &self.stop).await.into()
    }

    fn allowed(&self) -> AllowedTools<'_> {
        AllowedTools { permissions: self.workspace.permissions, only: &self.only }
    }

    /// Runs file work on a blocking thread. It cannot be interrupted there, but its token is cancelled when the caller no
    /// longer waits.
    async fn run_blocking(
        &self,
        work: impl FnOnce(&Workspace, &CancellationToken) -> ToolResult + Send + 'static,
    ) -> ToolResult {
        let workspace = Arc::clone(&self.workspace);
        let cancelled = CancellationToken::new();
        let _guard = cancelled.clone().drop_guard();
        let working = tokio::task::spawn_blocking(move || work(&workspace, &cancelled));
        // A file may block forever, for example on a dead network server.
        match self.stop.run_until_cancelled(working).await {
            Some(done) => done.unwrap_or_else(|error| Err(format!("the tool itself failed: {error}"))),
            None => Err(INTERRUPTED.to_owned()),
        }
    }
}

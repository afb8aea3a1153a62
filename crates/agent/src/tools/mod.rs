//! The four tools, in a workspace, as far as its permissions go.
//!
//! Their user is an LLM. So whatever goes wrong is an answer, not an error: it says what is wrong and how to mend it.
//!
//! The permissions hold for what is asked of the file tools. What `bash` may do is for whoever gives it a [`Confinement`]:
//! without one, what the user may.

mod bash;
mod call;
mod cut;
mod edit;
mod place;
mod read;
mod replace;
mod save;
#[cfg(test)]
pub(crate) mod tests;
mod transcript;
mod write;

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use trunkline_core::provider::Permissions;
use trunkline_core::turn::Json;
use trunkline_process::{Confinement, Keepers};

use self::call::{Allowed, Call};
use self::place::Workspace;
use crate::transcript::INTERRUPTED;

/// How long a command may run.
const TIME_LIMIT: Duration = Duration::from_secs(30);

/// What the tools may touch and how commands are started.
#[derive(Clone)]
pub struct Toolbox {
    workspace: Arc<Workspace>,
    /// Only these tools; all, where none is named.
    only: Vec<String>,
    shell: Shell,
    time_limit: Duration,
    /// Cancelled when what runs is to end.
    stop: CancellationToken,
}

/// The tools that are offered under these permissions, of those that are named; of all, where none is.
#[must_use]
pub fn offered(permissions: Permissions, only: &[String]) -> Vec<&'static str> {
    call::names(Allowed { permissions, only })
}

/// How commands are started.
#[derive(Clone)]
pub struct Shell {
    pub keepers: Keepers,
    /// The whole environment of a command.
    pub env: Vec<(OsString, OsString)>,
    /// Where a command may write; none means wherever the user may.
    pub confinement: Option<Confinement>,
}

/// What the model is told about a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    pub output: String,
    pub ok: bool,
}

/// What a tool has to say: as wanted, or why not. Both are texts for the model.
type Answer = Result<String, String>;

impl Toolbox {
    /// `root` is the workspace, an absolute folder.
    #[must_use]
    pub fn new(root: PathBuf, permissions: Permissions, shell: Shell) -> Self {
        let workspace = Arc::new(Workspace { root, permissions, readable: Vec::new() });
        Self { workspace, only: Vec::new(), shell, time_limit: TIME_LIMIT, stop: CancellationToken::new() }
    }

    /// The same tools with another limit for commands than 30 seconds.
    #[must_use]
    pub fn with_time_limit(self, time_limit: Duration) -> Self {
        Self { time_limit, ..self }
    }

    /// The same tools, which may read files below these folders, too. They must be there, and writing stays inside.
    #[must_use]
    pub fn reading(self, folders: &[PathBuf]) -> Self {
        let Workspace { root, permissions, .. } = &*self.workspace;
        let readable = folders.iter().filter_map(|folder| folder.canonicalize().ok()).collect();
        let workspace = Workspace { root: root.clone(), permissions: *permissions, readable };
        Self { workspace: Arc::new(workspace), ..self }
    }

    /// The same without the tools that are not named; all, where none is.
    #[must_use]
    pub fn only(self, names: &[String]) -> Self {
        Self { only: names.to_vec(), ..self }
    }

    /// Ends a command that runs: it answers with what it has printed. None is begun after that.
    pub fn stop(&self) {
        self.stop.cancel();
    }

    /// OpenAI's definitions of the tools that are allowed, as an array; nothing, where there are none: an empty list is
    /// refused.
    #[must_use]
    pub fn definitions(&self) -> Option<Json> {
        call::definitions(self.allowed())
    }

    /// Runs one call. Whatever is wrong with it, the model reads about it in the outcome.
    ///
    /// Dropping the future ends a command with everything it started, and leaves a file as it was or as it should be.
    pub async fn run(&self, name: &str, arguments: &str) -> Outcome {
        let call = match call::parse(name, arguments, self.allowed()) {
            Ok(call) => call,
            Err(output) => return Outcome { output, ok: false },
        };
        match call {
            Call::Read { path } => self.in_files(move |workspace, _| read::read(workspace, &path)).await.into(),
            Call::Write { path, content } => {
                self.in_files(move |workspace, gone| write::write(workspace, &path, &content, gone)).await.into()
            }
            Call::Edit { path, old, new } => {
                self.in_files(move |workspace, gone| edit::edit(workspace, &path, &old, &new, gone)).await.into()
            }
            Call::Bash { command } => self.bash(&command).await,
        }
    }

    /// Runs a command in the workspace, whoever asks: the permissions are the model's. Cancel safe as [`run`](Self::run).
    pub async fn bash(&self, command: &str) -> Outcome {
        bash::run(&self.shell, &self.workspace.root, command, self.time_limit, &self.stop).await.into()
    }

    fn allowed(&self) -> Allowed<'_> {
        Allowed { permissions: self.workspace.permissions, only: &self.only }
    }

    /// Does file work where it may block. It cannot be interrupted there, but is told when nobody waits for it any more.
    async fn in_files(&self, work: impl FnOnce(&Workspace, &CancellationToken) -> Answer + Send + 'static) -> Answer {
        let workspace = Arc::clone(&self.workspace);
        let gone = CancellationToken::new();
        let _guard = gone.clone().drop_guard();
        let working = tokio::task::spawn_blocking(move || work(&workspace, &gone));
        // A file may block for ever: on a dead server, or being none.
        match self.stop.run_until_cancelled(working).await {
            Some(done) => done.unwrap_or_else(|broken| Err(format!("the tool itself failed: {broken}"))),
            None => Err(INTERRUPTED.to_owned()),
        }
    }
}

impl From<Answer> for Outcome {
    fn from(answer: Answer) -> Self {
        match answer {
            Ok(output) => Self { output, ok: true },
            Err(output) => Self { output, ok: false },
        }
    }
}

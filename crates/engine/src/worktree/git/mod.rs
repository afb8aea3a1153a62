//! Git processes of the gateway.
//!
//! Git is treated as untrusted code. It reads configuration, attributes, indexes and objects that an agent may have
//! written, and configuration can name programs: filters, hooks, monitors, diff and merge drivers. So each git process
//!
//! - runs under kernel confinement, whatever the model's own permissions are, and may write only the paths that its
//!   call names (`GitCall::writing`);
//! - gets a small allow-list of the gateway's environment, none of which is a secret;
//! - has a time limit, and dies with its whole process group when its future is dropped.
//!
//! Where the kernel cannot confine, each call first lists the configuration that git would use and overrides every key
//! that names a program (`programs.rs`).
//!
//! This module knows how to call git, and which git directory belongs to a checkout (`repository.rs`). It does not know
//! what a worktree is used for.

mod programs;
mod repository;

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::time::Duration;

use trunkline_core::failure::{Category, Failure};
use trunkline_core::limits::RunLimits;
use trunkline_process::{Confinement, Cut, Keepers, Landlock, Spec, StopSignal};

pub(crate) use repository::{Repository, confirm};

/// Default time limit of a git process.
pub const DEFAULT_GIT_TIMEOUT: Duration = Duration::from_secs(60);

/// Time between the stop signal to a git process and the kill of its process group.
const GIT_STOP_GRACE: Duration = Duration::from_millis(500);

/// Variables of the gateway's environment that a git process inherits. None of them is a secret: a filter can read
/// them.
const INHERITED: [&str; 9] =
    ["PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "LC_CTYPE", "XDG_CONFIG_HOME", "LD_LIBRARY_PATH"];

/// Variables that each git process gets. Replace references and grafts would let an agent change what a commit
/// contains.
const SET: [(&str, &str); 8] = [
    ("GIT_TERMINAL_PROMPT", "0"),
    ("GIT_OPTIONAL_LOCKS", "0"),
    ("GIT_NO_REPLACE_OBJECTS", "1"),
    ("GIT_GRAFT_FILE", "/dev/null"),
    ("GIT_ASKPASS", "/bin/false"),
    ("GIT_EDITOR", "/bin/false"),
    ("GIT_SEQUENCE_EDITOR", "/bin/false"),
    ("GIT_PAGER", "cat"),
];

/// Runs git.
#[derive(Clone)]
pub(crate) struct Git {
    keepers: Keepers,
    program: Option<PathBuf>,
    env: Vec<(OsString, OsString)>,
    timeout: Duration,
}

impl Git {
    pub(crate) fn new(keepers: Keepers, inherited: &[(OsString, OsString)], timeout: Duration) -> Self {
        let allowed = |name: &OsStr| name.to_str().is_some_and(|name| INHERITED.contains(&name));
        let mut env: Vec<(OsString, OsString)> = inherited.iter().filter(|(name, _)| allowed(name)).cloned().collect();
        env.extend(SET.map(|(name, value)| (name.into(), value.into())));
        for role in ["AUTHOR", "COMMITTER"] {
            env.push((format!("GIT_{role}_NAME").into(), "Trunkline".into()));
            env.push((format!("GIT_{role}_EMAIL").into(), "trunkline@localhost".into()));
        }
        let path = inherited.iter().find(|(name, _)| name == "PATH").map(|(_, value)| value.as_os_str());
        let program = std::env::split_paths(path.unwrap_or_default())
            .map(|folder| folder.join("git"))
            .find(|path| path.is_file());
        Self { keepers, program, env, timeout }
    }

    /// Returns a variable of git's environment.
    pub(crate) fn variable(&self, name: &str) -> Option<&OsStr> {
        self.env.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_os_str())
    }

    /// Time limit of a git process, and of one save.
    pub(crate) const fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Git call in a folder. Git finds the repository itself.
    pub(crate) fn at(&self, folder: &Path) -> GitCall<'_> {
        self.call(vec!["-C".into(), folder.into()])
    }

    /// Git call on files with an explicit git directory. The `.git` in the folder may have been written by an agent.
    pub(crate) fn on(&self, tree: GitPaths<'_>) -> GitCall<'_> {
        let option = |name: &str, path: &Path| {
            let mut option = OsString::from(name);
            option.push(path);
            option
        };
        let mut place: Vec<OsString> = vec!["-C".into(), tree.files.into()];
        place.extend([option("--git-dir=", tree.git_dir), option("--work-tree=", tree.files)]);
        self.call(place).with("TMPDIR", tree.git_dir)
    }

    fn call(&self, place: Vec<OsString>) -> GitCall<'_> {
        GitCall { git: self, place, writes: Vec::new(), env: Vec::new(), stdin: Vec::new() }
    }
}

/// A folder of files, and the git directory to use for them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct GitPaths<'a> {
    pub(crate) files: &'a Path,
    pub(crate) git_dir: &'a Path,
}

/// One git process, not yet started. It may write nothing but the paths of `writing`.
#[must_use]
pub(crate) struct GitCall<'a> {
    git: &'a Git,
    place: Vec<OsString>,
    writes: Vec<PathBuf>,
    env: Vec<(OsString, OsString)>,
    stdin: Vec<u8>,
}

impl GitCall<'_> {
    /// Allows git to write these canonical paths, unless they have been replaced by symbolic links.
    pub(crate) fn writing(mut self, paths: impl IntoIterator<Item = PathBuf>) -> Self {
        self.writes.extend(paths);
        self
    }

    pub(crate) fn with(mut self, name: &str, value: impl Into<OsString>) -> Self {
        self.env.push((name.into(), value.into()));
        self
    }

    pub(crate) fn stdin(mut self, text: Vec<u8>) -> Self {
        self.stdin = text;
        self
    }

    /// Runs git to its end and returns its output. Dropping the future kills git and everything it started.
    pub(crate) async fn run<A: AsRef<OsStr>>(self, args: &[A]) -> Result<Vec<u8>, Failure> {
        let overrides = match Landlock::here() {
            Ok(_) => Vec::new(),
            Err(_) => programs::disabling(&self.spawn(&["config", "--list", "--name-only", "-z"], &[], b"").await?),
        };
        self.spawn(args, &overrides, &self.stdin).await
    }

    /// Runs git and returns its output as text, without the final newline.
    pub(crate) async fn line<A: AsRef<OsStr>>(self, args: &[A]) -> Result<String, Failure> {
        let output = self.run(args).await?;
        Ok(String::from_utf8_lossy(&output).trim_end_matches('\n').to_owned())
    }

    async fn spawn<A: AsRef<OsStr>>(
        &self,
        args: &[A],
        overrides: &[(String, String)],
        stdin: &[u8],
    ) -> Result<Vec<u8>, Failure> {
        let git = self.git;
        let Some(program) = git.program.clone() else {
            let failure = Failure::new(Category::Configuration, "worktrees need git: command not found: git");
            return Err(failure.hint("install git, or remove \"worktree\": true from the model"));
        };
        let name = args.iter().take(2).map(|arg| arg.as_ref().to_string_lossy()).collect::<Vec<_>>().join(" ");
        let failed = |detail: &str| Failure::new(Category::Configuration, format!("git {name}: {detail}"));
        let mut env = git.env.clone();
        env.extend(self.env.iter().cloned());
        env.extend(programs::as_variables(overrides));
        let spec = Spec {
            program,
            args: self.place.iter().map(OsString::as_os_str).chain(args.iter().map(AsRef::as_ref)).collect(),
            env: env.into(),
            cwd: "/".into(),
            stdin: stdin.to_vec(),
            stop: StopSignal::Term,
            grace: GIT_STOP_GRACE,
            limits: RunLimits::all(git.timeout),
            confinement: Landlock::here().is_ok().then(|| Confinement {
                writable: vec!["/dev/null".into()],
                pinned: self.writes.clone(),
                ..Confinement::default()
            }),
        };
        let output = git.keepers.output(spec).await.map_err(|error| failed(&error.to_string()))?;
        match &output.cut {
            Some(Cut::Limit(_)) => {
                let message = format!("stopped after {:?}, which is its time limit", git.timeout);
                Err(failed(&message).hint("a filter or a hook may hang; --git-timeout sets the limit"))
            }
            Some(Cut::TooLong) => Err(failed("its output is too long")),
            None if output.exit.success() => Ok(output.stdout),
            None => Err(explained(failed(output.stderr.trim()))),
        }
    }
}

/// Adds a hint where git's own advice refers to a command that the user did not run.
fn explained(failure: Failure) -> Failure {
    if failure.message.contains("dubious ownership") {
        let hint = "the repository belongs to another user: if you trust it, run \
                    `git config --global --add safe.directory <its folder>`";
        return failure.hint(hint);
    }
    failure
}

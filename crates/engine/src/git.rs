//! Our own calls of git: by argv, without hooks, prompts or a pager, in the user's name for nothing.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::time::Duration;

use trunkline_core::failure::{Category, Failure};
use trunkline_core::limits::Limits;
use trunkline_process::{Keepers, Spec, StopSignal};

/// Settings that hold for each of our calls, whatever the repository says: it may have been written by an agent.
const SETTINGS: [(&str, &str); 7] = [
    ("core.hooksPath", "/dev/null"),
    ("core.fsmonitor", "false"),
    ("commit.gpgSign", "false"),
    ("gc.auto", "0"),
    ("maintenance.auto", "false"),
    ("advice.detachedHead", "false"),
    // A worktree of ours is moved, and says whose it is in one form only.
    ("worktree.useRelativePaths", "false"),
];

const LONGEST: Duration = Duration::from_secs(300);

#[derive(Clone)]
pub(crate) struct Git {
    keepers: Keepers,
    program: Option<PathBuf>,
    env: Vec<(OsString, OsString)>,
}

/// All that git is told of the environment. What it runs may be an agent's choice (a filter in the repository's
/// settings), and is nobody to be given a key.
const INHERITED: [&str; 10] =
    ["PATH", "HOME", "USER", "LOGNAME", "TMPDIR", "LANG", "LC_ALL", "LC_CTYPE", "XDG_CONFIG_HOME", "LD_LIBRARY_PATH"];

impl Git {
    pub(crate) fn new(keepers: Keepers, inherited: &[(OsString, OsString)]) -> Self {
        let kept = |name: &OsStr| name.to_str().is_some_and(|name| INHERITED.contains(&name));
        let mut env: Vec<(OsString, OsString)> = inherited.iter().filter(|(name, _)| kept(name)).cloned().collect();
        let mut set = |name: &str, value: &str| env.push((name.into(), value.into()));
        set("GIT_TERMINAL_PROMPT", "0");
        set("GIT_OPTIONAL_LOCKS", "0");
        for role in ["AUTHOR", "COMMITTER"] {
            set(&format!("GIT_{role}_NAME"), "Trunkline");
            set(&format!("GIT_{role}_EMAIL"), "trunkline@localhost");
        }
        set("GIT_CONFIG_COUNT", &SETTINGS.len().to_string());
        for (index, (key, value)) in SETTINGS.iter().enumerate() {
            set(&format!("GIT_CONFIG_KEY_{index}"), key);
            set(&format!("GIT_CONFIG_VALUE_{index}"), value);
        }
        let path = inherited.iter().find(|(name, _)| name == "PATH").map(|(_, value)| value.as_os_str());
        let program = std::env::split_paths(path.unwrap_or_default())
            .map(|folder| folder.join("git"))
            .find(|path| path.is_file());
        Self { keepers, program, env }
    }

    /// What git is told of the environment.
    pub(crate) fn variable(&self, name: &str) -> Option<&OsStr> {
        self.env.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_os_str())
    }

    /// The same git, told more of its environment.
    pub(crate) fn with_env<const N: usize>(&self, more: [(&str, OsString); N]) -> Self {
        let mut git = self.clone();
        git.env.extend(more.map(|(name, value)| (name.into(), value)));
        git
    }

    /// Runs `git -C <folder> <args…>` and returns what it printed.
    pub(crate) async fn run<A: AsRef<OsStr>>(&self, folder: &Path, args: &[A]) -> Result<Vec<u8>, Failure> {
        self.call(vec!["-C".into(), folder.into()], args).await
    }

    /// The same in a worktree, by what the repository knows of it: what is written in the worktree itself is an agent's.
    pub(crate) async fn run_in<A: AsRef<OsStr>>(&self, tree: &Tree<'_>, args: &[A]) -> Result<Vec<u8>, Failure> {
        let option = |name: &str, path: &Path| {
            let mut option = OsString::from(name);
            option.push(path);
            option
        };
        let place = [option("--git-dir=", tree.registration), option("--work-tree=", tree.path)];
        self.call([vec!["-C".into(), tree.path.into()], place.to_vec()].concat(), args).await
    }

    /// The same, for an answer of one line.
    pub(crate) async fn line_in<A: AsRef<OsStr>>(&self, tree: &Tree<'_>, args: &[A]) -> Result<String, Failure> {
        self.run_in(tree, args).await.map(|output| one_line(&output))
    }

    async fn call<A: AsRef<OsStr>>(&self, mut argv: Vec<OsString>, args: &[A]) -> Result<Vec<u8>, Failure> {
        let Some(program) = self.program.clone() else {
            return Err(Failure::new(Category::Configuration, "worktrees need git: command not found: git"));
        };
        argv.extend(args.iter().map(|arg| arg.as_ref().to_owned()));
        let spec = Spec {
            program,
            args: argv,
            env: self.env.clone(),
            cwd: "/".into(),
            stdin: Vec::new(),
            stop: StopSignal::Term,
            grace: Duration::from_secs(2),
            limits: Limits::all(LONGEST),
            confinement: None,
        };
        let name = args.iter().take(2).map(|arg| arg.as_ref().to_string_lossy()).collect::<Vec<_>>().join(" ");
        let failed = |detail: &str| Failure::new(Category::Configuration, format!("git {name}: {detail}"));
        let output = self.keepers.output(spec).await.map_err(|error| failed(&error.to_string()))?;
        if output.success() { Ok(output.stdout) } else { Err(failed(output.stderr.trim())) }
    }

    /// The same, for an answer of one line.
    pub(crate) async fn line<A: AsRef<OsStr>>(&self, folder: &Path, args: &[A]) -> Result<String, Failure> {
        self.run(folder, args).await.map(|output| one_line(&output))
    }
}

/// A worktree, and the folder in the repository that git keeps for it.
pub(crate) struct Tree<'a> {
    pub(crate) path: &'a Path,
    pub(crate) registration: &'a Path,
}

fn one_line(output: &[u8]) -> String {
    String::from_utf8_lossy(output).trim_end_matches('\n').to_owned()
}

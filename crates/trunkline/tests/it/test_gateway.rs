//! A `TestGateway`: the real binary in a world of its own. Home, configuration, search path, repository, state and worktrees
//! are folders that end with the test; the CLIs are small scripts that replay what real ones printed.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::{PermissionsExt, lchown, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Map, Value, json};
use tempfile::TempDir;

use crate::http::{Ask, Reply, exchange};
use crate::look::{all_gone, children, processes_of, until};

/// All that the fake CLIs, and git, need of the system.
const TOOLS: [&str; 22] = [
    "basename", "sed", "uname", "sh", "cat", "chmod", "date", "git", "sleep", "env", "mkdir", "rmdir", "rm", "mv",
    "ln", "ls", "dd", "tr", "wc", "setsid", "touch", "true",
];

/// A user who owns nothing.
const NOBODY: u32 = 65534;

/// A script must not be open for writing while another thread forks: whoever has it open then cannot be executed.
static FORKING: Mutex<()> = Mutex::new(());

pub(crate) struct TestGateway {
    folder: TempDir,
    models: Map<String, Value>,
    env: Vec<(String, String)>,
    args: Vec<String>,
    gateway: Option<GatewayChild>,
    /// Runs as a user who may not do everything; none where whoever runs the tests is one.
    user: Option<u32>,
    /// The Python that starts `trunkline` without the kernel's means to confine.
    unconfined: Option<PathBuf>,
    /// How many files the gateway may open at most; none for as many as the tests may.
    open_files: Option<u64>,
    /// Keepers of gateways that were killed: nobody but root can tell whose they are afterwards.
    keepers: Vec<u32>,
    /// What the gateway is started by.
    behind: Vec<String>,
}

/// A gateway that listens.
struct GatewayChild {
    child: Child,
    address: String,
    /// Held, for one that ends with it.
    stdin: Option<ChildStdin>,
    /// Kept open: it may want to say more.
    _stdout: BufReader<ChildStdout>,
}

/// A second gateway.
pub(crate) struct Beside(GatewayChild);

impl Beside {
    pub(crate) fn address(&self) -> &str {
        &self.0.address
    }

    pub(crate) fn chat(&self, model: &str, text: &str) -> Ask {
        Ask::new(self.address(), model, text)
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        self.0.child.kill().unwrap();
        self.0.child.wait().unwrap();
    }
}

/// A command that ran to its end.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl TestGateway {
    pub(crate) fn new() -> Self {
        Self::within(tempfile::Builder::new().prefix("trunkline-").tempdir().unwrap())
    }

    /// As [`new`](Self::new), outside of the folders for temporary files; none where the tests are built inside of one.
    pub(crate) fn apart() -> Option<Self> {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
        if ["/tmp", "/var/tmp", "/dev/shm"].iter().any(|temporary| folder.starts_with(temporary)) {
            eprintln!("skipped: {} is a place for temporary files", folder.display());
            return None;
        }
        Some(Self::within(tempfile::Builder::new().prefix("trunkline-").tempdir_in(folder).unwrap()))
    }

    fn within(folder: TempDir) -> Self {
        let line = Self {
            folder,
            models: Map::new(),
            env: Vec::new(),
            args: Vec::new(),
            gateway: None,
            user: None,
            unconfined: None,
            open_files: None,
            keepers: Vec::new(),
            behind: Vec::new(),
        };
        for name in ["home", "config", "bin", "tools", "repo", "seen"] {
            fs::create_dir(line.path(name)).unwrap();
        }
        for tool in TOOLS {
            symlink(which(tool), line.path("tools").join(tool)).unwrap();
        }
        fs::write(line.path("fake.sh"), include_str!("fake.sh")).unwrap();
        line.git(&["init", "--quiet", "--initial-branch=main"]);
        fs::write(line.repo().join("README.md"), "a repository\n").unwrap();
        line.commit("first");
        line
    }

    /// From now on `trunkline` runs as a user to whom permissions mean something, and who owns all there is so far.
    pub(crate) fn unprivileged(mut self) -> Self {
        if rustix::process::geteuid().is_root() {
            self.user = Some(NOBODY);
            self.give(self.folder.path());
            // Last: it is the same file as everybody's.
            let binary = self.path("bin/trunkline");
            if fs::hard_link(env!("CARGO_BIN_EXE_trunkline"), &binary).is_err() {
                fs::copy(env!("CARGO_BIN_EXE_trunkline"), &binary).unwrap();
            }
        }
        self
    }

    /// From now on `trunkline` runs as on a kernel without Landlock.
    pub(crate) fn without_landlock(mut self) -> Self {
        fs::write(self.path("without_landlock.py"), include_str!("without_landlock.py")).unwrap();
        // The one that is found may be a script of a version manager, which needs more than the gateway is given.
        let asked = command(&which("python3")).args(["-c", "import sys; print(sys.executable)"]).output().unwrap();
        self.unconfined = Some(String::from_utf8(asked.stdout).unwrap().trim_end().into());
        self
    }

    /// The gateway is started by this command, with its own command line as the last arguments.
    pub(crate) fn behind(mut self, words: &[&str]) -> Self {
        self.behind = words.iter().map(|&word| word.to_owned()).collect();
        self
    }

    /// Puts a script in git's place. A confined one could leave no notes, so nothing is confined.
    pub(crate) fn git_script(self, script: &str) -> Self {
        self.cli("git", script).without_landlock()
    }

    /// Gives files to the user that `trunkline` runs as.
    pub(crate) fn give(&self, path: &Path) {
        lchown(path, self.user, self.user).unwrap();
        let is_folder = path.symlink_metadata().unwrap().is_dir();
        for entry in is_folder.then(|| fs::read_dir(path).unwrap()).into_iter().flatten() {
            self.give(&entry.unwrap().path());
        }
    }

    /// Puts a fake CLI on the search path: a shell script that has the words of `fake.sh`.
    pub(crate) fn cli(self, name: &str, script: &str) -> Self {
        let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures");
        let prelude = format!(
            "#!/bin/sh\ncli='{name}' seen='{}' fixtures='{}'\n. '{}'\n",
            self.path("seen").display(),
            fixtures.display(),
            self.path("fake.sh").display()
        );
        self.write_program(&self.path("bin").join(name), &format!("{prelude}{script}\n"));
        self
    }

    /// Adds a model to `models.json`, in the test's repository unless it says otherwise.
    pub(crate) fn model(mut self, name: &str, entry: Value) -> Self {
        let mut whole = json!({"repoPath": self.repo()});
        for (key, value) in entry.as_object().unwrap() {
            whole[key] = value.clone();
        }
        self.models.insert(name.to_owned(), whole);
        self
    }

    pub(crate) fn env(mut self, name: &str, value: impl Into<String>) -> Self {
        self.env.push((name.to_owned(), value.into()));
        self
    }

    /// Adds arguments of `trunkline serve`.
    pub(crate) fn args(mut self, args: &[&str]) -> Self {
        self.args.extend(args.iter().map(|&arg| arg.to_owned()));
        self
    }

    /// Limits the files that the gateway may open, from its start: a gateway is not to be changed from outside.
    pub(crate) fn open_files(mut self, most: u64) -> Self {
        self.open_files = Some(most);
        self
    }

    /// Writes a file of the configuration folder.
    pub(crate) fn config(self, name: &str, text: &str) -> Self {
        fs::write(self.path("config").join(name), text).unwrap();
        self
    }

    /// Writes a file of the repository, without committing it.
    pub(crate) fn file(self, name: &str, text: &str) -> Self {
        fs::create_dir_all(self.repo().join(name).parent().unwrap()).unwrap();
        fs::write(self.repo().join(name), text).unwrap();
        self
    }

    /// Starts the gateway and waits until it listens.
    pub(crate) fn start(mut self) -> Self {
        self.restart();
        self
    }

    /// As [`start`](Self::start), once more: after a gateway that was killed.
    pub(crate) fn restart(&mut self) {
        self.write_models();
        self.listen("serve");
    }

    /// Starts the mock LLM in the gateway's place.
    pub(crate) fn start_mock(mut self) -> Self {
        self.listen("mock-llm");
        self
    }

    /// Starts a command that listens, and waits until it does.
    fn listen(&mut self, name: &str) {
        self.gateway = Some(self.listening(name));
    }

    /// Another gateway in the same world, which ends with the value.
    pub(crate) fn beside(&self) -> Beside {
        Beside(self.listening("serve"))
    }

    fn listening(&self, name: &str) -> GatewayChild {
        let log = fs::OpenOptions::new().create(true).append(true).open(self.path("log")).unwrap();
        let plain = self.trunkline(&[name, "--port", "0"]);
        let mut command = match self.behind.split_first() {
            Some((program, args)) => {
                let mut command = command(Path::new(program));
                command.args(args).arg(plain.get_program()).args(plain.get_args());
                command.current_dir(self.repo()).env_clear();
                command.envs(plain.get_envs().filter_map(|(name, value)| Some((name, value?))));
                command
            }
            None => plain,
        };
        if let Some(most) = self.open_files {
            command = limited(&command, most);
        }
        command.args(&self.args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log);
        let mut child = spawn(&mut command);
        let stdin = child.stdin.take();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut said = String::new();
        stdout.read_line(&mut said).unwrap();
        let address = said.trim().strip_prefix("listening on http://");
        let address = address.unwrap_or_else(|| panic!("not listening: {said:?}\n{}", self.log())).to_owned();
        GatewayChild { child, address, stdin, _stdout: stdout }
    }

    /// Runs `trunkline` with these arguments to its end.
    pub(crate) fn run(&self, args: &[&str]) -> Ran {
        self.run_with(args, b"")
    }

    pub(crate) fn run_with(&self, args: &[&str], stdin: &[u8]) -> Ran {
        self.write_models();
        let mut command = self.trunkline(args);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = spawn(&mut command);
        // What it does not read it does not need.
        let _closed_early = child.stdin.take().unwrap().write_all(stdin);
        ran(child)
    }

    /// As [`run`](Self::run), where nothing can be written to stderr.
    pub(crate) fn run_unheard(&self, args: &[&str]) -> Ran {
        self.write_models();
        let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let mut command = self.trunkline(args);
        ran(spawn(command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(full)))
    }

    /// Runs `trunkline`, sends it a signal once a CLI has told something, and waits for its end.
    pub(crate) fn interrupted(&self, args: &[&str], told: &str, signal: Signal) -> Ran {
        self.write_models();
        let mut command = self.trunkline(args);
        let child = spawn(command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()));
        self.told(told);
        kill_process(Pid::from_child(&child), signal).unwrap();
        ran(child)
    }

    /// Runs `trunkline`, sends it a signal once it has said something, and waits for its end.
    pub(crate) fn interrupted_after(&self, args: &[&str], said: &str, signal: Signal) -> Ran {
        self.write_models();
        let mut command = self.trunkline(args);
        let mut child = spawn(command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()));
        let mut heard = Vec::new();
        while !String::from_utf8_lossy(&heard).contains(said) {
            let mut more = [0; 4096];
            let count = child.stdout.as_mut().unwrap().read(&mut more).unwrap();
            assert!(count > 0, "ended before {said:?}");
            heard.extend_from_slice(&more[..count]);
        }
        kill_process(Pid::from_child(&child), signal).unwrap();
        ran(child)
    }

    /// A request to the gateway with one user message, for the first model unless it says otherwise.
    pub(crate) fn chat(&self, text: &str) -> Ask {
        let model = self.models.keys().next().map_or("codex", String::as_str);
        Ask::new(self.address(), model, text)
    }

    pub(crate) fn get(&self, path: &str) -> Reply {
        let address = self.address();
        exchange(address, &format!("GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n")).finish()
    }

    pub(crate) fn address(&self) -> &str {
        &self.gateway.as_ref().expect("the gateway runs").address
    }

    pub(crate) fn gateway_pid(&self) -> u32 {
        self.gateway.as_ref().expect("the gateway runs").child.id()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.gateway_pid().cast_signed()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    /// Closes the gateway's standard input, as the end of whoever started it does.
    pub(crate) fn close_stdin(&mut self) {
        self.gateway.as_mut().expect("the gateway runs").stdin = None;
    }

    /// Waits until the gateway has ended; its exit status.
    pub(crate) fn ended(&mut self) -> Option<i32> {
        let gateway = self.gateway.as_mut().expect("the gateway runs");
        let mut status = None;
        until("the gateway has ended", || {
            status = gateway.child.try_wait().unwrap();
            status.is_some()
        });
        self.gateway = None;
        status.and_then(|status| status.code())
    }

    /// Kills the gateway as nothing can refuse.
    pub(crate) fn kill(&mut self) {
        self.keepers.extend(children(self.gateway_pid()));
        self.signal(Signal::KILL);
        self.ended();
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.path("log")).unwrap_or_default()
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn repo(&self) -> PathBuf {
        self.path("repo")
    }

    /// Runs git in the repository, as its user; what it printed.
    pub(crate) fn git(&self, args: &[&str]) -> String {
        let mut command = command(&which("git"));
        command.arg("-C").arg(self.repo()).args(args).env_clear().stdin(Stdio::null());
        command.env("HOME", self.path("home")).env("GIT_CONFIG_NOSYSTEM", "1").env("PATH", self.path("tools"));
        for role in ["AUTHOR", "COMMITTER"] {
            command.env(format!("GIT_{role}_NAME"), "A User").env(format!("GIT_{role}_EMAIL"), "user@example.org");
        }
        let output = spawn(command.stdout(Stdio::piped()).stderr(Stdio::piped())).wait_with_output().unwrap();
        assert!(output.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
    }

    pub(crate) fn commit(&self, message: &str) {
        self.git(&["add", "--all"]);
        self.git(&["commit", "--quiet", "-m", message]);
    }

    /// The arguments that a CLI noted.
    pub(crate) fn argv(&self, cli: &str) -> Vec<String> {
        let noted = self.noted(&format!("{cli}.argv"));
        noted.split_terminator('\0').map(str::to_owned).collect()
    }

    /// A note that is there.
    pub(crate) fn noted(&self, name: &str) -> String {
        let path = self.path("seen").join(name);
        let bytes = fs::read(&path).unwrap_or_else(|error| panic!("{name}: {error}\n{}", self.log()));
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// A note, once it is there.
    pub(crate) fn told(&self, name: &str) -> String {
        until(&format!("a CLI told {name}"), || self.path("seen").join(name).exists());
        self.noted(name).trim_end().to_owned()
    }

    /// A note that is a process id.
    pub(crate) fn told_pid(&self, name: &str) -> u32 {
        self.told(name).parse().unwrap()
    }

    /// Leaves a note that a CLI awaits.
    pub(crate) fn tell(&self, name: &str) {
        fs::write(self.path("seen").join(name), "").unwrap();
    }

    pub(crate) fn write_program(&self, path: &Path, text: &str) {
        let _nobody_forks = FORKING.lock().unwrap_or_else(PoisonError::into_inner);
        fs::write(path, text).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    pub(crate) fn write_models(&self) {
        if !self.models.is_empty() {
            let text = serde_json::to_string_pretty(&self.models).unwrap();
            fs::write(self.path("config/models.json"), text).unwrap();
        }
    }

    /// Starts `trunkline`; what it has to say goes to the log.
    pub(crate) fn launch(&self, args: &[&str]) -> Child {
        self.write_models();
        let log = fs::OpenOptions::new().create(true).append(true).open(self.path("log")).unwrap();
        spawn(self.trunkline(args).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log))
    }

    /// Starts `trunkline` on a terminal of its own, which is given as its three streams.
    pub(crate) fn on_terminal(&self, args: &[&str], streams: [Stdio; 3]) -> Child {
        self.write_models();
        let plain = self.trunkline(args);
        let mut command = command(&which("setsid"));
        command.arg("--ctty").arg(plain.get_program()).args(plain.get_args()).current_dir(self.repo()).env_clear();
        command.envs(plain.get_envs().filter_map(|(name, value)| Some((name, value?))));
        let [stdin, stdout, stderr] = streams;
        spawn(command.stdin(stdin).stdout(stdout).stderr(stderr))
    }

    /// The binary, with nothing of the environment of whoever runs the tests.
    fn trunkline(&self, args: &[&str]) -> Command {
        let mut command = match (self.user, &self.unconfined) {
            (Some(user), _) => {
                let mut command = command(&self.path("bin/trunkline"));
                command.uid(user).gid(user);
                command
            }
            (None, Some(python)) => {
                let mut command = command(python);
                command.arg(self.path("without_landlock.py")).arg(env!("CARGO_BIN_EXE_trunkline"));
                command
            }
            (None, None) => command(Path::new(env!("CARGO_BIN_EXE_trunkline"))),
        };
        let search = format!("{}:{}", self.path("bin").display(), self.path("tools").display());
        command.args(args).current_dir(self.repo()).env_clear().env("PATH", search).env("HOME", self.path("home"));
        let takes_places =
            args.first().is_some_and(|&name| !["decode", "provider", "mock-llm", "desktop"].contains(&name));
        if takes_places {
            command.arg("--state").arg(self.path("state")).arg("--worktrees").arg(self.path("worktrees"));
            let configured = fs::read_dir(self.path("config")).unwrap().next().is_some();
            if configured && !args.contains(&"--config") {
                command.arg("--config").arg(self.path("config"));
            }
        }
        // Nothing is started that a test does not ask for.
        command.env("TRUNKLINE_WARM", "0");
        command.envs(self.env.iter().map(|(name, value)| (name, value)));
        command
    }
}

impl Drop for TestGateway {
    /// Whatever a test was about: once its gateway is gone, nothing it started is left.
    fn drop(&mut self) {
        if self.gateway.is_some() {
            self.kill();
        }
        if std::thread::panicking() {
            eprintln!("--- log of the gateway\n{}---", self.log());
            return;
        }
        until("no process is left", || processes_of(self.folder.path()).is_empty());
        all_gone(&self.keepers);
    }
}

impl Ran {
    /// Fails the test unless the command ended with this status.
    #[track_caller]
    pub(crate) fn exits(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "{self:?}");
        self
    }
}

fn ran(child: Child) -> Ran {
    let output = child.wait_with_output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ran { code: output.status.code(), stdout: text(&output.stdout), stderr: text(&output.stderr) }
}

/// Starts a command while nobody writes a script.
pub(crate) fn spawn(command: &mut Command) -> Child {
    let _nobody_writes = FORKING.lock().unwrap_or_else(PoisonError::into_inner);
    command.spawn().unwrap()
}

/// The same command, which may open only so many files.
fn limited(plain: &Command, most: u64) -> Command {
    let mut limited = command(&which("sh"));
    limited
        .args(["-c", &format!("ulimit -n {most}; exec \"$0\" \"$@\"")])
        .arg(plain.get_program())
        .args(plain.get_args());
    limited.env_clear().envs(plain.get_envs().filter_map(|(name, value)| Some((name, value?))));
    limited.current_dir(plain.get_current_dir().unwrap());
    limited
}

#[expect(clippy::disallowed_methods, reason = "tests start the gateway itself, which nothing keeps")]
fn command(program: &Path) -> Command {
    Command::new(program)
}

/// Runs a program of the system to its end; whether it did what it was told.
pub(crate) fn tool(name: &str, args: &[&str]) -> bool {
    spawn(command(&which(name)).args(args).stderr(Stdio::null())).wait().unwrap().success()
}

/// Where a tool is on the search path of whoever runs the tests.
#[expect(clippy::disallowed_methods, reason = "tests need the system's own shell and git")]
pub(crate) fn find(tool: &str) -> Option<PathBuf> {
    let search = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&search).map(|folder| folder.join(tool)).find(|path| path.is_file())
}

/// The same for a tool that the tests cannot do without.
pub(crate) fn which(tool: &str) -> PathBuf {
    find(tool).unwrap_or_else(|| panic!("the tests need {tool}"))
}

/// How long anything may take before a test gives up; nothing waits for it unless a test fails.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

//! `TestGateway`: the real binary in an isolated environment. Home, configuration, search path, repository, state and
//! worktrees are temporary folders that are deleted with the test. The CLIs are small scripts that replay recorded
//! output.

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

use crate::http::{Reply, RequestBuilder, send_raw};
use crate::observe::{children, processes_of, until, until_gone};

/// The system programs that the fake CLIs and git need.
const TOOLS: [&str; 22] = [
    "basename", "sed", "uname", "sh", "cat", "chmod", "date", "git", "sleep", "env", "mkdir", "rmdir", "rm", "mv",
    "ln", "ls", "dd", "tr", "wc", "setsid", "touch", "true",
];

/// Uid of a user without privileges.
const UNPRIVILEGED_UID: u32 = 65534;

/// Held while a script is written and while a process is spawned. A child that is forked while a script is open for
/// writing inherits the descriptor, and executing the script then fails with `ETXTBSY`.
static FORK_LOCK: Mutex<()> = Mutex::new(());

pub(crate) struct TestGateway {
    folder: TempDir,
    models: Map<String, Value>,
    env: Vec<(String, String)>,
    args: Vec<String>,
    gateway: Option<GatewayChild>,
    /// The unprivileged user that `trunkline` runs as; `None` keeps the user who runs the tests.
    user: Option<u32>,
    /// The Python interpreter that starts `trunkline` with Landlock disabled.
    landlock_blocker: Option<PathBuf>,
    /// Limit on the gateway's open files; `None` inherits the limit of the tests.
    open_files: Option<u64>,
    /// Keepers of killed gateways. Remembered because only root can find out later which gateway they belonged to.
    keepers: Vec<u32>,
    /// The command that starts the gateway; empty to start it directly.
    wrapper: Vec<String>,
}

/// A gateway process that listens.
struct GatewayChild {
    child: Child,
    address: String,
    /// Kept open, for a gateway that exits when its standard input is closed.
    stdin: Option<ChildStdin>,
    /// Kept open, so that further output does not fail with a broken pipe.
    _stdout: BufReader<ChildStdout>,
}

/// A second gateway on the same folders; killed on drop.
pub(crate) struct SecondGateway(GatewayChild);

impl SecondGateway {
    pub(crate) fn address(&self) -> &str {
        &self.0.address
    }

    pub(crate) fn chat(&self, model: &str, text: &str) -> RequestBuilder {
        RequestBuilder::new(self.address(), model, text)
    }
}

impl Drop for SecondGateway {
    fn drop(&mut self) {
        self.0.child.kill().unwrap();
        self.0.child.wait().unwrap();
    }
}

/// Exit code and output of a command.
#[derive(Debug)]
pub(crate) struct CommandOutput {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl TestGateway {
    pub(crate) fn new() -> Self {
        Self::within(tempfile::Builder::new().prefix("trunkline-").tempdir().unwrap())
    }

    /// As [`new`](Self::new), but outside the folders for temporary files, which every run may write. `None` if the
    /// target directory itself is in one of them.
    pub(crate) fn outside_tmp() -> Option<Self> {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
        if ["/tmp", "/var/tmp", "/dev/shm"].iter().any(|temporary| folder.starts_with(temporary)) {
            eprintln!("skipped: {} is in a folder for temporary files", folder.display());
            return None;
        }
        Some(Self::within(tempfile::Builder::new().prefix("trunkline-").tempdir_in(folder).unwrap()))
    }

    fn within(folder: TempDir) -> Self {
        let gateway = Self {
            folder,
            models: Map::new(),
            env: Vec::new(),
            args: Vec::new(),
            gateway: None,
            user: None,
            landlock_blocker: None,
            open_files: None,
            keepers: Vec::new(),
            wrapper: Vec::new(),
        };
        for name in ["home", "config", "bin", "tools", "repo", "seen"] {
            fs::create_dir(gateway.path(name)).unwrap();
        }
        for tool in TOOLS {
            symlink(which(tool), gateway.path("tools").join(tool)).unwrap();
        }
        fs::write(gateway.path("fake.sh"), include_str!("fake.sh")).unwrap();
        gateway.git(&["init", "--quiet", "--initial-branch=main"]);
        fs::write(gateway.repo().join("README.md"), "a repository\n").unwrap();
        gateway.commit("first");
        gateway
    }

    /// Makes `trunkline` run as a user that file permissions apply to (not root), and gives that user all existing
    /// files.
    pub(crate) fn unprivileged(mut self) -> Self {
        if rustix::process::geteuid().is_root() {
            self.user = Some(UNPRIVILEGED_UID);
            self.chown_to_user(self.folder.path());
            // Last, because a hard link shares its owner with the binary of all other tests.
            let binary = self.path("bin/trunkline");
            if fs::hard_link(env!("CARGO_BIN_EXE_trunkline"), &binary).is_err() {
                fs::copy(env!("CARGO_BIN_EXE_trunkline"), &binary).unwrap();
            }
        }
        self
    }

    /// Makes `trunkline` run as on a kernel without Landlock.
    pub(crate) fn without_landlock(mut self) -> Self {
        fs::write(self.path("without_landlock.py"), include_str!("without_landlock.py")).unwrap();
        // Resolves the interpreter: `python3` on the search path may be a version manager's script, which needs more of
        // the environment than the gateway gets.
        let resolved = command(&which("python3")).args(["-c", "import sys; print(sys.executable)"]).output().unwrap();
        self.landlock_blocker = Some(String::from_utf8(resolved.stdout).unwrap().trim_end().into());
        self
    }

    /// Starts the gateway through this command, which gets the gateway's command line as its last arguments.
    pub(crate) fn wrapped_in(mut self, words: &[&str]) -> Self {
        self.wrapper = words.iter().map(|&word| word.to_owned()).collect();
        self
    }

    /// Replaces git with a script. Disables Landlock, because a confined script could not leave notes.
    pub(crate) fn git_script(self, script: &str) -> Self {
        self.cli("git", script).without_landlock()
    }

    /// Changes the owner of a folder and everything in it to the user that `trunkline` runs as.
    pub(crate) fn chown_to_user(&self, path: &Path) {
        lchown(path, self.user, self.user).unwrap();
        let is_folder = path.symlink_metadata().unwrap().is_dir();
        for entry in is_folder.then(|| fs::read_dir(path).unwrap()).into_iter().flatten() {
            self.chown_to_user(&entry.unwrap().path());
        }
    }

    /// Puts a fake CLI on the search path: a shell script that can use the functions of `fake.sh`.
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

    /// Adds a model to `models.json`. Its `repoPath` is the test's repository unless the entry sets one.
    pub(crate) fn model(mut self, name: &str, entry: Value) -> Self {
        let mut whole = json!({"repoPath": self.repo()});
        for (key, value) in entry.as_object().unwrap() {
            whole[key] = value.clone();
        }
        self.models.insert(name.to_owned(), whole);
        self
    }

    /// Adds a section to `models.json`, which is not a model.
    pub(crate) fn section(mut self, name: &str, section: Value) -> Self {
        self.models.insert(name.to_owned(), section);
        self
    }

    pub(crate) fn env(mut self, name: &str, value: impl Into<String>) -> Self {
        self.env.push((name.to_owned(), value.into()));
        self
    }

    /// Adds arguments to `trunkline serve`.
    pub(crate) fn args(mut self, args: &[&str]) -> Self {
        self.args.extend(args.iter().map(|&arg| arg.to_owned()));
        self
    }

    /// Limits how many files the gateway may open. Set at its start, because the limit of a running gateway cannot be
    /// changed.
    pub(crate) fn open_files(mut self, limit: u64) -> Self {
        self.open_files = Some(limit);
        self
    }

    /// Writes a file into the configuration folder.
    pub(crate) fn config(self, name: &str, text: &str) -> Self {
        fs::write(self.path("config").join(name), text).unwrap();
        self
    }

    /// Writes a file into the repository, without committing it.
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

    /// Starts the gateway again, after it was stopped or killed.
    pub(crate) fn restart(&mut self) {
        self.write_models();
        self.listen("serve");
    }

    /// Starts the mock LLM instead of the gateway.
    pub(crate) fn start_mock(mut self) -> Self {
        self.listen("mock-llm");
        self
    }

    /// Starts a subcommand that listens, and waits until it does.
    fn listen(&mut self, name: &str) {
        self.gateway = Some(self.spawn_listening(name));
    }

    /// Starts a second gateway on the same folders.
    pub(crate) fn second_gateway(&self) -> SecondGateway {
        SecondGateway(self.spawn_listening("serve"))
    }

    fn spawn_listening(&self, name: &str) -> GatewayChild {
        let log = fs::OpenOptions::new().create(true).append(true).open(self.path("log")).unwrap();
        let plain = self.trunkline(&[name, "--port", "0"]);
        let mut command = match self.wrapper.split_first() {
            Some((program, args)) => {
                let mut command = command(Path::new(program));
                command.args(args).arg(plain.get_program()).args(plain.get_args());
                command.current_dir(self.repo()).env_clear();
                command.envs(plain.get_envs().filter_map(|(name, value)| Some((name, value?))));
                command
            }
            None => plain,
        };
        if let Some(limit) = self.open_files {
            command = with_open_files_limit(&command, limit);
        }
        command.args(&self.args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log);
        let mut child = spawn(&mut command);
        let stdin = child.stdin.take();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut first_line = String::new();
        stdout.read_line(&mut first_line).unwrap();
        let address = first_line.trim().strip_prefix("listening on http://");
        let address = address.unwrap_or_else(|| panic!("not listening: {first_line:?}\n{}", self.log())).to_owned();
        GatewayChild { child, address, stdin, _stdout: stdout }
    }

    /// Runs `trunkline` with these arguments and waits until it exits.
    pub(crate) fn run(&self, args: &[&str]) -> CommandOutput {
        self.run_with(args, b"")
    }

    pub(crate) fn run_with(&self, args: &[&str], stdin: &[u8]) -> CommandOutput {
        self.write_models();
        let mut command = self.trunkline(args);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = spawn(&mut command);
        // The command may exit without reading its input.
        let _ = child.stdin.take().unwrap().write_all(stdin);
        wait_for_output(child)
    }

    /// As [`run`](Self::run), with a stderr that cannot be written (`/dev/full`).
    pub(crate) fn run_with_full_stderr(&self, args: &[&str]) -> CommandOutput {
        self.write_models();
        let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let mut command = self.trunkline(args);
        wait_for_output(spawn(command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(full)))
    }

    /// Runs `trunkline`, sends it a signal once a CLI has left a note, and waits until it exits.
    pub(crate) fn signalled_after_note(&self, args: &[&str], note: &str, signal: Signal) -> CommandOutput {
        self.write_models();
        let mut command = self.trunkline(args);
        let child = spawn(command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()));
        self.wait_for_note(note);
        kill_process(Pid::from_child(&child), signal).unwrap();
        wait_for_output(child)
    }

    /// Runs `trunkline`, sends it a signal once its stdout contains `text`, and waits until it exits.
    pub(crate) fn signalled_after_output(&self, args: &[&str], text: &str, signal: Signal) -> CommandOutput {
        self.write_models();
        let mut command = self.trunkline(args);
        let mut child = spawn(command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()));
        let mut output = Vec::new();
        while !String::from_utf8_lossy(&output).contains(text) {
            let mut more = [0; 4096];
            let count = child.stdout.as_mut().unwrap().read(&mut more).unwrap();
            assert!(count > 0, "exited before it printed {text:?}");
            output.extend_from_slice(&more[..count]);
        }
        kill_process(Pid::from_child(&child), signal).unwrap();
        wait_for_output(child)
    }

    /// Builds a chat request with one user message. It asks for the first model unless the test sets another.
    pub(crate) fn chat(&self, text: &str) -> RequestBuilder {
        let model = self.models.keys().next().map_or("codex", String::as_str);
        RequestBuilder::new(self.address(), model, text)
    }

    pub(crate) fn get(&self, path: &str) -> Reply {
        let address = self.address();
        send_raw(address, &format!("GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n")).finish()
    }

    pub(crate) fn address(&self) -> &str {
        &self.gateway.as_ref().expect("the gateway is running").address
    }

    pub(crate) fn gateway_pid(&self) -> u32 {
        self.gateway.as_ref().expect("the gateway is running").child.id()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.gateway_pid().cast_signed()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    /// Closes the gateway's standard input, as happens when its parent process exits.
    pub(crate) fn close_stdin(&mut self) {
        self.gateway.as_mut().expect("the gateway is running").stdin = None;
    }

    /// Waits until the gateway has exited, and returns its exit code.
    pub(crate) fn wait_for_exit(&mut self) -> Option<i32> {
        let gateway = self.gateway.as_mut().expect("the gateway is running");
        let mut status = None;
        until("the gateway has exited", || {
            status = gateway.child.try_wait().unwrap();
            status.is_some()
        });
        self.gateway = None;
        status.and_then(|status| status.code())
    }

    /// Kills the gateway with SIGKILL.
    pub(crate) fn kill(&mut self) {
        self.keepers.extend(children(self.gateway_pid()));
        self.signal(Signal::KILL);
        self.wait_for_exit();
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

    /// Runs git in the repository with a user's name and address, and returns what it printed.
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

    /// The arguments that a fake CLI recorded with `note`.
    pub(crate) fn argv(&self, cli: &str) -> Vec<String> {
        let noted = self.read_note(&format!("{cli}.argv"));
        noted.split_terminator('\0').map(str::to_owned).collect()
    }

    /// Reads a note that a fake CLI has left.
    pub(crate) fn read_note(&self, name: &str) -> String {
        let path = self.path("seen").join(name);
        let bytes = fs::read(&path).unwrap_or_else(|error| panic!("{name}: {error}\n{}", self.log()));
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Waits until a fake CLI has left a note, and returns it.
    pub(crate) fn wait_for_note(&self, name: &str) -> String {
        until(&format!("a CLI left the note {name}"), || self.path("seen").join(name).exists());
        self.read_note(name).trim_end().to_owned()
    }

    /// As [`wait_for_note`](Self::wait_for_note), for a note that contains a process id.
    pub(crate) fn wait_for_pid(&self, name: &str) -> u32 {
        self.wait_for_note(name).parse().unwrap()
    }

    /// Leaves a note that a fake CLI waits for with `await`.
    pub(crate) fn leave_note(&self, name: &str) {
        fs::write(self.path("seen").join(name), "").unwrap();
    }

    pub(crate) fn write_program(&self, path: &Path, text: &str) {
        let _no_fork = FORK_LOCK.lock().unwrap_or_else(PoisonError::into_inner);
        fs::write(path, text).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    pub(crate) fn write_models(&self) {
        if !self.models.is_empty() {
            let text = serde_json::to_string_pretty(&self.models).unwrap();
            fs::write(self.path("config/models.json"), text).unwrap();
        }
    }

    /// Starts `trunkline` with its stderr appended to the log.
    pub(crate) fn launch(&self, args: &[&str]) -> Child {
        self.write_models();
        let log = fs::OpenOptions::new().create(true).append(true).open(self.path("log")).unwrap();
        spawn(self.trunkline(args).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log))
    }

    /// Starts `trunkline` in a new session on a terminal, which is given as its three standard streams.
    pub(crate) fn on_terminal(&self, args: &[&str], streams: [Stdio; 3]) -> Child {
        self.write_models();
        let plain = self.trunkline(args);
        let mut command = command(&which("setsid"));
        command.arg("--ctty").arg(plain.get_program()).args(plain.get_args()).current_dir(self.repo()).env_clear();
        command.envs(plain.get_envs().filter_map(|(name, value)| Some((name, value?))));
        let [stdin, stdout, stderr] = streams;
        spawn(command.stdin(stdin).stdout(stdout).stderr(stderr))
    }

    /// The command for the binary, with an environment that contains nothing of the tests' own.
    fn trunkline(&self, args: &[&str]) -> Command {
        let mut command = match (self.user, &self.landlock_blocker) {
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
        let takes_folders =
            args.first().is_some_and(|&name| !["decode", "provider", "mock-llm", "desktop"].contains(&name));
        if takes_folders {
            command.arg("--state").arg(self.path("state")).arg("--worktrees").arg(self.path("worktrees"));
            let configured = fs::read_dir(self.path("config")).unwrap().next().is_some();
            if configured && !args.contains(&"--config") {
                command.arg("--config").arg(self.path("config"));
            }
        }
        // No process is started ahead of its turn unless a test asks for it.
        command.env("TRUNKLINE_WARM", "0");
        command.envs(self.env.iter().map(|(name, value)| (name, value)));
        command
    }
}

impl Drop for TestGateway {
    /// Checks for every test that no process is left once its gateway is gone.
    fn drop(&mut self) {
        if self.gateway.is_some() {
            self.kill();
        }
        if std::thread::panicking() {
            eprintln!("--- log of the gateway\n{}---", self.log());
            return;
        }
        until("no process is left", || processes_of(self.folder.path()).is_empty());
        until_gone(&self.keepers);
    }
}

impl CommandOutput {
    /// Fails the test unless the command exited with this code.
    #[track_caller]
    pub(crate) fn exits(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "{self:?}");
        self
    }
}

fn wait_for_output(child: Child) -> CommandOutput {
    let output = child.wait_with_output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    CommandOutput { code: output.status.code(), stdout: text(&output.stdout), stderr: text(&output.stderr) }
}

/// Spawns a command while no thread writes a script.
pub(crate) fn spawn(command: &mut Command) -> Child {
    let _no_write = FORK_LOCK.lock().unwrap_or_else(PoisonError::into_inner);
    command.spawn().unwrap()
}

/// Wraps a command in a shell that lowers the limit of open files first.
fn with_open_files_limit(plain: &Command, limit: u64) -> Command {
    let mut command = self::command(&which("sh"));
    command
        .args(["-c", &format!("ulimit -n {limit}; exec \"$0\" \"$@\"")])
        .arg(plain.get_program())
        .args(plain.get_args());
    command.env_clear().envs(plain.get_envs().filter_map(|(name, value)| Some((name, value?))));
    command.current_dir(plain.get_current_dir().unwrap());
    command
}

#[expect(clippy::disallowed_methods, reason = "tests start the gateway itself, which has no keeper")]
fn command(program: &Path) -> Command {
    Command::new(program)
}

/// Runs a system program and returns whether it succeeded.
pub(crate) fn run_tool(name: &str, args: &[&str]) -> bool {
    spawn(command(&which(name)).args(args).stderr(Stdio::null())).wait().unwrap().success()
}

/// Looks a program up on the search path of the tests.
#[expect(clippy::disallowed_methods, reason = "tests need the system's own shell and git")]
pub(crate) fn find(tool: &str) -> Option<PathBuf> {
    let search = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&search).map(|folder| folder.join(tool)).find(|path| path.is_file())
}

/// As [`find`], for a program that the tests require.
pub(crate) fn which(tool: &str) -> PathBuf {
    find(tool).unwrap_or_else(|| panic!("the tests need {tool}"))
}

/// The longest wait for any condition. Only a failing test waits this long.
pub(crate) const TEST_TIMEOUT: Duration = Duration::from_secs(60);

//! Isolated desktop for one test: home, state, repository, screen, and all processes that run in it.

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

use crate::screen::{ListedWindow, Screen};

/// Longest wait for a condition; far more than any step takes.
const WAIT_TIMEOUT: Duration = Duration::from_secs(60);

pub(crate) struct TestDesktop {
    folder: TempDir,
    pub(crate) screen: Screen,
    pub(crate) port: u16,
    env: Vec<(String, String)>,
}

/// A child process that is killed when the test ends.
pub(crate) struct ChildGuard(pub(crate) Child);

impl Drop for ChildGuard {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

/// A running trunkline-desktop process.
pub(crate) struct DesktopWindow<'a> {
    desktop: &'a TestDesktop,
    child: Child,
}

impl TestDesktop {
    pub(crate) fn new() -> Self {
        let folder = tempfile::Builder::new().prefix("trunkline-desktop-").tempdir().unwrap();
        for name in ["home", "run", "repo", "bin", "screen-home"] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        let screen = Screen::new(&folder.path().join("screen-home"));
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
        let desktop = Self { folder, screen, port, env: Vec::new() };
        let opened = desktop.path("opened");
        desktop.program("xdg-open", &format!("printf '%s\\n' \"$#\" \"$@\" >>'{}'", opened.display()));
        desktop
    }

    pub(crate) fn env(mut self, name: &str, value: impl Into<String>) -> Self {
        self.env.push((name.to_owned(), value.into()));
        self
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Puts a shell script on PATH.
    pub(crate) fn program(&self, name: &str, script: &str) -> PathBuf {
        let path = self.path("bin").join(name);
        // Renamed into place: a file that is open for writing cannot be executed.
        let new = self.path("bin").join(format!(".{name}"));
        fs::write(&new, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&new, fs::Permissions::from_mode(0o755)).unwrap();
        fs::rename(new, &path).unwrap();
        path
    }

    /// Returns the calls of xdg-open: for each the number of arguments, then the arguments.
    pub(crate) fn opened(&self) -> String {
        fs::read_to_string(self.path("opened")).unwrap_or_default()
    }

    /// Creates a command in the environment of this desktop, by which [`Self::processes`] recognises it.
    pub(crate) fn command(&self, program: &Path) -> Command {
        let mut command = command(program);
        let search = format!("{}:/usr/bin:/bin", self.path("bin").display());
        command.env_clear().env("PATH", search).env("HOME", self.path("home")).env("LANG", "C.UTF-8");
        command.env("DISPLAY", self.screen.display()).env("XDG_RUNTIME_DIR", self.path("run"));
        // No D-Bus unless a test starts one, and none of the desktop services that would need it.
        command.env("DBUS_SESSION_BUS_ADDRESS", "disabled:");
        command.env("NO_AT_BRIDGE", "1").env("GIO_USE_VFS", "local").env("GSETTINGS_BACKEND", "memory");
        command.envs(self.env.iter().map(|(name, value)| (name, value))).current_dir(self.path("repo"));
        let log = fs::OpenOptions::new().create(true).append(true).open(self.path("log")).unwrap();
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        command
    }

    /// Opens the window with the real gateway binary.
    pub(crate) fn open(&self) -> DesktopWindow<'_> {
        self.open_with(&["--server", server().to_str().unwrap(), "--port", &self.port.to_string()])
    }

    pub(crate) fn open_with(&self, args: &[&str]) -> DesktopWindow<'_> {
        self.open_as(&window_binary(), args)
    }

    pub(crate) fn open_as(&self, binary: &Path, args: &[&str]) -> DesktopWindow<'_> {
        // The test runner may have been started with SIGHUP ignored. The window must not inherit that.
        let default_hangup = ["--default-signal=HUP".as_ref(), binary.as_os_str()];
        let child = self.command("env".as_ref()).args(default_hangup).args(args).spawn().unwrap();
        DesktopWindow { desktop: self, child }
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.path("log")).unwrap_or_default()
    }

    /// Returns the saved window state.
    pub(crate) fn saved_window(&self) -> Value {
        let path = self.path("home/.local/state/trunkline/desktop/window.json");
        fs::read(path).map(|bytes| serde_json::from_slice(&bytes).unwrap()).unwrap_or_default()
    }

    /// Returns pid and command line of every process of this desktop, without the tools that the test itself started.
    /// These are the processes with this desktop's home in their environment, the gateway on this desktop's port, and
    /// the children of both. The environment of a gateway is readable only by root.
    pub(crate) fn processes(&self) -> Vec<(u32, String)> {
        let home = format!("HOME={}", self.path("home").display());
        let port = format!(" --port {} ", self.port);
        let (mut found, mut others): (Vec<ProcEntry>, Vec<ProcEntry>) =
            ProcEntry::all().into_iter().partition(|process| {
                process.has_variable(&home) || (process.line.contains(" serve ") && process.line.contains(&port))
            });
        loop {
            let is_child = |process: &mut ProcEntry| {
                process.environment.is_none() && found.iter().any(|parent| parent.pid == process.parent)
            };
            let children: Vec<_> = others.extract_if(.., is_child).collect();
            if children.is_empty() {
                return found.into_iter().map(|process| (process.pid, process.line)).collect();
            }
            found.extend(children);
        }
    }

    /// Returns the gateways that run in this desktop. Can include a child of a gateway between fork and exec.
    pub(crate) fn gateways(&self) -> Vec<u32> {
        let serving = self.processes().into_iter().filter(|(_, line)| line.contains(" serve "));
        serving.map(|(pid, _)| pid).collect()
    }

    /// Waits until exactly one gateway runs and returns its pid.
    pub(crate) fn gateway(&self) -> u32 {
        until("exactly one gateway runs", || self.gateways().len() == 1);
        self.gateways()[0]
    }

    /// Returns the JSON body of a GET request to the gateway on this port.
    pub(crate) fn get(&self, port: u16, path: &str) -> Option<Value> {
        let mut socket = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).ok()?;
        socket.write_all(format!("GET {path} HTTP/1.0\r\nhost: 127.0.0.1:{port}\r\n\r\n").as_bytes()).ok()?;
        let mut response = String::new();
        socket.read_to_string(&mut response).ok()?;
        serde_json::from_str(response.split_once("\r\n\r\n")?.1).ok()
    }

    /// Returns the number of successful runs of the gateway on this port.
    pub(crate) fn answered(&self, port: u16) -> usize {
        let runs = self.get(port, "/v1/runs").unwrap_or_default();
        let runs = runs["data"].as_array().cloned().unwrap_or_default();
        runs.iter().filter(|run| run["state"] == "finished").count()
    }

    /// Starts a gateway independently of the window and waits until it responds.
    pub(crate) fn serve(&self) -> ChildGuard {
        let port = self.port.to_string();
        let gateway = ChildGuard(self.command(&server()).args(["serve", "--port", &port]).spawn().unwrap());
        until("the gateway listens", || self.get(self.port, "/health").is_some());
        gateway
    }

    pub(crate) fn wait_for_no_processes(&self) {
        until("no process is left", || self.processes().is_empty());
    }
}

/// A process as listed in `/proc`.
struct ProcEntry {
    pid: u32,
    parent: u32,
    /// The arguments, each followed by a space.
    line: String,
    /// Absent when this user may not read it.
    environment: Option<Vec<u8>>,
}

impl ProcEntry {
    fn all() -> Vec<Self> {
        let entries = fs::read_dir("/proc").unwrap().flatten();
        entries.filter_map(|entry| Self::read(entry.file_name().to_str()?.parse().ok()?)).collect()
    }

    fn read(pid: u32) -> Option<Self> {
        let folder = PathBuf::from(format!("/proc/{pid}"));
        let status = fs::read_to_string(folder.join("status")).ok()?;
        let parent = status.lines().find_map(|line| line.strip_prefix("PPid:"))?.trim().parse().ok()?;
        let line = fs::read_to_string(folder.join("cmdline")).unwrap_or_default().replace('\0', " ");
        Some(Self { pid, parent, line, environment: fs::read(folder.join("environ")).ok() })
    }

    fn has_variable(&self, variable: &str) -> bool {
        let environment = self.environment.as_deref().unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|one| one == variable.as_bytes())
    }
}

impl Drop for TestDesktop {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("--- log\n{}--- processes\n{:#?}", self.log(), self.processes());
        }
    }
}

impl DesktopWindow<'_> {
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits until the window manager lists the window.
    pub(crate) fn listed(&self) -> ListedWindow {
        let mut found = None;
        until("the window is listed", || {
            found = self.desktop.screen.windows().into_iter().find(|window| window.pid == self.pid());
            found.is_some()
        });
        found.unwrap()
    }

    /// Waits until the window has the keyboard focus.
    pub(crate) fn focused(&self) -> ListedWindow {
        let listed = self.listed();
        until("the window has the focus", || self.desktop.screen.active() == Some(listed.number()));
        listed
    }

    /// Waits for a title that contains `part`.
    pub(crate) fn titled(&self, part: &str) -> ListedWindow {
        until(&format!("the title contains {part:?}"), || self.listed().title.contains(part));
        self.listed()
    }

    /// Types a message into the page, sends it, and waits until the gateway on this port has answered it.
    pub(crate) fn ask(&self, port: u16, message: &str) -> ListedWindow {
        let (before, mut tries) = (self.desktop.answered(port), 0);
        // Text typed before the page is loaded would be lost, at least in part.
        until("the page is loaded", || self.text().contains("New chat"));
        until("the message is answered", || {
            // The page may not have loaded the models yet, so the message is sent again from time to time.
            if tries % 20 == 0 {
                self.write(message);
                self.desktop.screen.press(&["Return"]);
            }
            tries += 1;
            // Between two looks at the number of answers.
            thread::sleep(Duration::from_millis(150));
            self.desktop.answered(port) > before
        });
        self.shows(1)
    }

    /// Replaces the text of the message field.
    pub(crate) fn write(&self, text: &str) {
        let listed = self.listed();
        self.desktop.screen.click(&listed, (listed.size.0 / 2, listed.size.1 - 65));
        self.desktop.screen.press(&["ctrl+a"]);
        self.desktop.screen.write(text);
    }

    /// Returns the visible text of the page, as a user can copy it.
    pub(crate) fn text(&self) -> String {
        let window = self.listed();
        self.desktop.screen.text_at(&window, (window.size.0 - 60, window.size.1 / 2))
    }

    /// Waits until this many answers of the embedded agent are shown and the last one is complete.
    pub(crate) fn shows(&self, answers: usize) -> ListedWindow {
        until("the answer is shown", || {
            self.text().matches("I'm doing well, thank you for asking!").count() >= answers
        });
        // Until then, closing the window would open the quit dialog.
        until("the page knows that the answer is complete", || self.listed().title == "Trunkline");
        self.listed()
    }

    pub(crate) fn signal(&self, name: &str) {
        let sent = command("kill").args(["-s", name, &self.pid().to_string()]).status().unwrap();
        assert!(sent.success());
    }

    /// Waits until the window has exited and returns its exit code; `None` if a signal killed it.
    pub(crate) fn wait_for_exit(mut self) -> Option<i32> {
        let mut status = None;
        until("the window has exited", || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        status.and_then(|status| status.code())
    }
}

impl Drop for DesktopWindow<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            let name = thread::current().name().unwrap_or("test").replace("::", "-");
            self.desktop.screen.picture(&format!("failed-{name}"));
            eprintln!("--- window {}: {:?}", self.pid(), self.child.try_wait());
        }
        if self.child.try_wait().unwrap().is_none() {
            self.child.kill().unwrap();
            self.child.wait().unwrap();
        }
    }
}

/// Path of the gateway binary.
pub(crate) fn server() -> PathBuf {
    variable("DESKTOP_SERVER")
        .expect("DESKTOP_SERVER is not set to the trunkline binary: run cargo xtask desktop --test")
}

pub(crate) fn window_binary() -> PathBuf {
    PathBuf::from(env!("CARGO_BIN_EXE_trunkline-desktop"))
}

#[expect(clippy::disallowed_methods, reason = "the test runner passes the path of the other workspace's binary")]
pub(crate) fn variable(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).map(PathBuf::from)
}

#[expect(clippy::disallowed_methods, reason = "tests start the program under test and X11 tools")]
pub(crate) fn command(program: impl AsRef<std::ffi::OsStr>) -> Command {
    Command::new(program)
}

/// Polls until the condition holds. `what` describes it for the panic message.
pub(crate) fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < WAIT_TIMEOUT, "waited too long until {what}");
        thread::sleep(Duration::from_millis(50));
    }
}

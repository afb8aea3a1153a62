//! A world of its own for each test: home, state, repository, a screen, and everything that runs in it.

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

use crate::screen::{Listed, Screen};

/// Nothing takes this long, unless it never comes.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct World {
    folder: TempDir,
    pub(crate) screen: Screen,
    pub(crate) port: u16,
    env: Vec<(String, String)>,
}

/// A process that runs along, and ends with the test, however that ends.
pub(crate) struct Company(pub(crate) Child);

impl Drop for Company {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

/// A window that was started.
pub(crate) struct Window<'a> {
    world: &'a World,
    child: Child,
}

impl World {
    pub(crate) fn new() -> Self {
        let folder = tempfile::Builder::new().prefix("trunkline-desktop-").tempdir().unwrap();
        for name in ["home", "run", "repo", "bin", "elsewhere"] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        let screen = Screen::new(&folder.path().join("elsewhere"));
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
        let world = Self { folder, screen, port, env: Vec::new() };
        let opened = world.path("opened");
        world.program("xdg-open", &format!("printf '%s\\n' \"$#\" \"$@\" >>'{}'", opened.display()));
        world
    }

    pub(crate) fn env(mut self, name: &str, value: impl Into<String>) -> Self {
        self.env.push((name.to_owned(), value.into()));
        self
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Puts a shell script on the search path.
    pub(crate) fn program(&self, name: &str, script: &str) -> PathBuf {
        let path = self.path("bin").join(name);
        // Renamed into place: one that is open for writing cannot be started.
        let new = self.path("bin").join(format!(".{name}"));
        fs::write(&new, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&new, fs::Permissions::from_mode(0o755)).unwrap();
        fs::rename(new, &path).unwrap();
        path
    }

    /// What was opened outside of the window: each time the number of arguments, then these.
    pub(crate) fn opened(&self) -> String {
        fs::read_to_string(self.path("opened")).unwrap_or_default()
    }

    /// A command that runs in this world and can be told by it.
    pub(crate) fn command(&self, program: &Path) -> Command {
        let mut command = command(program);
        let search = format!("{}:/usr/bin:/bin", self.path("bin").display());
        command.env_clear().env("PATH", search).env("HOME", self.path("home")).env("LANG", "C.UTF-8");
        command.env("DISPLAY", self.screen.display()).env("XDG_RUNTIME_DIR", self.path("run"));
        // There is no bus unless a test brings one, and nobody who could need more than the screen.
        command.env("DBUS_SESSION_BUS_ADDRESS", "disabled:");
        command.env("NO_AT_BRIDGE", "1").env("GIO_USE_VFS", "local").env("GSETTINGS_BACKEND", "memory");
        command.envs(self.env.iter().map(|(name, value)| (name, value))).current_dir(self.path("repo"));
        let log = fs::OpenOptions::new().create(true).append(true).open(self.path("log")).unwrap();
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        command
    }

    /// Opens the window, with the gateway's real binary.
    pub(crate) fn open(&self) -> Window<'_> {
        self.open_with(&["--server", server().to_str().unwrap(), "--port", &self.port.to_string()])
    }

    pub(crate) fn open_with(&self, args: &[&str]) -> Window<'_> {
        self.open_as(&window_binary(), args)
    }

    pub(crate) fn open_as(&self, binary: &Path, args: &[&str]) -> Window<'_> {
        // Whoever runs the tests may be deaf to a terminal that goes away; the window is not meant to be.
        let deaf_to_nothing = ["--default-signal=HUP".as_ref(), binary.as_os_str()];
        let child = self.command("env".as_ref()).args(deaf_to_nothing).args(args).spawn().unwrap();
        Window { world: self, child }
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.path("log")).unwrap_or_default()
    }

    /// What is remembered of the window.
    pub(crate) fn remembered(&self) -> Value {
        let path = self.path("home/.local/state/trunkline/desktop/window.json");
        fs::read(path).map(|bytes| serde_json::from_slice(&bytes).unwrap()).unwrap_or_default()
    }

    /// Every process of this world, except for the tools that this test itself started: those with this world's home in
    /// their environment, the gateway on this world's port, and the children of both. A gateway hides its environment from
    /// every user but root.
    pub(crate) fn processes(&self) -> Vec<(u32, String)> {
        let home = format!("HOME={}", self.path("home").display());
        let port = format!(" --port {} ", self.port);
        let (mut found, mut others): (Vec<Process>, Vec<Process>) = Process::all().into_iter().partition(|process| {
            process.has_variable(&home) || (process.line.contains(" serve ") && process.line.contains(&port))
        });
        loop {
            let is_child = |process: &mut Process| {
                process.environment.is_none() && found.iter().any(|parent| parent.pid == process.parent)
            };
            let children: Vec<_> = others.extract_if(.., is_child).collect();
            if children.is_empty() {
                return found.into_iter().map(|process| (process.pid, process.line)).collect();
            }
            found.extend(children);
        }
    }

    /// The gateways that run in this world; also a child of one that has yet to become another program.
    pub(crate) fn gateways(&self) -> Vec<u32> {
        let serving = self.processes().into_iter().filter(|(_, line)| line.contains(" serve "));
        serving.map(|(pid, _)| pid).collect()
    }

    /// The only gateway, once it is.
    pub(crate) fn gateway(&self) -> u32 {
        until("there is one gateway", || self.gateways().len() == 1);
        self.gateways()[0]
    }

    /// The body of an answer of the gateway on this port.
    pub(crate) fn get(&self, port: u16, path: &str) -> Option<Value> {
        let mut socket = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).ok()?;
        socket.write_all(format!("GET {path} HTTP/1.0\r\nhost: 127.0.0.1:{port}\r\n\r\n").as_bytes()).ok()?;
        let mut reply = String::new();
        socket.read_to_string(&mut reply).ok()?;
        serde_json::from_str(reply.split_once("\r\n\r\n")?.1).ok()
    }

    /// The runs of the gateway on this port that ended well.
    pub(crate) fn answered(&self, port: u16) -> usize {
        let runs = self.get(port, "/v1/runs").unwrap_or_default();
        let runs = runs["data"].as_array().cloned().unwrap_or_default();
        runs.iter().filter(|run| run["state"] == "finished").count()
    }

    /// Starts a gateway as somebody else would, and waits until it answers.
    pub(crate) fn serve(&self) -> Company {
        let port = self.port.to_string();
        let gateway = Company(self.command(&server()).args(["serve", "--port", &port]).spawn().unwrap());
        until("it listens", || self.get(self.port, "/health").is_some());
        gateway
    }

    pub(crate) fn nothing_is_left(&self) {
        until("nothing is left", || self.processes().is_empty());
    }
}

/// A process as `/proc` shows it.
struct Process {
    pid: u32,
    parent: u32,
    /// The arguments, each followed by a space.
    line: String,
    /// Absent when this user may not read it.
    environment: Option<Vec<u8>>,
}

impl Process {
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

impl Drop for World {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("--- log\n{}--- processes\n{:#?}", self.log(), self.processes());
        }
    }
}

impl Window<'_> {
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The window, once it is there.
    pub(crate) fn listed(&self) -> Listed {
        let mut found = None;
        until("the window is there", || {
            found = self.world.screen.windows().into_iter().find(|window| window.pid == self.pid());
            found.is_some()
        });
        found.unwrap()
    }

    /// The window, once keys go there.
    pub(crate) fn focused(&self) -> Listed {
        let listed = self.listed();
        until("keys go to the window", || self.world.screen.active() == Some(listed.number()));
        listed
    }

    /// Waits for a title that contains this.
    pub(crate) fn titled(&self, part: &str) -> Listed {
        until(&format!("the title has {part:?}"), || self.listed().title.contains(part));
        self.listed()
    }

    /// Writes a message into the page, sends it, and waits for its answer by the gateway on this port.
    pub(crate) fn ask(&self, port: u16, message: &str) -> Listed {
        let (before, mut tries) = (self.world.answered(port), 0);
        // What is written while there is no page is lost, or half of it.
        until("there is a page", || self.text().contains("New chat"));
        until("the message is answered", || {
            // It may not have known any models yet.
            if tries % 20 == 0 {
                self.write(message);
                self.world.screen.press(&["Return"]);
            }
            tries += 1;
            thread::sleep(Duration::from_millis(150));
            self.world.answered(port) > before
        });
        self.shows(1)
    }

    /// Puts the text where messages are written, in place of what is there.
    pub(crate) fn write(&self, text: &str) {
        let listed = self.listed();
        self.world.screen.click(&listed, (listed.size.0 / 2, listed.size.1 - 65));
        self.world.screen.press(&["ctrl+a"]);
        self.world.screen.write(text);
    }

    /// What the page shows, as its users can copy it.
    pub(crate) fn text(&self) -> String {
        let window = self.listed();
        self.world.screen.text_at(&window, (window.size.0 - 60, window.size.1 / 2))
    }

    /// Waits until so many answers of the embedded agent are shown, and the last has come to its end.
    pub(crate) fn shows(&self, answers: usize) -> Listed {
        until("the answer is shown", || {
            self.text().matches("I'm doing well, thank you for asking!").count() >= answers
        });
        // Before that it would ask whether it may be closed.
        until("the page knows its end", || self.listed().title == "Trunkline");
        self.listed()
    }

    pub(crate) fn signal(&self, name: &str) {
        let sent = command("kill").args(["-s", name, &self.pid().to_string()]).status().unwrap();
        assert!(sent.success());
    }

    /// Waits for its end; its exit status.
    pub(crate) fn ended(mut self) -> Option<i32> {
        let mut status = None;
        until("the window has ended", || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        status.and_then(|status| status.code())
    }
}

impl Drop for Window<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            let name = thread::current().name().unwrap_or("test").replace("::", "-");
            self.world.screen.picture(&format!("failed-{name}"));
            eprintln!("--- the window {}: {:?}", self.pid(), self.child.try_wait());
        }
        if self.child.try_wait().unwrap().is_none() {
            self.child.kill().unwrap();
            self.child.wait().unwrap();
        }
    }
}

/// The gateway's binary.
pub(crate) fn server() -> PathBuf {
    variable("DESKTOP_SERVER").expect("DESKTOP_SERVER names the trunkline binary: run cargo xtask desktop --test")
}

pub(crate) fn window_binary() -> PathBuf {
    PathBuf::from(env!("CARGO_BIN_EXE_trunkline-desktop"))
}

#[expect(clippy::disallowed_methods, reason = "whoever runs the tests says where the other workspace's binary is")]
pub(crate) fn variable(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).map(PathBuf::from)
}

#[expect(clippy::disallowed_methods, reason = "tests start what they test, and the tools they look with")]
pub(crate) fn command(program: impl AsRef<std::ffi::OsStr>) -> Command {
    Command::new(program)
}

/// Looks often until something is so.
pub(crate) fn until(what: &str, mut so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !so() {
        assert!(start.elapsed() < PATIENCE, "waited too long until {what}");
        thread::sleep(Duration::from_millis(50));
    }
}

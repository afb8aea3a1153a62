//! What every test needs: keepers, a folder, a script to run, and a look at `/proc`.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use tempfile::TempDir;
use trunkline_core::limits::Limits;
use trunkline_process::{Exit, KeeperProgram, Keepers, Running, Spec, Step, StopSignal};

/// Long enough for a loaded machine; nothing waits for it unless a test fails.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) struct Stage {
    pub(crate) keepers: Keepers,
    folder: TempDir,
}

impl Stage {
    pub(crate) fn new() -> Self {
        let path = env!("CARGO_BIN_EXE_trunkline-keeper").into();
        let keepers = Keepers::new(KeeperProgram { path, args: Vec::new() }, 0).unwrap();
        Self { keepers, folder: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn spec(&self, program: impl Into<PathBuf>, args: &[&str]) -> Spec {
        Spec {
            program: program.into(),
            args: args.iter().map(Into::into).collect(),
            env: vec![("PATH".into(), "/usr/local/bin:/usr/bin:/bin".into())],
            cwd: self.folder().into(),
            stdin: Vec::new(),
            stop: StopSignal::Term,
            grace: PATIENCE,
            limits: Limits::NONE,
            confinement: None,
        }
    }

    pub(crate) fn script(&self, script: &str) -> Spec {
        self.spec("/bin/sh", &["-c", script])
    }

    /// The processes that run in this stage's folder, zombies excepted.
    pub(crate) fn residents(&self) -> Vec<u32> {
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        let at_home =
            entries.filter(|entry| fs::read_link(entry.path().join("cwd")).is_ok_and(|cwd| cwd == self.folder()));
        at_home.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
    }

    pub(crate) async fn start(&self, script: &str) -> Running {
        self.keepers.spawn(self.script(script)).await.unwrap()
    }
}

/// All that is printed, to the end.
pub(crate) async fn hear(running: &mut Running) -> (String, Exit) {
    let mut text = Vec::new();
    loop {
        match running.next().await {
            Step::Stdout(chunk) => text.extend(chunk),
            Step::Exited(exit) => return (String::from_utf8(text).unwrap(), exit),
            Step::Limit(limit) => panic!("{limit:?} after {text:?}"),
        }
    }
}

/// Reads until `lines` whole lines are there.
pub(crate) async fn lines(running: &mut Running, lines: usize) -> Vec<String> {
    let mut text = String::new();
    while text.matches('\n').count() < lines {
        match running.next().await {
            Step::Stdout(chunk) => text.push_str(std::str::from_utf8(&chunk).unwrap()),
            step @ (Step::Exited(_) | Step::Limit(_)) => panic!("{step:?} after {text:?}"),
        }
    }
    text.lines().map(Into::into).collect()
}

/// Reads the pids that a script prints, one a line.
pub(crate) async fn pids(running: &mut Running, count: usize) -> Vec<u32> {
    lines(running, count).await.iter().map(|line| line.parse().unwrap()).collect()
}

/// Waits until `happened`, looking often; panics after [`PATIENCE`].
pub(crate) async fn until(what: &str, mut happened: impl FnMut() -> bool) {
    let start = Instant::now();
    while !happened() {
        assert!(start.elapsed() < PATIENCE, "waited too long until {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

pub(crate) async fn all_gone(pids: &[u32]) {
    until(&format!("{pids:?} are gone"), || pids.iter().all(|&pid| state(pid).is_none())).await;
}

/// The one-letter state of a process, zombies included.
pub(crate) fn state(pid: u32) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat[stat.rfind(')')? + 2..].chars().next()
}

/// The children of a process, of all its threads.
pub(crate) fn children(pid: u32) -> Vec<u32> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let lists = threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    lists.flat_map(|list| list.split_whitespace().map(|pid| pid.parse().unwrap()).collect::<Vec<_>>()).collect()
}

pub(crate) fn executable(path: &Path, content: impl AsRef<OsStr>) {
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::PermissionsExt;
    fs::write(path, content.as_ref().as_bytes()).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

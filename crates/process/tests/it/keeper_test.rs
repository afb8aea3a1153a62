//! Test fixture: keepers, a folder, scripts to run, and helpers that read `/proc`.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use tempfile::TempDir;
use trunkline_core::limits::RunLimits;
use trunkline_process::{KeeperProgram, Keepers, ProcessEvent, ProcessExit, RunningProcess, Spec, StopSignal};

/// Long enough for a loaded machine. Reached only by a test that fails.
pub(crate) const TEST_TIMEOUT: Duration = Duration::from_secs(20);

/// Keepers and a folder for one test.
pub(crate) struct KeeperTest {
    pub(crate) keepers: Keepers,
    folder: TempDir,
}

impl KeeperTest {
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
            args: args.iter().collect(),
            env: [("PATH", "/usr/local/bin:/usr/bin:/bin")].into_iter().collect(),
            cwd: self.folder().into(),
            stdin: Vec::new(),
            stop: StopSignal::Term,
            grace: TEST_TIMEOUT,
            limits: RunLimits::NONE,
            confinement: None,
        }
    }

    pub(crate) fn script(&self, script: &str) -> Spec {
        self.spec("/bin/sh", &["-c", script])
    }

    /// Lists the processes that run in this test's folder, zombies excluded.
    pub(crate) fn residents(&self) -> Vec<u32> {
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        let inside =
            entries.filter(|entry| fs::read_link(entry.path().join("cwd")).is_ok_and(|cwd| cwd == self.folder()));
        inside.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
    }

    pub(crate) async fn start(&self, script: &str) -> RunningProcess {
        self.keepers.spawn(self.script(script)).await.unwrap()
    }
}

/// Reads all output up to the end of the program.
pub(crate) async fn read_all(running: &mut RunningProcess) -> (String, ProcessExit) {
    let mut text = Vec::new();
    loop {
        match running.next().await {
            ProcessEvent::Stdout(chunk) => text.extend(chunk),
            ProcessEvent::Exited(exit) => return (String::from_utf8(text).unwrap(), exit),
            ProcessEvent::Limit(limit) => panic!("{limit:?} after {text:?}"),
        }
    }
}

/// Reads until `lines` whole lines have arrived.
pub(crate) async fn lines(running: &mut RunningProcess, lines: usize) -> Vec<String> {
    let mut text = String::new();
    while text.matches('\n').count() < lines {
        match running.next().await {
            ProcessEvent::Stdout(chunk) => text.push_str(std::str::from_utf8(&chunk).unwrap()),
            step @ (ProcessEvent::Exited(_) | ProcessEvent::Limit(_)) => panic!("{step:?} after {text:?}"),
        }
    }
    text.lines().map(Into::into).collect()
}

/// Reads the pids that a script prints, one per line.
pub(crate) async fn pids(running: &mut RunningProcess, count: usize) -> Vec<u32> {
    lines(running, count).await.iter().map(|line| line.parse().unwrap()).collect()
}

/// Polls until `happened` returns true. Panics after [`TEST_TIMEOUT`].
pub(crate) async fn until(what: &str, mut happened: impl FnMut() -> bool) {
    let start = Instant::now();
    while !happened() {
        assert!(start.elapsed() < TEST_TIMEOUT, "waited too long until {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

pub(crate) async fn all_gone(pids: &[u32]) {
    until(&format!("{pids:?} are gone"), || pids.iter().all(|&pid| state(pid).is_none())).await;
}

/// Returns the one-letter state of a process, zombies included.
pub(crate) fn state(pid: u32) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat[stat.rfind(')')? + 2..].chars().next()
}

/// Lists the children of all threads of a process.
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

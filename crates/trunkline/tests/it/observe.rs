//! Process information from `/proc`, and waiting for conditions by polling.

use std::fs;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use crate::test_gateway::TEST_TIMEOUT;

/// Polls until `happened` returns true; fails the test after [`TEST_TIMEOUT`].
#[track_caller]
pub(crate) fn until(what: &str, happened: impl FnMut() -> bool) {
    within(TEST_TIMEOUT, what, happened);
}

/// As [`until`], with a deadline that is part of what is tested.
#[track_caller]
pub(crate) fn within(timeout: Duration, what: &str, mut happened: impl FnMut() -> bool) {
    let start = Instant::now();
    while !happened() {
        assert!(start.elapsed() < timeout, "waited too long until {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Whether a process exists, possibly as a zombie.
pub(crate) fn exists(pid: u32) -> bool {
    Path::new("/proc").join(pid.to_string()).exists()
}

/// Waits until none of the processes exists.
#[track_caller]
pub(crate) fn until_gone(pids: &[u32]) {
    until(&format!("{pids:?} are gone"), || !pids.iter().any(|&pid| exists(pid)));
}

/// All processes whose working directory is in the folder or whose environment names it: gateways, keepers, CLIs and
/// their tools.
pub(crate) fn processes_of(folder: &Path) -> Vec<u32> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(|&pid| belongs_to(pid, folder)).collect()
}

fn belongs_to(pid: u32, folder: &Path) -> bool {
    let process = Path::new("/proc").join(pid.to_string());
    let name = folder.as_os_str().as_bytes();
    fs::read_link(process.join("cwd")).is_ok_and(|cwd| cwd.starts_with(folder))
        || fs::read(process.join("environ")).is_ok_and(|env| env.windows(name.len()).any(|part| part == name))
}

/// The child processes of all threads of a process, including zombies.
pub(crate) fn children(pid: u32) -> Vec<u32> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let lists = threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    lists.flat_map(|list| list.split_whitespace().map(|pid| pid.parse().unwrap()).collect::<Vec<_>>()).collect()
}

/// Peak resident memory of a process, in KiB.
pub(crate) fn peak_memory(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// Whether the tests run as root, for a test that needs it. If not, the skip is reported and the test must return.
pub(crate) fn is_root_or_skip(case: &str) -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        report_skipped(&format!("needs root: {}: {case}", thread::current().name().unwrap_or_default()));
    }
    root
}

/// Reports that a test is skipped, in a line that `cargo xtask test` counts. Writes to stdout directly, because the
/// output of `println` is shown only if a test fails.
pub(crate) fn report_skipped(why: &str) {
    let line = format!("left out: {why}\n");
    let _ = io::stdout().write_all(line.as_bytes());
}

//! Finds, kills and reaps descendant processes, for keepers and for the gateway.
//!
//! A descendant is found by walking `/proc`, never by process group, session or environment: a process can leave all of
//! these. It is killed through a pidfd whose ancestry was checked after opening it, so a reused pid is never hit. There
//! is no SIGSTOP pass: a pending SIGKILL makes `fork` fail just as well, and killing parents before children leaves no
//! supervisor alive to restart what was killed.

use std::collections::HashMap;
use std::fs;
use std::os::fd::AsFd;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitOptions, WaitStatus, getpid, pidfd_open, pidfd_send_signal, wait, waitpid,
};

/// Longest pause between two checks of processes that should be dying.
const MAX_PAUSE: Duration = Duration::from_millis(20);

/// A process and the parent under which it was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Descendant {
    pub(crate) pid: Pid,
    parent: Pid,
}

/// Reaps one child that has ended, if there is one. `Err` if there are no children at all.
pub(crate) fn reap_any() -> Result<Option<(Pid, WaitStatus)>, NoChildren> {
    loop {
        match wait(WaitOptions::NOHANG) {
            Ok(reaped) => return Ok(reaped),
            Err(Errno::INTR) => {}
            Err(_) => return Err(NoChildren),
        }
    }
}

/// This process has no children. Every orphan below a subreaper becomes its child, so a subreaper without children has no
/// descendants either.
#[derive(Debug)]
pub(crate) struct NoChildren;

/// Sends SIGKILL to all descendants of this process, parents first. Does not wait.
pub(crate) fn kill_all() -> Vec<Descendant> {
    let all = below(getpid());
    all.iter().for_each(|&descendant| kill(descendant));
    all
}

/// Kills and reaps until this process has no descendants. Returns false if some are left after `timeout`.
pub(crate) fn end_all(timeout: Duration) -> bool {
    let start = Instant::now();
    loop {
        loop {
            match reap_any() {
                Ok(Some(_)) => {}
                Ok(None) => break,
                Err(NoChildren) => return true,
            }
        }
        if start.elapsed() > timeout {
            return false;
        }
        let killed = kill_all();
        pause(killed.first());
    }
}

/// Kills and reaps the children of this process that `strays` returns, with all their descendants, until it returns none.
/// Returns false if some are left after `timeout`.
///
/// The children must be unreaped, and no other code may reap them meanwhile. Otherwise their pids could be reused.
pub(crate) fn end_strays(timeout: Duration, mut strays: impl FnMut() -> Vec<Pid>) -> bool {
    let start = Instant::now();
    let us = getpid();
    loop {
        let found = strays();
        if found.is_empty() {
            return true;
        }
        if start.elapsed() > timeout {
            return false;
        }
        for &pid in &found {
            kill(Descendant { pid, parent: us });
            below(pid).into_iter().for_each(kill);
        }
        pause(found.first().map(|&pid| Descendant { pid, parent: us }).as_ref());
        for &pid in &found {
            // An error means that it still runs or was reaped in an earlier round. The next round shows which.
            let _ = waitpid(Some(pid), WaitOptions::NOHANG);
        }
    }
}

/// Lists the descendants of `root`, parents before their children.
fn below(root: Pid) -> Vec<Descendant> {
    let mut all: Vec<Descendant> = Vec::new();
    let mut table = None;
    let mut parent = root;
    let mut next = 0;
    loop {
        for pid in children_by(parent, &mut table) {
            if !all.iter().any(|descendant| descendant.pid == pid) {
                all.push(Descendant { pid, parent });
            }
        }
        let Some(descendant) = all.get(next) else { return all };
        parent = descendant.pid;
        next += 1;
    }
}

/// Sums up the resident memory of the descendants of `root`, in bytes. A page that several share is counted for each.
pub(crate) fn resident_bytes(root: Pid) -> u64 {
    let page = rustix::param::page_size() as u64;
    let pages = |descendant: Descendant| {
        let statm = fs::read_to_string(format!("/proc/{}/statm", descendant.pid)).unwrap_or_default();
        statm.split_ascii_whitespace().nth(1).and_then(|pages| pages.parse::<u64>().ok()).unwrap_or(0)
    };
    below(root).into_iter().map(pages).sum::<u64>().saturating_mul(page)
}

/// Lists the children of all threads of a process, zombies included.
pub(crate) fn children(parent: Pid) -> Vec<Pid> {
    children_by(parent, &mut None)
}

/// As [`children`]. Where the kernel keeps no lists of children, reads the whole process table into `table`, at most once.
fn children_by(parent: Pid, table: &mut Option<HashMap<Pid, Vec<Pid>>>) -> Vec<Pid> {
    if table.is_none() && Path::new("/proc/thread-self/children").exists() {
        return listed_children(parent);
    }
    table.get_or_insert_with(process_table).get(&parent).cloned().unwrap_or_default()
}

fn listed_children(parent: Pid) -> Vec<Pid> {
    let Ok(threads) = fs::read_dir(format!("/proc/{parent}/task")) else { return Vec::new() };
    let lists = threads.flatten().filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    lists.flat_map(|list| list.split_ascii_whitespace().filter_map(parse_pid).collect::<Vec<_>>()).collect()
}

fn process_table() -> HashMap<Pid, Vec<Pid>> {
    let mut table: HashMap<Pid, Vec<Pid>> = HashMap::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        if let Some(pid) = entry.file_name().to_str().and_then(parse_pid)
            && let Some(parent) = parent_of(pid)
        {
            table.entry(parent).or_default().push(pid);
        }
    }
    table
}

fn parent_of(pid: Pid) -> Option<Pid> {
    let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
    parent_in(&String::from_utf8_lossy(&stat))
}

/// Returns the fourth field of `stat`. The second, the name, may contain spaces and parentheses.
fn parent_in(stat: &str) -> Option<Pid> {
    stat.get(stat.rfind(')')? + 1..)?.split_ascii_whitespace().nth(1).and_then(parse_pid)
}

fn parse_pid(text: &str) -> Option<Pid> {
    Pid::from_raw(text.parse().ok()?)
}

fn kill(descendant: Descendant) {
    let Ok(pidfd) = pidfd_open(descendant.pid, PidfdFlags::empty()) else { return };
    // Its parent may have died since, which made it a child of this process.
    if parent_of(descendant.pid).is_some_and(|parent| parent == descendant.parent || parent == getpid()) {
        let _ = pidfd_send_signal(&pidfd, Signal::KILL);
    }
}

/// Waits until the process has ended, but no longer than [`MAX_PAUSE`]: it may be uninterruptible, or another user's.
fn pause(descendant: Option<&Descendant>) {
    let pidfd = descendant.and_then(|descendant| pidfd_open(descendant.pid, PidfdFlags::empty()).ok());
    let mut ends: Vec<PollFd<'_>> =
        pidfd.iter().map(|fd| PollFd::from_borrowed_fd(fd.as_fd(), PollFlags::IN)).collect();
    let timeout = Timespec { tv_sec: 0, tv_nsec: MAX_PAUSE.as_nanos() as _ };
    let _ = poll(&mut ends, Some(&timeout));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parent_is_parsed_when_name_has_parentheses() {
        assert_eq!(parent_in("7 (a) b (c)) S 3 7 7 0"), Pid::from_raw(3));
        assert_eq!(parent_in("1 (init) S 0 1 1"), None);
        assert_eq!(parent_in("nonsense"), None);
    }

    #[test]
    fn child_lists_and_process_table_agree() {
        let us = getpid();
        let parent = parent_of(us).unwrap();
        assert!(process_table().get(&parent).unwrap().contains(&us));
        if Path::new("/proc/thread-self/children").exists() {
            assert!(listed_children(parent).contains(&us));
        }
    }
}

//! Who descends from whom, and how to end them: what both a keeper and the gateway do to processes left over.
//!
//! A descendant is found by walking `/proc`, never by process group, session or environment, all of which a process may
//! leave. It is killed through a pidfd whose ancestry was checked after opening it, so a reused pid is never hit. There
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

/// The longest pause before looking again at processes that should be dying.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// A process and the parent under which it was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Member {
    pub(crate) pid: Pid,
    parent: Pid,
}

/// Reaps one child that has ended, if there is one; `Err` once there are no children at all.
pub(crate) fn reap_any() -> Result<Option<(Pid, WaitStatus)>, NoChildren> {
    loop {
        match wait(WaitOptions::NOHANG) {
            Ok(reaped) => return Ok(reaped),
            Err(Errno::INTR) => {}
            Err(_) => return Err(NoChildren),
        }
    }
}

/// Nothing is left to wait for; and since every orphan below a subreaper becomes its child, nothing descends from it.
#[derive(Debug)]
pub(crate) struct NoChildren;

/// Sends SIGKILL to everything that descends from this process, parents first. Does not wait.
pub(crate) fn kill_descendants() -> Vec<Member> {
    let family = descendants(getpid());
    family.iter().for_each(|&member| kill(member));
    family
}

/// Kills and reaps until nothing descends from this process; gives up, with `false`, after `patience`.
pub(crate) fn end_descendants(patience: Duration) -> bool {
    let start = Instant::now();
    loop {
        loop {
            match reap_any() {
                Ok(Some(_)) => {}
                Ok(None) => break,
                Err(NoChildren) => return true,
            }
        }
        if start.elapsed() > patience {
            return false;
        }
        let family = kill_descendants();
        pause(family.first());
    }
}

/// Kills and reaps the children of this process that `strays` names, with all that descends from them, until it names
/// none. They must be unreaped, and nobody else may reap them meanwhile: that is what keeps their pids theirs.
pub(crate) fn end_strays(patience: Duration, mut strays: impl FnMut() -> Vec<Pid>) -> bool {
    let start = Instant::now();
    let us = getpid();
    loop {
        let found = strays();
        if found.is_empty() {
            return true;
        }
        if start.elapsed() > patience {
            return false;
        }
        for &pid in &found {
            kill(Member { pid, parent: us });
            descendants(pid).into_iter().for_each(kill);
        }
        pause(found.first().map(|&pid| Member { pid, parent: us }).as_ref());
        for &pid in &found {
            // Still running, or reaped in an earlier round: either way the next look tells.
            let _ = waitpid(Some(pid), WaitOptions::NOHANG);
        }
    }
}

/// Everything below `root`, parents before their children.
fn descendants(root: Pid) -> Vec<Member> {
    let mut family: Vec<Member> = Vec::new();
    let mut table = None;
    let mut parent = root;
    let mut next = 0;
    loop {
        for pid in children_by(parent, &mut table) {
            if !family.iter().any(|member| member.pid == pid) {
                family.push(Member { pid, parent });
            }
        }
        let Some(member) = family.get(next) else { return family };
        parent = member.pid;
        next += 1;
    }
}

/// The memory of everything below `root` that is not on disk or swapped out, in bytes. Pages that several share are
/// counted for each.
pub(crate) fn resident(root: Pid) -> u64 {
    let page = rustix::param::page_size() as u64;
    let pages = |member: Member| {
        let statm = fs::read_to_string(format!("/proc/{}/statm", member.pid)).unwrap_or_default();
        statm.split_ascii_whitespace().nth(1).and_then(|pages| pages.parse::<u64>().ok()).unwrap_or(0)
    };
    descendants(root).into_iter().map(pages).sum::<u64>().saturating_mul(page)
}

/// The children of a process, of all its threads; zombies too.
pub(crate) fn children(parent: Pid) -> Vec<Pid> {
    children_by(parent, &mut None)
}

/// As [`children`], reading the whole process table into `table` at most once, where the kernel keeps no child lists.
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

/// The fourth field of `stat`; the second, the name, may itself hold spaces and parentheses.
fn parent_in(stat: &str) -> Option<Pid> {
    stat.get(stat.rfind(')')? + 1..)?.split_ascii_whitespace().nth(1).and_then(parse_pid)
}

fn parse_pid(text: &str) -> Option<Pid> {
    Pid::from_raw(text.parse().ok()?)
}

fn kill(member: Member) {
    let Ok(pidfd) = pidfd_open(member.pid, PidfdFlags::empty()) else { return };
    // Its parent may have died since, which made it ours.
    if parent_of(member.pid).is_some_and(|parent| parent == member.parent || parent == getpid()) {
        let _ = pidfd_send_signal(&pidfd, Signal::KILL);
    }
}

/// Waits until `member` has ended, but not for long: it may be uninterruptible, or somebody else's.
fn pause(member: Option<&Member>) {
    let pidfd = member.and_then(|member| pidfd_open(member.pid, PidfdFlags::empty()).ok());
    let mut ends: Vec<PollFd<'_>> =
        pidfd.iter().map(|fd| PollFd::from_borrowed_fd(fd.as_fd(), PollFlags::IN)).collect();
    let timeout = Timespec { tv_sec: 0, tv_nsec: LOOK_AGAIN.as_nanos() as _ };
    let _ = poll(&mut ends, Some(&timeout));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parent_of_a_process_with_an_odd_name() {
        assert_eq!(parent_in("7 (a) b (c)) S 3 7 7 0"), Pid::from_raw(3));
        assert_eq!(parent_in("1 (init) S 0 1 1"), None);
        assert_eq!(parent_in("nonsense"), None);
    }

    #[test]
    fn both_ways_of_looking_agree_about_us() {
        let us = getpid();
        let parent = parent_of(us).unwrap();
        assert!(process_table().get(&parent).unwrap().contains(&us));
        if Path::new("/proc/thread-self/children").exists() {
            assert!(listed_children(parent).contains(&us));
        }
    }
}

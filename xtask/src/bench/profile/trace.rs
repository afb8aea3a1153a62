//! Reads what `strace -f` wrote: the calls of a process, without those of its child processes. Pure functions.
//!
//! A call that another thread interrupts is on two lines: `name(… <unfinished ...>` and `<... name resumed>…) = 0`. Lines
//! of child processes are left out: a process that the gateway starts appears in the trace until it calls `execve`.

use std::collections::{BTreeMap, BTreeSet};

/// Calls that start a thread or a process.
const STARTS: [&str; 4] = ["clone", "clone3", "fork", "vfork"];

/// One line of a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TraceLine<'a> {
    pub(super) thread: u32,
    pub(super) step: TraceStep<'a>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TraceStep<'a> {
    /// A call with its result.
    Call { name: &'a str, arguments: &'a str, result: Option<i64> },
    /// The first line of an interrupted call.
    Unfinished { name: &'a str, arguments: &'a str },
    /// The second line of an interrupted call.
    Resumed { result: Option<i64> },
}

/// Parses a line; `None` for signals, exits and anything that is not a call.
pub(super) fn parse(line: &str) -> Option<TraceLine<'_>> {
    let (thread, rest) = line.split_once(' ')?;
    let (thread, rest) = (thread.parse().ok()?, rest.trim_start());
    // The result is after the last `) = `; arguments may contain the same characters, quoted.
    let result = |text: &str| {
        let (_, result) = text.rsplit_once(") ")?;
        result.trim_start().strip_prefix("= ")?.split([' ', '<']).next()?.parse().ok()
    };
    if let Some(resumed) = rest.strip_prefix("<... ") {
        let (_, end) = resumed.split_once(" resumed>")?;
        return Some(TraceLine { thread, step: TraceStep::Resumed { result: result(end) } });
    }
    let (name, arguments) = rest.split_once('(')?;
    if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
        return None;
    }
    let step = match arguments.strip_suffix("<unfinished ...>") {
        Some(arguments) => TraceStep::Unfinished { name, arguments },
        None => TraceStep::Call { name, arguments, result: result(arguments) },
    };
    Some(TraceLine { thread, step })
}

/// Lines of a trace that belong to the threads of the traced process, without those of its child processes.
pub(super) fn own_lines(trace: &str) -> Vec<&str> {
    let children = child_processes(trace);
    let own = |line: &&str| parse(line).is_some_and(|line| !children.contains(&line.thread));
    trace.lines().filter(own).collect()
}

/// Processes that were started during the trace, and their threads.
fn child_processes(trace: &str) -> BTreeSet<u32> {
    let mut children = BTreeSet::new();
    // Threads that are in a call that starts a thread (`true`) or a process.
    let mut starting: BTreeMap<u32, bool> = BTreeMap::new();
    for TraceLine { thread, step } in trace.lines().filter_map(parse) {
        let (starts_thread, result) = match step {
            TraceStep::Unfinished { name, arguments } if STARTS.contains(&name) => {
                starting.insert(thread, arguments.contains("CLONE_THREAD"));
                continue;
            }
            TraceStep::Call { name, arguments, result } if STARTS.contains(&name) => {
                (arguments.contains("CLONE_THREAD"), result)
            }
            TraceStep::Resumed { result } => match starting.remove(&thread) {
                Some(starts_thread) => (starts_thread, result),
                None => continue,
            },
            TraceStep::Call { .. } | TraceStep::Unfinished { .. } => continue,
        };
        let started = result.and_then(|id| u32::try_from(id).ok());
        if let Some(started) = started.filter(|_| !starts_thread || children.contains(&thread)) {
            children.insert(started);
        }
    }
    children
}

/// Number of calls by name, the most frequent first.
pub(super) fn calls_by_name(lines: &[&str]) -> Vec<(String, u64)> {
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    for line in lines.iter().filter_map(|line| parse(line)) {
        match line.step {
            // strace prints this when it attaches to a thread that waits in a call.
            TraceStep::Call { name: "restart_syscall", .. } | TraceStep::Unfinished { name: "restart_syscall", .. } => {
            }
            TraceStep::Call { name, .. } | TraceStep::Unfinished { name, .. } => *counts.entry(name).or_default() += 1,
            TraceStep::Resumed { .. } => {}
        }
    }
    let mut counts: Vec<(String, u64)> = counts.into_iter().map(|(name, count)| (name.to_owned(), count)).collect();
    counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = r#"100 epoll_wait(3, [{events=EPOLLIN, data=0x1}], 1024, -1) = 1
101   futex(0x7f, FUTEX_WAIT_BITSET_PRIVATE, 0, NULL, FUTEX_BITSET_MATCH_ANY <unfinished ...>
100 recvfrom(9, "POST / HTTP/1.1) = 7"..., 8192, 0, NULL, NULL) = 154
100 clone3({flags=CLONE_VM|CLONE_VFORK, exit_signal=SIGCHLD}, 88 <unfinished ...>
200 rt_sigprocmask(SIG_SETMASK, [], NULL, 8) = 0
200 execve("/bin/true", ["true"], 0x7ffd /* 3 vars */ <detached ...>
100 <... clone3 resumed>) = 200
101 <... futex resumed>) = -1 EAGAIN (Resource temporarily unavailable)
101 clone3({flags=CLONE_VM|CLONE_THREAD, exit_signal=0}, 88) = 102
102 futex(0x7f, FUTEX_WAKE_PRIVATE, 1) = 0
100 --- SIGCHLD {si_signo=SIGCHLD, si_code=CLD_EXITED, si_pid=200, si_uid=0, si_status=0} ---
102 +++ exited with 0 +++
"#;

    #[test]
    fn parses_whole_and_interrupted_calls_and_ignores_signals() {
        let call = |thread, name, arguments, result| {
            Some(TraceLine { thread, step: TraceStep::Call { name, arguments, result } })
        };
        assert_eq!(parse("7 close(4) = 0"), call(7, "close", "4) = 0", Some(0)));
        assert_eq!(
            parse("7 read(4, \"\"..., 9)  = -1 EAGAIN (Resource temporarily unavailable)"),
            call(7, "read", "4, \"\"..., 9)  = -1 EAGAIN (Resource temporarily unavailable)", Some(-1))
        );
        assert_eq!(
            parse("7 openat(AT_FDCWD, \"a\", 0) = 4</a>"),
            call(7, "openat", "AT_FDCWD, \"a\", 0) = 4</a>", Some(4))
        );
        assert_eq!(parse("7 mmap(NULL, 1) = 0x7f00"), call(7, "mmap", "NULL, 1) = 0x7f00", None));
        let unfinished = TraceStep::Unfinished { name: "futex", arguments: "0x7f " };
        assert_eq!(parse("71234 futex(0x7f <unfinished ...>"), Some(TraceLine { thread: 71234, step: unfinished }));
        let resumed = TraceStep::Resumed { result: Some(3) };
        assert_eq!(parse("7 <... read resumed>\"\"..., 9) = 3"), Some(TraceLine { thread: 7, step: resumed }));
        for line in ["", "7", "7 --- SIGCHLD {si_signo=SIGCHLD} ---", "7 +++ exited with 0 +++", "strace: (attached)"] {
            assert_eq!(parse(line), None, "{line}");
        }
    }

    #[test]
    fn calls_of_threads_are_counted_and_those_of_child_processes_are_not() {
        let lines = own_lines(TRACE);
        assert!(lines.iter().all(|line| !line.starts_with("200")), "{lines:?}");
        let counts = calls_by_name(&lines);
        let counts: Vec<(&str, u64)> = counts.iter().map(|(name, count)| (name.as_str(), *count)).collect();
        assert_eq!(counts, [("clone3", 2), ("futex", 2), ("epoll_wait", 1), ("recvfrom", 1)]);
    }
}

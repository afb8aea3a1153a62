//! Which process made something, so that a later one can tell what was left behind: a process id alone may be another's
//! by now.

use std::fs;
use std::path::Path;
use std::sync::OnceLock;

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct GatewayProcess {
    pub(crate) pid: u32,
    /// When it started, in the kernel's ticks.
    pub(crate) started: u64,
}

impl GatewayProcess {
    pub(crate) fn this_process() -> Self {
        static US: OnceLock<GatewayProcess> = OnceLock::new();
        *US.get_or_init(|| {
            let pid = std::process::id();
            Self { pid, started: start_time(pid).unwrap_or(0) }
        })
    }

    pub(crate) fn lives(self) -> bool {
        start_time(self.pid) == Some(self.started)
    }

    /// As a mark on a process. A process id means something only in its own namespace, so that is part of it.
    pub(crate) fn mark(self) -> String {
        format!("{}:{}", namespace(), self.name())
    }

    /// Whether a mark is that of a process of our namespace that is no more.
    pub(crate) fn is_dead(mark: &str) -> bool {
        Self::of_our_namespace(mark).is_some_and(|owner| !owner.lives())
    }

    /// The process of a mark; none if its id means nothing here.
    pub(crate) fn of_our_namespace(mark: &str) -> Option<Self> {
        let (place, name) = mark.rsplit_once(':')?;
        Self::from_name(name).filter(|_| place == namespace())
    }

    /// As the name of a folder.
    pub(crate) fn name(self) -> String {
        format!("{}-{}", self.pid, self.started)
    }

    pub(crate) fn from_name(name: &str) -> Option<Self> {
        let (pid, started) = name.split_once('-')?;
        Some(Self { pid: pid.parse().ok()?, started: started.parse().ok()? })
    }
}

/// The name of this process, by which another can tell whether it still lives.
#[must_use]
pub fn name_of_process() -> String {
    GatewayProcess::this_process().name()
}

/// Whether the process of that name lives.
#[must_use]
pub fn process_lives(name: &str) -> bool {
    GatewayProcess::from_name(name).is_some_and(GatewayProcess::lives)
}

fn namespace() -> String {
    fs::read_link("/proc/self/ns/pid").map_or_else(|_| String::new(), |link| link.to_string_lossy().into_owned())
}

/// `None` if there is no such process, or it has ended and only its exit status is left.
fn start_time(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("stat")).ok()?;
    start_time_in(&stat)
}

/// Reads the state and the start time, which are the 3rd and 22nd fields; the 2nd is a name that may contain anything.
fn start_time_in(stat: &str) -> Option<u64> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace();
    let ended = matches!(fields.next()?, "Z" | "X" | "x");
    fields.nth(18)?.parse().ok().filter(|_| !ended)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn case_57_only_the_living_live() {
        let us = GatewayProcess::this_process();
        assert!(us.lives());
        assert!(!GatewayProcess { started: 1, ..us }.lives(), "another process with our number");
        assert!(!GatewayProcess { pid: u32::MAX, ..us }.lives());
        assert_eq!(GatewayProcess::from_name(&us.name()), Some(us));
        assert_eq!(GatewayProcess::from_name("01a1e107-b4af-7088"), None);
        assert!(!GatewayProcess::is_dead(&us.mark()));
        assert!(GatewayProcess::is_dead(&GatewayProcess { started: 1, ..us }.mark()));
        assert!(!GatewayProcess::is_dead("pid:[1]:1-1"), "a process of another namespace is none of our business");
    }

    #[test]
    fn a_process_is_dead_when_only_its_exit_status_is_left() {
        let stat = |state: &str| format!("7 (a) (b) {state} 1 7 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 4711 10 11");
        for (state, expected) in [("S", Some(4711)), ("R", Some(4711)), ("T", Some(4711)), ("Z", None), ("X", None)] {
            assert_eq!(start_time_in(&stat(state)), expected, "{state}");
        }
        assert_eq!(start_time_in("7 (cut"), None);
    }
}

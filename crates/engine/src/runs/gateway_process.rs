//! Identity of a gateway process, so that a later process can recognise what a dead one left behind.
//!
//! A process id alone is not enough: the kernel reuses it. Together with the start time it is unique.

use std::fs;
use std::path::Path;
use std::sync::OnceLock;

use serde::{Deserialize, Serialize};

/// A gateway process, by process id and start time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct GatewayProcess {
    pub(crate) pid: u32,
    /// Start time, in clock ticks since boot.
    pub(crate) started: u64,
}

impl GatewayProcess {
    pub(crate) fn this_process() -> Self {
        static THIS: OnceLock<GatewayProcess> = OnceLock::new();
        *THIS.get_or_init(|| {
            let pid = std::process::id();
            Self { pid, started: start_time(pid).unwrap_or(0) }
        })
    }

    pub(crate) fn is_alive(self) -> bool {
        start_time(self.pid) == Some(self.started)
    }

    /// Mark of this process in the environment of its children. Includes the PID namespace, outside which a process id
    /// has no meaning.
    pub(crate) fn mark(self) -> String {
        format!("{}:{}", namespace(), self.name())
    }

    /// Whether `mark` is that of a process in this PID namespace that has died.
    pub(crate) fn is_dead(mark: &str) -> bool {
        Self::in_this_namespace(mark).is_some_and(|process| !process.is_alive())
    }

    /// Returns the process of a mark. `None` if the mark is of another PID namespace.
    pub(crate) fn in_this_namespace(mark: &str) -> Option<Self> {
        let (marked_namespace, name) = mark.rsplit_once(':')?;
        Self::from_name(name).filter(|_| marked_namespace == namespace())
    }

    /// Name of the process, usable as a folder name.
    pub(crate) fn name(self) -> String {
        format!("{}-{}", self.pid, self.started)
    }

    pub(crate) fn from_name(name: &str) -> Option<Self> {
        let (pid, started) = name.split_once('-')?;
        Some(Self { pid: pid.parse().ok()?, started: started.parse().ok()? })
    }
}

/// Returns the name of this process. [`process_lives`] tells by it whether the process is alive.
#[must_use]
pub fn name_of_process() -> String {
    GatewayProcess::this_process().name()
}

/// Whether the process with this name is alive.
#[must_use]
pub fn process_lives(name: &str) -> bool {
    GatewayProcess::from_name(name).is_some_and(GatewayProcess::is_alive)
}

fn namespace() -> String {
    fs::read_link("/proc/self/ns/pid").map_or_else(|_| String::new(), |link| link.to_string_lossy().into_owned())
}

/// Returns the start time of a process. `None` if it does not exist or is a zombie.
fn start_time(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("stat")).ok()?;
    start_time_in(&stat)
}

/// Reads the state and the start time, which are fields 3 and 22. Field 2 is a name that may contain anything.
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
    fn case_57_process_is_alive_only_with_its_own_start_time() {
        let this = GatewayProcess::this_process();
        assert!(this.is_alive());
        assert!(!GatewayProcess { started: 1, ..this }.is_alive(), "another process with the same pid");
        assert!(!GatewayProcess { pid: u32::MAX, ..this }.is_alive());
        assert_eq!(GatewayProcess::from_name(&this.name()), Some(this));
        assert_eq!(GatewayProcess::from_name("01a1e107-b4af-7088"), None);
        assert!(!GatewayProcess::is_dead(&this.mark()));
        assert!(GatewayProcess::is_dead(&GatewayProcess { started: 1, ..this }.mark()));
        assert!(!GatewayProcess::is_dead("pid:[1]:1-1"), "a process of another namespace is not judged by its pid");
    }

    #[test]
    fn process_is_dead_when_it_is_a_zombie() {
        let stat = |state: &str| format!("7 (a) (b) {state} 1 7 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 4711 10 11");
        for (state, expected) in [("S", Some(4711)), ("R", Some(4711)), ("T", Some(4711)), ("Z", None), ("X", None)] {
            assert_eq!(start_time_in(&stat(state)), expected, "{state}");
        }
        assert_eq!(start_time_in("7 (cut"), None);
    }
}

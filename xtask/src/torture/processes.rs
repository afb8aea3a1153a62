//! Processes of a world: those that run a file in its `bin`, keepers of its gateways, and their children.

use std::fs;

use super::world::TortureWorld;

#[derive(Debug, Clone)]
pub(super) struct TortureProcess {
    pub(super) pid: u32,
    pub(super) parent: u32,
    name: String,
    state: char,
    /// Runs a file in the world's `bin`, or was a keeper of its gateway. False for zombies, which run no file.
    ours: bool,
}

impl TortureProcess {
    pub(super) fn is_zombie(&self) -> bool {
        self.state == 'Z'
    }

    pub(super) fn describe(&self) -> String {
        format!("{} ({}), child of {}", self.name, self.pid, self.parent)
    }
}

/// Processes of this world except its gateway and the gateway's keepers.
pub(super) fn others(world: &TortureWorld) -> Vec<TortureProcess> {
    let all = all(world);
    let gateway = world.pid().unwrap_or(0);
    let keepers: Vec<u32> = all
        .iter()
        .filter(|process| process.is_keeper() && process.parent == gateway)
        .map(|keeper| keeper.pid)
        .collect();
    all.into_iter()
        .filter(|process| process.pid != gateway && !keepers.contains(&process.pid))
        .filter(|process| process.ours || process.parent == gateway || keepers.contains(&process.parent))
        .collect()
}

/// The fake agents.
pub(super) fn agents(world: &TortureWorld) -> Vec<u32> {
    all(world)
        .into_iter()
        .filter(|process| process.ours && process.name == "fake-agent")
        .map(|agent| agent.pid)
        .collect()
}

/// The keepers of the gateway.
pub(super) fn keepers(world: &TortureWorld) -> Vec<u32> {
    let gateway = world.pid().unwrap_or(0);
    let of_gateway = |process: &TortureProcess| process.is_keeper() && process.parent == gateway;
    all(world).into_iter().filter(of_gateway).map(|keeper| keeper.pid).collect()
}

impl TortureProcess {
    fn is_keeper(&self) -> bool {
        self.name == "line-keeper"
    }
}

fn all(world: &TortureWorld) -> Vec<TortureProcess> {
    let bin = world.path("bin");
    let pids = fs::read_dir("/proc").into_iter().flatten().flatten();
    pids.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok())
        .filter_map(|pid| {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
            // The name is in parentheses and may contain any character, including parentheses.
            let (before, after) = stat.rsplit_once(')')?;
            let name = before.split_once('(')?.1.to_owned();
            let mut fields = after.split_whitespace();
            let state = fields.next()?.chars().next()?;
            let parent = fields.next()?.parse().ok()?;
            // Only root can read which file a keeper runs, because keepers are not dumpable.
            let ours = fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|exe| exe.starts_with(&bin))
                || world.was_keeper(pid);
            Some(TortureProcess { pid, parent, name, state, ours })
        })
        .collect()
}

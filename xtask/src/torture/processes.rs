//! The processes of a world: whatever runs a file of its `bin`, was a keeper of its gateway, or is the child of such.

use std::fs;

use super::world::World;

#[derive(Debug, Clone)]
pub(super) struct Process {
    pub(super) pid: u32,
    pub(super) parent: u32,
    name: String,
    state: char,
    /// Runs a file of this world. None for a zombie, which runs nothing.
    ours: bool,
}

impl Process {
    pub(super) fn is_zombie(&self) -> bool {
        self.state == 'Z'
    }

    pub(super) fn describe(&self) -> String {
        format!("{} ({}), child of {}", self.name, self.pid, self.parent)
    }
}

/// Everything of this world that is not its gateway or one of the gateway's keepers.
pub(super) fn others(world: &World) -> Vec<Process> {
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

pub(super) fn agents(world: &World) -> Vec<u32> {
    all(world)
        .into_iter()
        .filter(|process| process.ours && process.name == "fake-agent")
        .map(|agent| agent.pid)
        .collect()
}

/// The keepers of the gateway.
pub(super) fn keepers(world: &World) -> Vec<u32> {
    let gateway = world.pid().unwrap_or(0);
    let of_gateway = |process: &Process| process.is_keeper() && process.parent == gateway;
    all(world).into_iter().filter(of_gateway).map(|keeper| keeper.pid).collect()
}

impl Process {
    fn is_keeper(&self) -> bool {
        self.name == "line-keeper"
    }
}

fn all(world: &World) -> Vec<Process> {
    let bin = world.path("bin");
    let pids = fs::read_dir("/proc").into_iter().flatten().flatten();
    pids.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok())
        .filter_map(|pid| {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
            // The name is in brackets, and may hold anything.
            let (before, after) = stat.rsplit_once(')')?;
            let name = before.split_once('(')?.1.to_owned();
            let mut fields = after.split_whitespace();
            let state = fields.next()?.chars().next()?;
            let parent = fields.next()?.parse().ok()?;
            // Only root sees which file a keeper runs: it is closed to others.
            let ours = fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|exe| exe.starts_with(&bin))
                || world.was_keeper(pid);
            Some(Process { pid, parent, name, state, ours })
        })
        .collect()
}

//! What goes wrong in a round.

use std::fs;
use std::thread::sleep;
use std::time::Duration;

use anyhow::Result;
use fastrand::Rng;
use rustix::process::{Pid, Signal, kill_process};

use super::processes;
use super::world::World;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    /// Nothing beside what clients do.
    None,
    GatewayKilled,
    GatewayStopped,
    /// It is asked to end, and is started again.
    Drained,
    CliKilled,
    KeeperKilled,
    DiskFull,
    FewFiles,
    GitLocked,
    ConfigBroken,
}

impl Fault {
    const ALL: [Self; 10] = [
        Self::None,
        Self::GatewayKilled,
        Self::GatewayStopped,
        Self::Drained,
        Self::CliKilled,
        Self::KeeperKilled,
        Self::DiskFull,
        Self::FewFiles,
        Self::GitLocked,
        Self::ConfigBroken,
    ];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::None => "-",
            Self::GatewayKilled => "gateway killed",
            Self::GatewayStopped => "gateway stopped",
            Self::Drained => "drained",
            Self::CliKilled => "CLI killed",
            Self::KeeperKilled => "keeper killed",
            Self::DiskFull => "disk full",
            Self::FewFiles => "few files",
            Self::GitLocked => "git locked",
            Self::ConfigBroken => "config broken",
        }
    }

    /// One or two of them; what this machine does not permit is not drawn.
    pub(super) fn draw(rng: &mut Rng, world: &World) -> Vec<Self> {
        let possible: Vec<Self> =
            Self::ALL.into_iter().filter(|fault| *fault != Self::DiskFull || world.has_small_disk()).collect();
        (0..rng.usize(1..=2)).map(|_| possible[rng.usize(..possible.len())]).collect()
    }

    pub(super) fn inject(self, world: &mut World, rng: &mut Rng) -> Result<()> {
        let moment = Duration::from_millis(rng.u64(20..600));
        sleep(moment);
        match self {
            Self::None => {}
            Self::GatewayKilled => {
                world.kill()?;
                world.start(None)?;
            }
            Self::GatewayStopped => {
                world.signal(Signal::STOP)?;
                sleep(moment);
                world.signal(Signal::CONT)?;
            }
            Self::Drained => {
                anyhow::ensure!(world.end()?, "a gateway that was asked to end did not end well");
                world.start(None)?;
            }
            Self::CliKilled => kill_some(&processes::agents(world), rng, 3),
            Self::KeeperKilled => kill_some(&processes::keepers(world), rng, 2),
            Self::DiskFull => {
                let filler = world.path("worktrees/filler");
                let _full_is_what_is_wanted = fs::write(&filler, vec![0; 32 << 20]);
                sleep(moment * 2);
                fs::remove_file(filler)?;
            }
            Self::FewFiles => {
                world.kill()?;
                world.start(Some(96))?;
                sleep(moment * 2);
            }
            Self::GitLocked => {
                let locks = ["index.lock", "HEAD.lock", "config.lock", "packed-refs.lock"];
                let locks = locks.map(|name| world.path("repo/.git").join(name));
                locks.iter().try_for_each(|lock| fs::write(lock, ""))?;
                sleep(moment);
                locks.iter().try_for_each(fs::remove_file)?;
            }
            Self::ConfigBroken => {
                world.break_config()?;
                sleep(moment);
                world.write_config()?;
            }
        }
        Ok(())
    }
}

fn kill_some(processes: &[u32], rng: &mut Rng, most: usize) {
    for _ in 0..most.min(processes.len()) {
        let pid = processes[rng.usize(..processes.len())];
        if let Some(pid) = Pid::from_raw(pid as i32) {
            let _it_may_have_ended = kill_process(pid, Signal::KILL);
        }
    }
}

//! Faults that a round injects.

use std::fs;
use std::thread::sleep;
use std::time::Duration;

use anyhow::Result;
use fastrand::Rng;
use rustix::process::{Pid, Signal, kill_process};

use super::processes;
use super::world::TortureWorld;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TortureFault {
    /// No fault except the behaviour of the clients.
    None,
    GatewayKilled,
    /// SIGSTOP, then SIGCONT.
    GatewayStopped,
    /// SIGTERM, then a new start.
    Drained,
    CliKilled,
    KeeperKilled,
    DiskFull,
    /// The gateway has a low limit of open files.
    FewFiles,
    GitLocked,
    ConfigBroken,
}

impl TortureFault {
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

    /// Draws one or two faults that this machine permits.
    pub(super) fn draw(rng: &mut Rng, world: &TortureWorld) -> Vec<Self> {
        let possible: Vec<Self> =
            Self::ALL.into_iter().filter(|fault| *fault != Self::DiskFull || world.has_small_disk()).collect();
        (0..rng.usize(1..=2)).map(|_| possible[rng.usize(..possible.len())]).collect()
    }

    pub(super) fn inject(self, world: &mut TortureWorld, rng: &mut Rng) -> Result<()> {
        let delay = Duration::from_millis(rng.u64(20..600));
        sleep(delay);
        match self {
            Self::None => {}
            Self::GatewayKilled => {
                world.kill()?;
                world.start(None)?;
            }
            Self::GatewayStopped => {
                world.signal(Signal::STOP)?;
                sleep(delay);
                world.signal(Signal::CONT)?;
            }
            Self::Drained => {
                anyhow::ensure!(world.end()?, "the gateway did not exit successfully after SIGTERM");
                world.start(None)?;
            }
            Self::CliKilled => kill_some(&processes::agents(world), rng, 3),
            Self::KeeperKilled => kill_some(&processes::keepers(world), rng, 2),
            Self::DiskFull => {
                let filler = world.path("worktrees/filler");
                // The write fails when the disk is full, as intended.
                let _ = fs::write(&filler, vec![0; 32 << 20]);
                sleep(delay * 2);
                fs::remove_file(filler)?;
            }
            Self::FewFiles => {
                world.kill()?;
                world.start(Some(96))?;
                sleep(delay * 2);
            }
            Self::GitLocked => {
                let locks = ["index.lock", "HEAD.lock", "config.lock", "packed-refs.lock"];
                let locks = locks.map(|name| world.path("repo/.git").join(name));
                locks.iter().try_for_each(|lock| fs::write(lock, ""))?;
                sleep(delay);
                locks.iter().try_for_each(fs::remove_file)?;
            }
            Self::ConfigBroken => {
                world.break_config()?;
                sleep(delay);
                world.write_config()?;
            }
        }
        Ok(())
    }
}

fn kill_some(processes: &[u32], rng: &mut Rng, max: usize) {
    for _ in 0..max.min(processes.len()) {
        let pid = processes[rng.usize(..processes.len())];
        if let Some(pid) = Pid::from_raw(pid as i32) {
            // The process may have ended already.
            let _ = kill_process(pid, Signal::KILL);
        }
    }
}

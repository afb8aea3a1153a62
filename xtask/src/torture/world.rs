//! Environment of a torture run: a gateway with its own repository, state folder and home.

use std::collections::BTreeSet;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use tempfile::TempDir;

use super::{gateway, processes};
use crate::test::{build, command};

/// Size of the file system for worktrees: small, so that it is full quickly.
const DISK_SIZE: &str = "size=16m";

pub(super) struct TortureWorld {
    folder: TempDir,
    gateway: Option<Child>,
    pub(super) address: SocketAddr,
    /// Reason why the worktrees have no small file system of their own.
    no_small_disk: Option<String>,
    /// The gateway runs with a low limit of open files and must be restarted after the round.
    few_files: bool,
    /// Leftovers that earlier rounds have reported.
    leftovers: BTreeSet<String>,
    /// Keepers of killed gateways.
    keepers: BTreeSet<u32>,
}

impl TortureWorld {
    pub(super) fn new() -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("torture-").tempdir()?;
        let at = |name: &str| folder.path().join(name);
        for name in ["bin", "home", "repo", "worktrees"] {
            fs::create_dir(at(name))?;
        }
        let built = std::env::current_exe()?.parent().context("no target folder")?.to_owned();
        build("trunkline")?;
        build("xtask")?;
        // Copies: a process that runs one of these files belongs to this world.
        for name in ["trunkline", "fake-agent"] {
            fs::copy(built.join(name), at("bin").join(name)).with_context(|| format!("{name} is not built"))?;
        }
        create_repository(&at("repo"))?;
        let mut world = Self {
            no_small_disk: mount_small_disk(&at("worktrees")),
            folder,
            gateway: None,
            address: ([127, 0, 0, 1], 0).into(),
            few_files: false,
            leftovers: BTreeSet::new(),
            keepers: BTreeSet::new(),
        };
        world.write_config()?;
        world.start(None)?;
        Ok(world)
    }

    /// Faults that this machine does not permit, with the reason.
    pub(super) fn skipped(&self) -> Vec<String> {
        self.no_small_disk.iter().map(|why| format!("needs root: a full disk ({why})")).collect()
    }

    pub(super) fn has_small_disk(&self) -> bool {
        self.no_small_disk.is_none()
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes `models.json`: both models use worktrees, and `detached` continues after its client disconnects.
    pub(super) fn write_config(&self) -> Result<()> {
        let model = |extra: serde_json::Value| {
            let mut model = json!({
                "driver": "codex", "repoPath": self.path("repo"), "worktree": true,
                "command": self.path("bin/fake-agent"), "env": {"FAKE_AGENT": "work"},
            });
            for (name, value) in extra.as_object().into_iter().flatten() {
                model[name] = value.clone();
            }
            model
        };
        let models = json!({"work": model(json!({})), "detached": model(json!({"onDisconnect": "detach"}))});
        fs::write(self.path("models.json"), models.to_string())?;
        Ok(())
    }

    pub(super) fn break_config(&self) -> Result<()> {
        fs::write(self.path("models.json"), "{\"work\": {\"driver\": ")?;
        Ok(())
    }

    /// Starts the gateway, with a limit of open files if there is one.
    pub(super) fn start(&mut self, files: Option<u32>) -> Result<()> {
        self.few_files = files.is_some();
        let binary = self.path("bin/trunkline");
        let program = match files {
            None => command(&binary.to_string_lossy()),
            Some(files) => {
                let mut prlimit = command("prlimit");
                prlimit.arg(format!("--nofile={files}")).arg(&binary);
                prlimit
            }
        };
        let started = gateway::start(program, self.folder.path(), &[]);
        let (gateway, address) = started.with_context(|| format!("see {}", self.keep_log().display()))?;
        self.address = address;
        self.gateway = Some(gateway);
        Ok(())
    }

    pub(super) fn pid(&self) -> Option<u32> {
        self.gateway.as_ref().map(Child::id)
    }

    /// Whether a process was a keeper of a killed gateway.
    pub(super) fn was_keeper(&self, pid: u32) -> bool {
        self.keepers.contains(&pid)
    }

    /// Kills the gateway with SIGKILL, as the kernel does when memory runs out.
    pub(super) fn kill(&mut self) -> Result<()> {
        self.keepers.extend(processes::keepers(self));
        if let Some(mut gateway) = self.gateway.take() {
            gateway.kill()?;
            gateway.wait()?;
        }
        Ok(())
    }

    pub(super) fn signal(&self, signal: Signal) -> Result<()> {
        let pid = self.pid().and_then(|pid| Pid::from_raw(pid as i32)).context("the gateway is not running")?;
        Ok(kill_process(pid, signal)?)
    }

    /// Stops the gateway with SIGTERM; returns whether it exited successfully within 20 s.
    pub(super) fn end(&mut self) -> Result<bool> {
        self.signal(Signal::TERM)?;
        let Some(mut gateway) = self.gateway.take() else { return Ok(false) };
        let deadline = Instant::now() + Duration::from_secs(20);
        while Instant::now() < deadline {
            if let Some(status) = gateway.try_wait()? {
                return Ok(status.success());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        gateway.kill()?;
        gateway.wait()?;
        Ok(false)
    }

    /// Makes sure that a gateway without a fault runs.
    pub(super) fn recover(&mut self) -> Result<()> {
        if self.few_files {
            self.end()?;
        }
        let ended = match &mut self.gateway {
            Some(gateway) => gateway.try_wait()?.is_some(),
            None => true,
        };
        if ended {
            self.start(None)?;
        }
        Ok(())
    }

    /// Whether no earlier round has reported this leftover.
    pub(super) fn is_new(&self, left: &str) -> bool {
        !self.leftovers.contains(left)
    }

    pub(super) fn remember_leftovers(&mut self, left: Vec<String>) {
        self.leftovers.extend(left);
    }

    /// Copies the gateway's log to a file that outlives this world.
    pub(super) fn keep_log(&self) -> PathBuf {
        let copy = std::env::temp_dir().join("trunkline-torture.log");
        // Without a copy, the path does not exist.
        let _ = fs::copy(self.path("gateway.log"), &copy);
        copy
    }
}

impl Drop for TortureWorld {
    fn drop(&mut self) {
        // The gateway may have ended already.
        let _ = self.kill();
        if self.has_small_disk() {
            // If this fails, the folder stays.
            let _ = command("umount").arg(self.path("worktrees")).status();
        }
    }
}

fn create_repository(folder: &Path) -> Result<()> {
    for number in 0..200 {
        fs::write(folder.join(format!("file-{number}.txt")), format!("{number}\n"))?;
    }
    for args in [&["init", "--quiet"][..], &["add", "."], &["commit", "--quiet", "--message", "begin"]] {
        git(folder, args)?;
    }
    Ok(())
}

/// Runs git in `folder` with a test user and returns its output.
pub(super) fn git(folder: &Path, args: &[&str]) -> Result<String> {
    let mut git = command("git");
    git.arg("-C").arg(folder).args(["-c", "user.name=torture", "-c", "user.email=torture@localhost"]).args(args);
    let output = git.output().context("cannot start git")?;
    if !output.status.success() {
        bail!("git {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Mounts a small file system for the worktrees, so that it can be filled safely. Returns the reason if that fails.
fn mount_small_disk(folder: &Path) -> Option<String> {
    let mounted = command("mount").args(["-t", "tmpfs", "-o", DISK_SIZE, "tmpfs"]).arg(folder).output();
    match mounted {
        Ok(output) if output.status.success() => None,
        Ok(output) => Some(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
        Err(error) => Some(format!("cannot start mount: {error}")),
    }
}

//! A place to go wrong in: a repository, a state folder, a home and a gateway, all of its own.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use tempfile::TempDir;

use super::processes;
use crate::test::{build, command};

/// Room for the worktrees: little enough to be filled quickly.
const ROOM: &str = "size=16m";

pub(super) struct World {
    folder: TempDir,
    gateway: Option<Child>,
    pub(super) address: SocketAddr,
    /// Why worktrees have no small disk of their own, if they have none.
    no_small_disk: Option<String>,
    /// The gateway was started with few descriptors, and is to be started again with enough.
    short_of_files: bool,
    /// What earlier rounds left behind: it is theirs.
    left_behind: BTreeSet<String>,
    /// Keepers of gateways that were killed.
    keepers: BTreeSet<u32>,
}

impl World {
    pub(super) fn new() -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("torture-").tempdir()?;
        let at = |name: &str| folder.path().join(name);
        for name in ["bin", "home", "repo", "worktrees"] {
            fs::create_dir(at(name))?;
        }
        let built = std::env::current_exe()?.parent().context("no target folder")?.to_owned();
        build("trunkline")?;
        build("xtask")?;
        // Copies: whatever runs one of these files is of this world.
        for name in ["trunkline", "fake-agent"] {
            fs::copy(built.join(name), at("bin").join(name)).with_context(|| format!("{name} is not built"))?;
        }
        repository(&at("repo"))?;
        let mut world = Self {
            no_small_disk: small_disk(&at("worktrees")),
            folder,
            gateway: None,
            address: ([127, 0, 0, 1], 0).into(),
            short_of_files: false,
            left_behind: BTreeSet::new(),
            keepers: BTreeSet::new(),
        };
        world.write_config()?;
        world.start(None)?;
        Ok(world)
    }

    pub(super) fn skipped(&self) -> Vec<String> {
        self.no_small_disk.iter().map(|why| format!("needs root: a full disk ({why})")).collect()
    }

    pub(super) fn has_small_disk(&self) -> bool {
        self.no_small_disk.is_none()
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The models: a worktree for each run, one that goes on without its client, one that will not die.
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

    pub(super) fn start(&mut self, files: Option<u32>) -> Result<()> {
        self.short_of_files = files.is_some();
        let log = fs::OpenOptions::new().create(true).append(true).open(self.path("gateway.log"))?;
        let binary = self.path("bin/trunkline");
        let mut gateway = match files {
            None => command(&binary.to_string_lossy()),
            Some(files) => {
                let mut prlimit = command("prlimit");
                prlimit.arg(format!("--nofile={files}")).arg(&binary);
                prlimit
            }
        };
        let mut gateway = gateway
            .args(["serve", "--port", "0", "--max-runs", "8", "--grace", "300ms", "--drain", "2s"])
            .arg("--config")
            .arg(self.folder.path())
            .arg("--state")
            .arg(self.path("state"))
            .arg("--worktrees")
            .arg(self.path("worktrees"))
            .env_clear()
            .env("HOME", self.path("home"))
            .env("PATH", "/usr/bin:/bin")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .context("cannot start the gateway")?;
        let mut line = String::new();
        BufReader::new(gateway.stdout.take().expect("it is piped")).read_line(&mut line)?;
        let address = line.trim().strip_prefix("listening on http://");
        self.address = match address {
            Some(address) => address.parse()?,
            None => {
                let _ended = gateway.wait();
                bail!("the gateway did not start: {line:?}; see {}", self.keep_log().display());
            }
        };
        self.gateway = Some(gateway);
        Ok(())
    }

    pub(super) fn pid(&self) -> Option<u32> {
        self.gateway.as_ref().map(Child::id)
    }

    /// Whether a process was a keeper of a gateway that was killed.
    pub(super) fn was_keeper(&self, pid: u32) -> bool {
        self.keepers.contains(&pid)
    }

    /// Ends the gateway without a word, as the kernel does when memory is short.
    pub(super) fn kill(&mut self) -> Result<()> {
        self.keepers.extend(processes::keepers(self));
        if let Some(mut gateway) = self.gateway.take() {
            gateway.kill()?;
            gateway.wait()?;
        }
        Ok(())
    }

    pub(super) fn signal(&self, signal: Signal) -> Result<()> {
        let pid = self.pid().and_then(|pid| Pid::from_raw(pid as i32)).context("there is no gateway")?;
        Ok(kill_process(pid, signal)?)
    }

    /// Asks the gateway to end, and says whether it did so well.
    pub(super) fn end(&mut self) -> Result<bool> {
        self.signal(Signal::TERM)?;
        let Some(mut gateway) = self.gateway.take() else { return Ok(false) };
        let until = Instant::now() + Duration::from_secs(20);
        while Instant::now() < until {
            if let Some(status) = gateway.try_wait()? {
                return Ok(status.success());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        gateway.kill()?;
        gateway.wait()?;
        Ok(false)
    }

    /// After the faults: a gateway with all it needs.
    pub(super) fn recover(&mut self) -> Result<()> {
        if self.short_of_files {
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

    /// Whether this is left behind since the present round.
    pub(super) fn is_new(&self, left: &str) -> bool {
        !self.left_behind.contains(left)
    }

    pub(super) fn blame_earlier_rounds(&mut self, left: Vec<String>) {
        self.left_behind.extend(left);
    }

    /// The log, where it outlives this world.
    pub(super) fn keep_log(&self) -> PathBuf {
        let kept = std::env::temp_dir().join("trunkline-torture.log");
        let _best_effort = fs::copy(self.path("gateway.log"), &kept);
        kept
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let _it_may_have_ended = self.kill();
        if self.has_small_disk() {
            let _the_folder_then_stays = command("umount").arg(self.path("worktrees")).status();
        }
    }
}

fn repository(folder: &Path) -> Result<()> {
    for number in 0..200 {
        fs::write(folder.join(format!("file-{number}.txt")), format!("{number}\n"))?;
    }
    for args in [&["init", "--quiet"][..], &["add", "."], &["commit", "--quiet", "--message", "begin"]] {
        git(folder, args)?;
    }
    Ok(())
}

/// What git says, in this repository and as nobody in particular.
pub(super) fn git(folder: &Path, args: &[&str]) -> Result<String> {
    let mut git = command("git");
    git.arg("-C").arg(folder).args(["-c", "user.name=torture", "-c", "user.email=torture@localhost"]).args(args);
    let output = git.output().context("cannot start git")?;
    if !output.status.success() {
        bail!("git {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// A file system of its own for the worktrees, so that it can be full without harm. None, or why not.
fn small_disk(folder: &Path) -> Option<String> {
    let mounted = command("mount").args(["-t", "tmpfs", "-o", ROOM, "tmpfs"]).arg(folder).output();
    match mounted {
        Ok(output) if output.status.success() => None,
        Ok(output) => Some(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
        Err(error) => Some(format!("cannot start mount: {error}")),
    }
}

//! Environment of one attack: a repository, a home folder with a canary file, a victim process and a gateway with a secret.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::json;
use tempfile::TempDir;

use super::scenario::{AttackMode, AttackScenario, AttackStart, AttackVariant};
use crate::test::command;

/// Limit for the warm process or the spare worktree of a warm variant. After it, the attack fails as not runnable.
const READY_TIMEOUT: Duration = Duration::from_secs(30);

/// The gateway's `--git-timeout`: short, so that scenarios that hang git end soon.
const GIT_TIMEOUT: &str = "4s";

pub(super) struct AttackWorld {
    folder: TempDir,
    /// In the gateway's environment; no agent may read it.
    pub(super) secret: String,
    /// Content of the file that a precious scenario must not lose.
    pub(super) marker: String,
    /// A process outside the workspace; no agent may kill it.
    victim: Child,
    gateway: Option<Child>,
    pub(super) address: SocketAddr,
    /// Files outside the workspace before the attack, with mode and content.
    outside: BTreeMap<PathBuf, String>,
}

impl AttackWorld {
    pub(super) fn new(parent: &Path, scenario: &AttackScenario, trunkline: &Path) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("w").tempdir_in(parent)?;
        for name in ["bin", "out/other", "out/.claude", "repo", "worktrees", "config"] {
            fs::create_dir_all(folder.path().join(name))?;
        }
        let random = || format!("{:016x}", fastrand::u64(..));
        let victim = command("sleep").arg("600").stdin(Stdio::null()).spawn()?;
        let mut world = Self {
            folder,
            secret: format!("secret{}", random()),
            marker: format!("precious{}", random()),
            victim,
            gateway: None,
            address: ([127, 0, 0, 1], 0).into(),
            outside: BTreeMap::new(),
        };
        fs::write(world.path("out/canary"), "alive\n")?;
        fs::write(world.path("out/.bashrc"), "# mine\n")?;
        fs::hard_link(trunkline, world.path("bin/trunkline"))
            .or_else(|_| fs::copy(trunkline, world.path("bin/trunkline")).map(drop))?;
        let agent = format!("#!/usr/bin/env python3\n{}", include_str!("agent.py"));
        fs::write(world.path("bin/claude"), agent)?;
        fs::set_permissions(world.path("bin/claude"), fs::Permissions::from_mode(0o755))?;
        for (name, script) in
            [("setup", &scenario.setup), ("plant", &scenario.plant), ("agent", &Some(scenario.agent.clone()))]
        {
            world.write_script(name, script.as_deref().unwrap_or("true"))?;
        }
        world.write_pids(0)?;
        for repository in ["out/other", "repo"] {
            world.shell(
                &world.path(repository),
                "git init -q -b main; echo 'a repository' >README.md; git add .; g commit -qm first",
            )?;
        }
        world.run_script("setup", &world.path("repo"))?;
        world.outside = world.files_outside()?;
        Ok(world)
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(super) fn write_script(&self, name: &str, script: &str) -> Result<()> {
        let at = |name: &str| self.path(name).display().to_string();
        let prelude = format!(
            r#"export HOME='{home}' OUT='{home}' REPO='{repo}' TREE='{tree}' MARKER='{marker}' GIT_CONFIG_NOSYSTEM=1 LC_ALL=C
. '{pids}'
EVIL="sh -c 'echo x >\"$OUT/escaped\"; cat'"
g() {{ git -c user.name=A -c user.email=a@localhost "$@"; }}
precious() {{ [ "$1" = -- ] && shift; printf '%s\n' "$MARKER" >"./$1" 2>/dev/null || printf '%s\n' "$MARKER" >"$1"; }}
"#,
            home = at("out"),
            repo = at("repo"),
            tree = at("worktrees/naive"),
            marker = self.marker,
            pids = at("bin/pids"),
        );
        fs::write(self.path("bin").join(format!("{name}.sh")), format!("{prelude}{script}\n"))?;
        Ok(())
    }

    fn write_pids(&self, gateway: u32) -> Result<()> {
        fs::write(self.path("bin/pids"), format!("VICTIM={} GATEWAY={gateway}\n", self.victim.id()))?;
        Ok(())
    }

    fn shell(&self, folder: &Path, script: &str) -> Result<()> {
        self.write_script("prepare", script)?;
        self.run_script("prepare", folder)
    }

    /// Runs a script to its end, without any sandbox.
    pub(super) fn run_script(&self, name: &str, folder: &Path) -> Result<()> {
        let ran = self.script(name, folder).output()?;
        if !ran.status.success() {
            bail!("{name}: {}", String::from_utf8_lossy(&ran.stderr));
        }
        Ok(())
    }

    pub(super) fn script(&self, name: &str, folder: &Path) -> Command {
        let mut script = command("sh");
        script.arg(self.path("bin").join(format!("{name}.sh"))).current_dir(folder).stdin(Stdio::null());
        script.env_clear().env("PATH", self.search_path()).env("TRUNKLINE_RUN", "naive");
        script
    }

    fn search_path(&self) -> String {
        format!("{}:/usr/local/bin:/usr/bin:/bin", self.path("bin").display())
    }

    /// Starts the gateway, and waits for the warm process or the spare worktree if the variant is warm.
    pub(super) fn start(&mut self, scenario: &AttackScenario, variant: AttackVariant) -> Result<()> {
        let mut model = json!({"driver": "claude", "repoPath": self.path("repo"),
            "permissions": scenario.permissions.as_deref().unwrap_or("edit")});
        if scenario.helpers {
            model["policy"] = json!({"commitHelpers": true});
        }
        let planter = json!({"driver": "claude", "repoPath": self.path("repo"), "permissions": "edit", "warm": 0});
        let mut judged = model;
        judged["worktree"] = json!(variant.mode == AttackMode::Worktree);
        judged["warm"] = json!(u8::from(variant.start == AttackStart::Warm));
        let models = json!({"judged": judged, "planter": planter});
        fs::write(self.path("config/models.json"), models.to_string())?;
        let log = fs::File::create(self.path("gateway.log"))?;
        let mut gateway = command(&self.path("bin/trunkline").to_string_lossy());
        gateway
            .args(["serve", "--port", "0", "--drain", "2s", "--grace", "500ms", "--git-timeout", GIT_TIMEOUT])
            .args(["--sandbox", variant.sandbox, "--config"])
            .arg(self.path("config"))
            .arg("--state")
            .arg(self.path("state"))
            .arg("--worktrees")
            .arg(self.path("worktrees"))
            .env_clear()
            .env("HOME", self.path("out"))
            .env("PATH", self.search_path())
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("TRUNKLINE_ATTACK_SECRET", &self.secret)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log);
        let mut gateway = gateway.spawn().context("cannot start the gateway")?;
        let mut line = String::new();
        BufReader::new(gateway.stdout.take().expect("stdout is piped")).read_line(&mut line)?;
        self.write_pids(gateway.id())?;
        self.gateway = Some(gateway);
        let address = line.trim().strip_prefix("listening on http://");
        self.address = address.with_context(|| format!("the gateway did not start: {}", self.log()))?.parse()?;
        if variant.start == AttackStart::Warm {
            self.wait_until_warm(variant.mode)?;
        }
        Ok(())
    }

    fn wait_until_warm(&self, mode: AttackMode) -> Result<()> {
        let ready = || match mode {
            AttackMode::Checkout => self.path("out/.claude/ready").exists(),
            AttackMode::Worktree => {
                fs::read_dir(self.path("state/worktrees")).into_iter().flatten().flatten().any(|entry| {
                    let text = fs::read_to_string(entry.path()).unwrap_or_default();
                    text.contains(r#""standing":"spare""#)
                })
            }
        };
        let deadline = Instant::now() + READY_TIMEOUT;
        while !ready() {
            if Instant::now() > deadline {
                bail!(
                    "no warm process or spare worktree was ready after {} s: {}",
                    READY_TIMEOUT.as_secs(),
                    self.log()
                );
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    pub(super) fn log(&self) -> String {
        fs::read_to_string(self.path("gateway.log")).unwrap_or_default()
    }

    pub(super) fn gateway(&mut self) -> Option<&mut Child> {
        self.gateway.as_mut()
    }

    /// Starts a process in place of the gateway that has the secret in its environment and protects nothing.
    pub(super) fn start_unprotected_stand_in(&mut self) -> Result<()> {
        let mut idle = command("sleep");
        let idle = idle.arg("600").env("TRUNKLINE_ATTACK_SECRET", &self.secret).stdin(Stdio::null()).spawn()?;
        self.write_pids(idle.id())?;
        self.gateway = Some(idle);
        Ok(())
    }

    pub(super) fn victim_is_alive(&mut self) -> bool {
        matches!(self.victim.try_wait(), Ok(None))
    }

    /// Paths outside the workspace that have changed since the start.
    pub(super) fn changed_outside(&self) -> Result<Vec<String>> {
        let now = self.files_outside()?;
        let all = now.keys().chain(self.outside.keys());
        let changed = all.filter(|path| now.get(*path) != self.outside.get(*path));
        let mut names: Vec<String> = changed.map(|path| path.display().to_string()).collect();
        names.sort();
        names.dedup();
        Ok(names)
    }

    /// Every file outside the workspace, with mode and content. Of the hidden files in the home folder, only `.bashrc`.
    fn files_outside(&self) -> Result<BTreeMap<PathBuf, String>> {
        let (top, mut seen) = (self.path("out"), BTreeMap::new());
        let mut left: Vec<PathBuf> = fs::read_dir(&top)?.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
        let hidden = |path: &Path| path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
        left.retain(|path| !hidden(path) || path.ends_with(".bashrc"));
        while let Some(path) = left.pop() {
            let found = path.symlink_metadata()?;
            if found.is_dir() {
                for entry in fs::read_dir(&path)? {
                    left.push(entry?.path());
                }
            }
            let text = if found.is_file() { fs::read(&path)? } else { Vec::new() };
            // Git refreshes the index whenever it reads the status of files.
            if !path.ends_with("index") {
                seen.insert(path, format!("{:o} {:?}", found.mode(), text));
            }
        }
        Ok(seen)
    }
}

impl AttackWorld {
    /// Keeps the folder when this value is dropped.
    pub(super) fn keep(&mut self) -> PathBuf {
        self.folder.disable_cleanup(true);
        self.folder.path().to_owned()
    }
}

impl Drop for AttackWorld {
    fn drop(&mut self) {
        for process in [Some(&mut self.victim), self.gateway.as_mut()].into_iter().flatten() {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

//! Environment of a round: a gateway with a state folder and a home of its own, and a fake agent that keeps sessions.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};
use serde::Deserialize;
use serde_json::json;
use tempfile::TempDir;

use crate::test::{build, command};
use crate::torture::gateway;

/// Files of the database that lists runs and sessions.
const INDEX_ENDINGS: [&str; 3] = [".db", ".db-wal", ".db-shm"];

/// The programs that all rounds use: copies, so that a build during the rounds does not replace them.
pub(super) struct Programs(TempDir);

impl Programs {
    pub(super) fn new() -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("torture-bin-").tempdir()?;
        let built = std::env::current_exe()?.parent().context("no target folder")?.to_owned();
        build("trunkline")?;
        build("xtask")?;
        for name in ["trunkline", "fake-agent"] {
            fs::copy(built.join(name), folder.path().join(name)).with_context(|| format!("{name} is not built"))?;
        }
        Ok(Self(folder))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }
}

/// A start of the fake agent, as it has recorded it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(super) struct AgentStart {
    pub(super) work: String,
    /// Value of `--resume`.
    pub(super) resume: Option<String>,
    /// The agent's own id of the conversation.
    pub(super) native: String,
    pub(super) answer: String,
    /// No other process answered the same work at this time.
    pub(super) alone: bool,
}

pub(super) struct AnswerWorld<'a> {
    programs: &'a Programs,
    folder: TempDir,
    gateway: Option<Child>,
    pub(super) address: SocketAddr,
}

impl<'a> AnswerWorld<'a> {
    /// Creates the world and starts its gateway.
    pub(super) fn new(programs: &'a Programs) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("torture-answer-").tempdir()?;
        for name in ["repo", "worktrees"] {
            fs::create_dir(folder.path().join(name))?;
        }
        let (address, gateway) = (([127, 0, 0, 1], 0).into(), None);
        let mut world = Self { programs, folder, gateway, address };
        // Every run of Claude Code may write to this folder, whatever its permissions are.
        fs::create_dir_all(world.agent_folder())?;
        let model = json!({
            "driver": "claude", "repoPath": world.path("repo"), "command": programs.path("fake-agent"),
            "env": {"FAKE_AGENT": "sessions", "FAKE_AGENT_FOLDER": world.agent_folder()},
        });
        fs::write(world.path("models.json"), json!({"fake": model}).to_string())?;
        world.start()?;
        Ok(world)
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn agent_folder(&self) -> PathBuf {
        self.path("home/.claude")
    }

    /// Starts the gateway. Without warm processes, each turn is a start of the fake agent.
    pub(super) fn start(&mut self) -> Result<()> {
        let program = command(&self.programs.path("trunkline").to_string_lossy());
        let (gateway, address) = gateway::start(program, self.folder.path(), &["--warm", "0"])?;
        (self.gateway, self.address) = (Some(gateway), address);
        Ok(())
    }

    /// Sends SIGKILL to the gateway and returns the time of the signal.
    pub(super) fn kill(&self) -> Instant {
        let pid = self.gateway.as_ref().and_then(|gateway| Pid::from_raw(gateway.id() as i32));
        let now = Instant::now();
        if let Some(pid) = pid {
            // The process was not waited for, so its id is valid.
            let _ = kill_process(pid, Signal::KILL);
        }
        now
    }

    /// Waits until the killed gateway is gone.
    pub(super) fn wait(&mut self) -> Result<()> {
        if let Some(mut gateway) = self.gateway.take() {
            gateway.wait()?;
        }
        Ok(())
    }

    /// Copies the state folder to `state-at-kill`, because the next start changes it.
    pub(super) fn copy_state(&self) -> Result<()> {
        copy_folder(&self.path("state"), &self.path("state-at-kill")).context("cannot copy the state folder")
    }

    /// Deletes the database. Fails if there is none, because the round would then check nothing.
    pub(super) fn delete_index(&self) -> Result<()> {
        let files = fs::read_dir(self.path("state"))?.flatten().map(|file| file.path());
        let index: Vec<PathBuf> = files.filter(|path| is_index(path)).collect();
        ensure!(!index.is_empty(), "there is no database in {} to delete", self.path("state").display());
        index.iter().try_for_each(fs::remove_file)?;
        Ok(())
    }

    /// The starts of the fake agent for a work, in order.
    pub(super) fn starts(&self, work: &str) -> Vec<AgentStart> {
        let lines = fs::read_to_string(self.agent_folder().join("starts.jsonl")).unwrap_or_default();
        parse_starts(&lines).into_iter().filter(|start| start.work == work).collect()
    }

    /// Keeps the folder after the round, and returns its path. `report` says what happened.
    pub(super) fn keep(mut self, report: &str) -> PathBuf {
        // Without the report, the state is still there.
        let _ = fs::write(self.path("report.txt"), report);
        self.folder.disable_cleanup(true);
        self.folder.path().to_owned()
    }
}

impl Drop for AnswerWorld<'_> {
    fn drop(&mut self) {
        self.kill();
        // The process has ended, or ends at once.
        let _ = self.wait();
    }
}

fn is_index(path: &Path) -> bool {
    path.file_name()
        .and_then(OsStr::to_str)
        .is_some_and(|name| INDEX_ENDINGS.iter().any(|ending| name.ends_with(ending)))
}

/// Parses the lines of `starts.jsonl`. The last one may be cut off.
fn parse_starts(lines: &str) -> Vec<AgentStart> {
    lines.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

fn copy_folder(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_folder(&entry.path(), &target)?;
        } else if entry.file_type()?.is_file() {
            fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn starts_are_parsed_except_a_line_that_is_cut_off() {
        let line =
            json!({"work": "w", "resume": null, "native": "n", "answer": "a", "alone": true, "prompt": "p", "pid": 1});
        let starts = parse_starts(&format!("{line}\n{line}\n{{\"work\": \"w"));
        let start = AgentStart { work: "w".into(), resume: None, native: "n".into(), answer: "a".into(), alone: true };
        assert_eq!(starts, [start.clone(), start]);
    }

    #[test]
    fn only_the_files_of_the_database_are_the_index() {
        let names =
            ["trunkline.db", "trunkline.db-wal", "trunkline.db-shm", "trunkline.db-lock", "totals.jsonl", "journal"];
        assert_eq!(names.map(|name| is_index(Path::new(name))), [true, true, true, false, false, false]);
    }

    #[test]
    fn folder_is_copied_with_its_subfolders() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::create_dir_all(path("state/runs/1")).unwrap();
        fs::write(path("state/runs/1/log"), "text").unwrap();
        copy_folder(&path("state"), &path("copy")).unwrap();
        assert_eq!(fs::read_to_string(path("copy/runs/1/log")).unwrap(), "text");
    }
}

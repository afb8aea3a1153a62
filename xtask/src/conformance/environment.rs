//! Home folder and repository of a CLI under test, and the gateways and mock LLMs that are started with them.

use std::ffi::OsString;
use std::fs;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::test::command;

/// Instruction in the repository's `AGENTS.md`.
pub(crate) const INSTRUCTIONS: &str = "In this repository every lighthouse is painted ochre.";

pub(crate) const README: &str = "# A repository\n\nThe colour of the lighthouse is grey.\n";

pub(crate) struct CliEnvironment {
    pub(crate) repo: PathBuf,
    home: PathBuf,
    folder: PathBuf,
    /// Value of `PATH`.
    path: String,
}

impl CliEnvironment {
    /// Creates the folders, with these files in the home and `bin` at the front of `PATH`.
    pub(crate) fn new(files: &[(&str, &str)], bin: &Path, folder: &Path) -> Result<Self> {
        let (home, repo) = (folder.join("home"), folder.join("repo"));
        fs::create_dir_all(&repo)?;
        create_home(&home, files)?;
        create_repository(&repo)?;
        let path = format!("{}:/usr/local/bin:/usr/bin:/bin", bin.display());
        Ok(Self { repo, home, folder: folder.to_owned(), path })
    }

    /// Environment variables for a CLI that is started without a gateway. It has a home of its own: some CLIs write to it,
    /// and a change in the gateway's home makes its warm processes stale.
    pub(crate) fn variables_by_hand(&self, files: &[(&str, &str)]) -> Result<Vec<(&'static str, OsString)>> {
        let home = self.folder.join("home-by-hand");
        create_home(&home, files)?;
        Ok(variables(&home, &self.path))
    }

    /// Creates another repository with the same files.
    pub(crate) fn another_repo(&self, name: &str) -> Result<PathBuf> {
        let repo = self.folder.join("repos").join(name).join("repo");
        fs::create_dir_all(&repo)?;
        create_repository(&repo)?;
        Ok(repo)
    }

    /// Starts a gateway with these models. It accepts these API keys, or every client if there are none. `name` is the
    /// subfolder for its files.
    pub(crate) fn gateway(
        &self,
        binary: &Path,
        name: &str,
        models: &Value,
        keys: &[&str],
        more: &[&str],
    ) -> Result<TrunklineChild> {
        let own = self.folder.join(name);
        let folders = ["config", "state", "worktrees"].map(|folder| own.join(folder));
        fs::create_dir_all(&folders[0])?;
        fs::write(folders[0].join("models.json"), models.to_string())?;
        // No retries and no circuit breaker: each request shows the CLI's own behaviour, once.
        fs::write(folders[0].join("router.yaml"), "routing: {max_retries: 0, breaker: {failures: 1000}}\n")?;
        let [config, state, worktrees] = folders.each_ref().map(|folder| folder.to_str().unwrap_or_default());
        let mut args = vec!["serve", "-vv", "--config", config, "--state", state, "--worktrees", worktrees];
        args.extend(["--max-runs", "16"]);
        args.extend(more);
        let mut variables = self.variables();
        if !keys.is_empty() {
            variables.push(("TRUNKLINE_API_KEYS", keys.join(",").into()));
        }
        TrunklineChild::start(binary, &args, &variables, own.join("gateway.log"))
    }

    /// Environment variables of the gateway.
    pub(crate) fn variables(&self) -> Vec<(&'static str, OsString)> {
        variables(&self.home, &self.path)
    }
}

/// Creates a home folder with these files.
fn create_home(home: &Path, files: &[(&str, &str)]) -> Result<()> {
    fs::create_dir_all(home.join("tmp"))?;
    for (name, text) in files {
        let file = home.join(name);
        fs::create_dir_all(file.parent().expect("the file is in the home folder"))?;
        fs::write(file, text)?;
    }
    Ok(())
}

fn variables(home: &Path, path: &str) -> Vec<(&'static str, OsString)> {
    vec![
        ("HOME", home.into()),
        ("PATH", path.into()),
        ("LANG", "C.UTF-8".into()),
        ("TMPDIR", home.join("tmp").into()),
        // TLS requests to the internet fail here: no CLI needs it.
        ("HTTPS_PROXY", "http://127.0.0.1:9".into()),
        ("NO_PROXY", "127.0.0.1,localhost".into()),
    ]
}

/// A trunkline process that listens: a gateway or a mock LLM. Dropping this value kills it.
pub(crate) struct TrunklineChild {
    process: Child,
    pub(crate) address: SocketAddr,
    log: PathBuf,
}

impl TrunklineChild {
    /// Starts trunkline and waits until it prints its address.
    fn start(binary: &Path, args: &[&str], variables: &[(&'static str, OsString)], log: PathBuf) -> Result<Self> {
        let mut process = command(binary.to_str().context("the target folder's name is not UTF-8")?)
            .args(args)
            .args(["--port", "0"])
            .env_clear()
            .envs(variables.iter().cloned())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(fs::File::create(&log)?)
            .spawn()
            .context("cannot start trunkline")?;
        let mut line = String::new();
        BufReader::new(process.stdout.take().expect("stdout is piped")).read_line(&mut line)?;
        match line.trim().strip_prefix("listening on http://") {
            Some(address) => Ok(Self { address: address.parse()?, process, log }),
            None => bail!("trunkline did not print its address: {line:?}\n{}", fs::read_to_string(&log)?),
        }
    }

    /// Starts the mock LLM with this script, or with its built-in one.
    pub(crate) fn mock(binary: &Path, folder: &Path, script: Option<&Path>) -> Result<Self> {
        let mut args = vec!["mock-llm"];
        if let Some(script) = script {
            args.extend(["--scenarios", script.to_str().context("the repository's name is not UTF-8")?]);
        }
        Self::start(binary, &args, &variables(folder, "/usr/bin:/bin"), folder.join("mock.log"))
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }
}

impl Drop for TrunklineChild {
    fn drop(&mut self) {
        // An error means that the process has already ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn create_repository(folder: &Path) -> Result<()> {
    fs::write(folder.join("README.md"), README)?;
    fs::write(folder.join("AGENTS.md"), format!("# Instructions\n\n{INSTRUCTIONS}\n"))?;
    git(folder, &["init", "-q", "-b", "main"])?;
    git(folder, &["add", "."])?;
    git(folder, &["-c", "user.name=Test", "-c", "user.email=test@localhost", "commit", "-qm", "start"])?;
    Ok(())
}

/// Runs git in `folder` and returns its output.
pub(crate) fn git(folder: &Path, args: &[&str]) -> Result<String> {
    let output = command("git").arg("-C").arg(folder).args(args).output().context("cannot start git")?;
    if !output.status.success() {
        bail!("git {}: {}", args.join(" "), String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8(output.stdout)?)
}

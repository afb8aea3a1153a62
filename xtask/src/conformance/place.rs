//! Where a CLI lives while it is tried: a home, a repository, and the gateways that know both.

use std::ffi::OsString;
use std::fs;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::test::command;

/// What the repository tells every agent.
pub(crate) const INSTRUCTIONS: &str = "In this repository every lighthouse is painted ochre.";

pub(crate) const README: &str = "# A repository\n\nThe colour of the lighthouse is grey.\n";

pub(crate) struct Place {
    pub(crate) repo: PathBuf,
    home: PathBuf,
    folder: PathBuf,
    /// Where programs are found.
    path: String,
}

impl Place {
    /// Makes one, with these files in its home and the programs of `bin` before all others.
    pub(crate) fn new(files: &[(&str, &str)], bin: &Path, folder: &Path) -> Result<Self> {
        let (home, repo) = (folder.join("home"), folder.join("repo"));
        fs::create_dir_all(&repo)?;
        furnish(&home, files)?;
        repository(&repo)?;
        let path = format!("{}:/usr/local/bin:/usr/bin:/bin", bin.display());
        Ok(Self { repo, home, folder: folder.to_owned(), path })
    }

    /// The same for a CLI that is started without a gateway, with a home like the first: by hand, some write to it what makes
    /// a process that was started before stale.
    pub(crate) fn environment_by_hand(&self, files: &[(&str, &str)]) -> Result<Vec<(&'static str, OsString)>> {
        let home = self.folder.join("home-by-hand");
        furnish(&home, files)?;
        Ok(environment(&home, &self.path))
    }

    /// Another repository like the first, in a folder of its own.
    pub(crate) fn another_repo(&self, name: &str) -> Result<PathBuf> {
        let repo = self.folder.join("repos").join(name).join("repo");
        fs::create_dir_all(&repo)?;
        repository(&repo)?;
        Ok(repo)
    }

    /// A gateway with these models, for who has one of these keys, or for all. The name tells it from others in the same place.
    pub(crate) fn gateway(
        &self,
        binary: &Path,
        name: &str,
        models: &Value,
        keys: &[&str],
        more: &[&str],
    ) -> Result<Listening> {
        let own = self.folder.join(name);
        let places = ["config", "state", "worktrees"].map(|place| own.join(place));
        fs::create_dir_all(&places[0])?;
        fs::write(places[0].join("models.json"), models.to_string())?;
        // What is seen is to be the CLI's own doing, once.
        fs::write(places[0].join("router.yaml"), "routing: {max_retries: 0, breaker: {failures: 1000}}\n")?;
        let [config, state, worktrees] = places.each_ref().map(|place| place.to_str().unwrap_or_default());
        let mut args = vec!["serve", "-vv", "--config", config, "--state", state, "--worktrees", worktrees];
        args.extend(["--max-runs", "16"]);
        args.extend(more);
        let mut environment = self.environment();
        if !keys.is_empty() {
            environment.push(("TRUNKLINE_API_KEYS", keys.join(",").into()));
        }
        Listening::start(binary, &args, &environment, own.join("gateway.log"))
    }

    /// What a gateway is started with, and whoever is compared with it.
    pub(crate) fn environment(&self) -> Vec<(&'static str, OsString)> {
        environment(&self.home, &self.path)
    }
}

/// Makes a home with these files.
fn furnish(home: &Path, files: &[(&str, &str)]) -> Result<()> {
    fs::create_dir_all(home.join("tmp"))?;
    for (name, text) in files {
        let file = home.join(name);
        fs::create_dir_all(file.parent().expect("it is inside the home"))?;
        fs::write(file, text)?;
    }
    Ok(())
}

fn environment(home: &Path, path: &str) -> Vec<(&'static str, OsString)> {
    vec![
        ("HOME", home.into()),
        ("PATH", path.into()),
        ("LANG", "C.UTF-8".into()),
        ("TMPDIR", home.join("tmp").into()),
        // Nobody has business outside: what is asked of the network by TLS ends here.
        ("HTTPS_PROXY", "http://127.0.0.1:9".into()),
        ("NO_PROXY", "127.0.0.1,localhost".into()),
    ]
}

/// A `trunkline` that listens. It ends with this value.
pub(crate) struct Listening {
    process: Child,
    pub(crate) address: SocketAddr,
    log: PathBuf,
}

impl Listening {
    /// Starts `trunkline` and waits until it says where it listens.
    fn start(binary: &Path, args: &[&str], environment: &[(&'static str, OsString)], log: PathBuf) -> Result<Self> {
        let mut process = command(binary.to_str().context("the target folder's name is not UTF-8")?)
            .args(args)
            .args(["--port", "0"])
            .env_clear()
            .envs(environment.iter().cloned())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(fs::File::create(&log)?)
            .spawn()
            .context("cannot start trunkline")?;
        let mut said = String::new();
        BufReader::new(process.stdout.take().expect("it is piped")).read_line(&mut said)?;
        match said.trim().strip_prefix("listening on http://") {
            Some(address) => Ok(Self { address: address.parse()?, process, log }),
            None => bail!("trunkline does not listen: {said:?}\n{}", fs::read_to_string(&log)?),
        }
    }

    /// The mock LLM with this script, or with its own.
    pub(crate) fn mock(binary: &Path, folder: &Path, script: Option<&Path>) -> Result<Self> {
        let mut args = vec!["mock-llm"];
        if let Some(script) = script {
            args.extend(["--scenarios", script.to_str().context("the repository's name is not UTF-8")?]);
        }
        Self::start(binary, &args, &environment(folder, "/usr/bin:/bin"), folder.join("mock.log"))
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        let _ended_already = self.process.kill();
        let _reaped = self.process.wait();
    }
}

fn repository(folder: &Path) -> Result<()> {
    fs::write(folder.join("README.md"), README)?;
    fs::write(folder.join("AGENTS.md"), format!("# Instructions\n\n{INSTRUCTIONS}\n"))?;
    git(folder, &["init", "-q", "-b", "main"])?;
    git(folder, &["add", "."])?;
    git(folder, &["-c", "user.name=Test", "-c", "user.email=test@localhost", "commit", "-qm", "start"])?;
    Ok(())
}

/// Runs git in `folder`; what it printed.
pub(crate) fn git(folder: &Path, args: &[&str]) -> Result<String> {
    let output = command("git").arg("-C").arg(folder).args(args).output().context("cannot start git")?;
    if !output.status.success() {
        bail!("git {}: {}", args.join(" "), String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8(output.stdout)?)
}

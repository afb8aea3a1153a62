//! The world of one CLI: a gateway with a home, a repository and a log of its own, and a tap for each case between the CLI
//! and the mock LLM.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::{Map, Value, json};

use super::cases::Case;
use super::clis::Cli;
use super::http::Pending;
use super::install::Installed;
use super::look::until;
use super::scene::Scene;
use super::tap::Tap;
use crate::test::command;

/// What the repository tells every agent.
pub(crate) const INSTRUCTIONS: &str = "In this repository every lighthouse is painted ochre.";

pub(crate) const README: &str = "# A repository\n\nThe colour of the lighthouse is grey.\n";

/// A `trunkline` that listens. It ends with this value.
pub(crate) struct Listening {
    process: Child,
    pub(crate) address: SocketAddr,
    log: PathBuf,
}

impl Listening {
    /// Starts `trunkline` and waits until it says where it listens.
    fn start(binary: &Path, args: &[&str], home: &Path, path: &str, log: PathBuf) -> Result<Self> {
        let mut process = command(binary.to_str().context("the target folder's name is not UTF-8")?)
            .args(args)
            .args(["--port", "0"])
            .env_clear()
            .envs([("HOME", home.as_os_str()), ("PATH", path.as_ref()), ("LANG", "C.UTF-8".as_ref())])
            .env("TMPDIR", home.join("tmp"))
            // Nobody has business outside: what is asked of the network by TLS ends here.
            .env("HTTPS_PROXY", "http://127.0.0.1:9")
            .env("NO_PROXY", "127.0.0.1,localhost")
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
        Self::start(binary, &args, folder, "/usr/bin:/bin", folder.join("mock.log"))
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

/// How the gateway runs a CLI.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Way {
    /// A process for each turn.
    Cold,
    /// Processes that are up before the turn.
    Warm,
}

/// How long all processes of a CLI may take to come up, one after the other on a loaded machine.
const BOOTS: Duration = Duration::from_secs(20 * 60);

impl Way {
    pub(crate) fn shown(self, cli: &str) -> String {
        match self {
            Self::Cold => cli.to_owned(),
            Self::Warm => format!("{cli} warm"),
        }
    }
}

pub(crate) struct World {
    pub(crate) cli: &'static Cli,
    pub(crate) way: Way,
    /// How many cases have a process ready for them.
    ready: u64,
    pub(crate) gateway: Listening,
    pub(crate) repo: PathBuf,
    taps: Vec<(&'static str, Tap)>,
}

impl World {
    pub(crate) fn start(
        cli: &'static Cli,
        way: Way,
        cases: &[&'static Case],
        installed: &Installed,
        binary: &Path,
        mock: SocketAddr,
        folder: &Path,
    ) -> Result<Self> {
        let (home, repo, config) = (folder.join("home"), folder.join("repo"), folder.join("config"));
        for wanted in [&home.join("tmp"), &repo, &config] {
            fs::create_dir_all(wanted)?;
        }
        for (name, text) in cli.home {
            let file = home.join(name);
            fs::create_dir_all(file.parent().expect("it is inside the home"))?;
            fs::write(file, text)?;
        }
        repository(&repo)?;
        let mut models = Map::new();
        let mut taps = Vec::new();
        for case in cases {
            let tap = Tap::open(mock)?;
            let upstream = if case.refused { nobody()? } else { tap.address };
            let mut model = cli.model(upstream, &marker(cli, case), &(case.model)(cli));
            model["repoPath"] = json!(repo);
            if way == Way::Warm && !in_worktree(cli, case) {
                model["warm"] = json!(1);
            }
            models.insert(case.name.to_owned(), model);
            taps.push((case.name, tap));
        }
        fs::write(config.join("models.json"), Value::Object(models).to_string())?;
        // What is seen is to be the CLI's own doing, once.
        fs::write(config.join("router.yaml"), "routing: {max_retries: 0, breaker: {failures: 1000}}\n")?;
        let path = format!("{}:/usr/local/bin:/usr/bin:/bin", installed.bin.display());
        let places = [config, folder.join("state"), folder.join("worktrees")];
        let [config, state, worktrees] = places.each_ref().map(|place| place.to_str().unwrap_or_default());
        let mut args = vec!["serve", "-vv", "--config", config, "--state", state, "--worktrees", worktrees];
        args.extend(["--max-runs", "16"]);
        args.extend(match way {
            Way::Cold => ["--warm", "0", "--warm-memory", "0"],
            Way::Warm => ["--warm", "64", "--warm-memory", "65536"],
        });
        let gateway = Listening::start(binary, &args, &home, &path, folder.join("gateway.log"))?;
        let used = |case: &&&'static Case| !in_worktree(cli, case) && cli.why_not(way, case.name).is_none();
        let ready = cases.iter().filter(|case| way == Way::Warm && used(case)).count() as u64;
        let world = Self { cli, way, ready, gateway, repo, taps };
        until(BOOTS, "the lines are up", || {
            let warm = world.warm().ok()?;
            let come = [&warm["boots"], &warm["failed_boots"]].iter().filter_map(|count| count.as_u64()).sum::<u64>();
            (come >= ready).then_some(())
        })?;
        Ok(world)
    }

    /// Why a case cannot be passed in this world, if it cannot.
    pub(crate) fn why_not(&self, case: &Case) -> Option<&'static str> {
        let apart = self.way == Way::Warm && in_worktree(self.cli, case);
        let apart = apart.then_some("A worktree is made for the turn, and its process starts there.");
        apart.or_else(|| self.cli.why_not(self.way, case.name))
    }

    /// What is wrong if cases passed without the processes that were ready for them.
    pub(crate) fn unused_lines(&self) -> Result<Option<String>> {
        let warm = self.warm()?;
        let used = warm["hits"].as_u64().unwrap_or(0);
        Ok((used < self.ready).then(|| format!("of {} processes that were ready {used} were used: {warm}", self.ready)))
    }

    fn warm(&self) -> Result<Value> {
        let health = Pending::get(self.gateway.address, "/health/providers")?.reply()?.json();
        let providers = health["providers"].as_array().context("the gateway does not list its providers")?;
        let ours = providers.iter().find(|provider| provider["name"] == self.cli.name);
        Ok(ours.map(|provider| provider["warm"].clone()).unwrap_or_default())
    }

    pub(crate) fn scene(&self, case: &'static Case) -> Scene<'_> {
        Scene::new(self, case, self.tap(case).clone(), marker(self.cli, case))
    }

    pub(crate) fn tap(&self, case: &Case) -> &Tap {
        &self.taps.iter().find(|(name, _)| *name == case.name).expect("each case has one").1
    }

    /// Kinds of events that the decoder did not know, where the gateway counts them.
    pub(crate) fn unknown_events(&self) -> Result<Vec<String>> {
        let health = Pending::get(self.gateway.address, "/health/providers")?.reply()?.json();
        let providers = health["providers"].as_array().context("the gateway does not list its providers")?;
        Ok(providers.iter().filter_map(unknown_of).collect())
    }
}

/// What a provider's entry says of unknown events, if there were any: a number, a list, or counts by name.
fn unknown_of(provider: &Value) -> Option<String> {
    let events = &provider["unknown_events"];
    let some = match events {
        Value::Null => false,
        Value::Number(count) => count.as_u64() != Some(0),
        Value::Array(list) => !list.is_empty(),
        Value::Object(kinds) => !kinds.is_empty(),
        Value::Bool(_) | Value::String(_) => true,
    };
    some.then(|| events.to_string())
}

fn in_worktree(cli: &Cli, case: &Case) -> bool {
    (case.model)(cli)["worktree"] == true
}

fn marker(cli: &Cli, case: &Case) -> String {
    format!("{}-{}-{}", std::process::id(), cli.name, case.name)
}

/// An address where nobody listens.
fn nobody() -> Result<SocketAddr> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_events_are_seen_however_they_are_counted() {
        for (provider, seen) in [
            (json!({"name": "codex"}), None),
            (json!({"unknown_events": 0}), None),
            (json!({"unknown_events": {}}), None),
            (json!({"unknown_events": []}), None),
            (json!({"unknown_events": 2}), Some("2")),
            (json!({"unknown_events": {"item.new": 1}}), Some(r#"{"item.new":1}"#)),
            (json!({"unknown_events": ["item.new"]}), Some(r#"["item.new"]"#)),
        ] {
            assert_eq!(unknown_of(&provider).as_deref(), seen, "{provider}");
        }
    }
}

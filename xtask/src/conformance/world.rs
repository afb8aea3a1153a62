//! The world of one CLI: a gateway with a home, a repository and a log of its own, and a tap for each case between the CLI
//! and the mock LLM.

use std::ffi::OsString;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::{Map, Value, json};

use super::cases::Case;
use super::clis::{Cli, SERVER};
use super::http::Pending;
use super::install::Installed;
use super::look::until;
use super::place::{Listening, Place};
use super::scene::Scene;
use super::tap::Tap;

/// How the gateway runs a CLI.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Way {
    /// A process for each turn.
    Cold,
    /// Processes that are up before the turn.
    Warm,
}

/// Those who may ask. Most cases have one client.
pub(crate) const KEYS: [&str; 2] = ["one-of-the-clients", "another-of-the-clients"];

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
    /// The repository that the cases share, and those that cases have of their own.
    repo: PathBuf,
    own_repos: Vec<(&'static str, PathBuf)>,
    /// The environment of the CLI where no gateway starts it.
    pub(crate) by_hand: Vec<(&'static str, OsString)>,
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
        let files = [cli.home, cli.user, SERVER].concat();
        let place = Place::new(&files, &installed.bin, folder)?;
        let mut own_repos = Vec::new();
        let mut models = Map::new();
        let mut taps = Vec::new();
        for case in cases {
            let tap = Tap::open(mock)?;
            let upstream = if case.refused { nobody()? } else { tap.address };
            let mut model = cli.model(upstream, &marker(cli, case), &(case.model)(cli));
            model["repoPath"] = json!(place.repo);
            if case.own_repo {
                let repo = place.another_repo(case.name)?;
                model["repoPath"] = json!(repo);
                own_repos.push((case.name, repo));
            }
            if way == Way::Warm && !in_worktree(cli, case) {
                model["warm"] = json!(case.lines);
            }
            models.insert(case.name.to_owned(), model);
            taps.push((case.name, tap));
        }
        let args = match way {
            Way::Cold => ["--warm", "0", "--warm-memory", "0"],
            Way::Warm => ["--warm", "64", "--warm-memory", "65536"],
        };
        let gateway = place.gateway(binary, "", &Value::Object(models), &KEYS, &args)?;
        let warm = cases.iter().filter(|case| way == Way::Warm && !in_worktree(cli, case));
        // All of them are waited for, also those of cases that are not run: else one of these counts for one that is.
        let started: u64 = warm.clone().map(|case| case.lines).sum();
        let ready = warm.filter(|case| cli.why_not(way, case.name).is_none()).map(|case| case.lines).sum();
        let by_hand = place.environment_by_hand(&files)?;
        let world = Self { cli, way, ready, gateway, repo: place.repo, own_repos, by_hand, taps };
        until(BOOTS, "the lines are up", || {
            let warm = world.warm().ok()?;
            let come = [&warm["boots"], &warm["failed_boots"]].iter().filter_map(|count| count.as_u64()).sum::<u64>();
            (come >= started).then_some(())
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
        let health =
            Pending::get(self.gateway.address, "/health/providers", &[("x-api-key", KEYS[0])])?.reply()?.json();
        let providers = health["providers"].as_array().context("the gateway does not list its providers")?;
        let ours = providers.iter().find(|provider| provider["name"] == self.cli.name);
        Ok(ours.map(|provider| provider["warm"].clone()).unwrap_or_default())
    }

    pub(crate) fn scene(&self, case: &'static Case) -> Scene<'_> {
        Scene::new(self, case, self.tap(case).clone(), marker(self.cli, case))
    }

    pub(crate) fn repo(&self, case: &Case) -> &Path {
        let own = self.own_repos.iter().find(|(name, _)| *name == case.name);
        own.map_or(&self.repo, |(_, repo)| repo)
    }

    pub(crate) fn tap(&self, case: &Case) -> &Tap {
        &self.taps.iter().find(|(name, _)| *name == case.name).expect("each case has one").1
    }

    /// Kinds of events that the decoder did not know, where the gateway counts them.
    pub(crate) fn unknown_events(&self) -> Result<Vec<String>> {
        let health =
            Pending::get(self.gateway.address, "/health/providers", &[("x-api-key", KEYS[0])])?.reply()?.json();
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

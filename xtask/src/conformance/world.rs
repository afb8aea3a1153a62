//! Environment of the cases of one CLI: a gateway with its own home, repository and log, and for each case a tap between
//! the CLI and the mock LLM.

use std::ffi::OsString;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::{Map, Value, json};

use super::cases::ConformanceCase;
use super::clis::{CliUnderTest, SERVER};
use super::context::CaseContext;
use super::environment::{CliEnvironment, TrunklineChild};
use super::http::SentHttpRequest;
use super::install::InstalledClis;
use super::mcp_test_server::McpTestServer;
use super::observe::wait_until;
use super::tap::Tap;

/// Start of the CLI processes by the gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum ConformanceMode {
    /// A new process for each turn
    Cold,
    /// Processes that are started before the turn
    Warm,
}

/// API keys of two clients. Most cases use the first only.
pub(crate) const KEYS: [&str; 2] = ["one-of-the-clients", "another-of-the-clients"];

/// Limit for the start of all warm processes of a CLI, one after the other on a loaded machine.
const BOOT_TIMEOUT: Duration = Duration::from_secs(20 * 60);

impl ConformanceMode {
    /// Title of a CLI in this mode.
    pub(crate) fn title(self, cli: &str) -> String {
        match self {
            Self::Cold => cli.to_owned(),
            Self::Warm => format!("{cli} warm"),
        }
    }

    /// Arguments of the gateway.
    fn args(self) -> &'static [&'static str] {
        match self {
            Self::Cold => &["--warm", "0", "--warm-memory", "0"],
            Self::Warm => &["--warm", "64", "--warm-memory", "65536"],
        }
    }
}

pub(crate) struct ConformanceWorld {
    pub(crate) cli: &'static CliUnderTest,
    pub(crate) mode: ConformanceMode,
    /// Number of warm processes that the cases must use.
    ready: u64,
    pub(crate) gateway: TrunklineChild,
    /// MCP server that some cases give to the CLI.
    pub(crate) mcp_server: McpTestServer,
    environment: CliEnvironment,
    /// The trunkline program.
    binary: PathBuf,
    /// Repositories of the cases that have their own, by case name.
    own_repos: Vec<(&'static str, PathBuf)>,
    /// Environment variables of the CLI when it is started by hand.
    pub(crate) by_hand: Vec<(&'static str, OsString)>,
    taps: Vec<(&'static str, Tap)>,
}

impl ConformanceWorld {
    pub(crate) fn start(
        cli: &'static CliUnderTest,
        mode: ConformanceMode,
        cases: &[&'static ConformanceCase],
        installed: &InstalledClis,
        binary: &Path,
        mock: SocketAddr,
        folder: &Path,
    ) -> Result<Self> {
        let files = [cli.home, cli.user, SERVER].concat();
        let environment = CliEnvironment::new(&files, &installed.bin, folder)?;
        let mcp_server = McpTestServer::start(folder)?;
        let mut own_repos = Vec::new();
        let mut models = Map::new();
        let mut taps = Vec::new();
        for case in cases {
            let tap = Tap::open(mock)?;
            let upstream = if case.refused { unused_address()? } else { tap.address };
            let mut model = cli.model(upstream, &marker(cli, case), &mcp_server.fill(&(case.model)(cli))?);
            model["repoPath"] = json!(environment.repo);
            if case.own_repo {
                let repo = environment.another_repo(case.name)?;
                model["repoPath"] = json!(repo);
                own_repos.push((case.name, repo));
            }
            if mode == ConformanceMode::Warm && !in_worktree(cli, case) && case.warm_processes > 0 {
                model["warm"] = json!(case.warm_processes);
            }
            models.insert(case.name.to_owned(), model);
            taps.push((case.name, tap));
        }
        let gateway = environment.gateway(binary, "", &Value::Object(models), &KEYS, mode.args())?;
        let warm = cases.iter().filter(|case| mode == ConformanceMode::Warm && !in_worktree(cli, case));
        // Wait for the processes of all cases: the counters do not tell which cases they belong to.
        let started: u64 = warm.clone().map(|case| case.warm_processes).sum();
        let ready = warm.filter(|case| cli.why_not(mode, case.name).is_none()).map(|case| case.warm_processes).sum();
        let by_hand = environment.variables_by_hand(&files)?;
        let binary = binary.to_owned();
        let world = Self { cli, mode, ready, gateway, mcp_server, environment, binary, own_repos, by_hand, taps };
        wait_until(BOOT_TIMEOUT, "all warm processes have started", || {
            let warm = world.warm_counts().ok()?;
            let done = [&warm["boots"], &warm["failed_boots"]].iter().filter_map(|count| count.as_u64()).sum::<u64>();
            (done >= started).then_some(())
        })?;
        Ok(world)
    }

    /// Starts a gateway with the model of one case only.
    pub(crate) fn own_gateway(&self, case: &ConformanceCase, tap: &Tap, marker: &str) -> Result<TrunklineChild> {
        let mut model = self.cli.model(tap.address, marker, &(case.model)(self.cli));
        model["repoPath"] = json!(self.repo(case));
        let models = json!({case.name: model});
        self.environment.gateway(&self.binary, &format!("own-{}", case.name), &models, &KEYS, self.mode.args())
    }

    /// Reason why a case does not apply to this CLI in this mode.
    pub(crate) fn why_not(&self, case: &ConformanceCase) -> Option<&'static str> {
        let in_worktree = self.mode == ConformanceMode::Warm && in_worktree(self.cli, case);
        let reason = in_worktree.then_some("The worktree is created for the turn, and the process starts in it.");
        reason.or_else(|| self.cli.why_not(self.mode, case.name))
    }

    /// Message if the cases did not use all the warm processes that were ready for them.
    pub(crate) fn unused_warm_processes(&self) -> Result<Option<String>> {
        let warm = self.warm_counts()?;
        let used = warm["hits"].as_u64().unwrap_or(0);
        Ok((used < self.ready).then(|| format!("only {used} of {} warm processes were used: {warm}", self.ready)))
    }

    /// The CLI's `warm` object in `/health/providers`.
    fn warm_counts(&self) -> Result<Value> {
        let health =
            SentHttpRequest::get(self.gateway.address, "/health/providers", &[("x-api-key", KEYS[0])])?.reply()?.json();
        let providers = health["providers"].as_array().context("the gateway does not list its providers")?;
        let ours = providers.iter().find(|provider| provider["name"] == self.cli.name);
        Ok(ours.map(|provider| provider["warm"].clone()).unwrap_or_default())
    }

    pub(crate) fn context(&self, case: &'static ConformanceCase) -> CaseContext<'_> {
        CaseContext::new(self, case, self.tap(case).clone(), marker(self.cli, case))
    }

    pub(crate) fn repo(&self, case: &ConformanceCase) -> &Path {
        let own = self.own_repos.iter().find(|(name, _)| *name == case.name);
        own.map_or(&self.environment.repo, |(_, repo)| repo)
    }

    pub(crate) fn tap(&self, case: &ConformanceCase) -> &Tap {
        &self.taps.iter().find(|(name, _)| *name == case.name).expect("every case has a tap").1
    }

    /// Events that the decoders did not know, as the gateway reports them for each provider.
    pub(crate) fn unknown_events(&self) -> Result<Vec<String>> {
        let health =
            SentHttpRequest::get(self.gateway.address, "/health/providers", &[("x-api-key", KEYS[0])])?.reply()?.json();
        let providers = health["providers"].as_array().context("the gateway does not list its providers")?;
        Ok(providers.iter().filter_map(unknown_of).collect())
    }
}

/// Unknown events in a provider's entry, if there are any: a number, a list, or counts by name.
fn unknown_of(provider: &Value) -> Option<String> {
    let events = &provider["unknown_events"];
    let has_events = match events {
        Value::Null => false,
        Value::Number(count) => count.as_u64() != Some(0),
        Value::Array(list) => !list.is_empty(),
        Value::Object(kinds) => !kinds.is_empty(),
        Value::Bool(_) | Value::String(_) => true,
    };
    has_events.then(|| events.to_string())
}

fn in_worktree(cli: &CliUnderTest, case: &ConformanceCase) -> bool {
    (case.model)(cli)["worktree"] == true
}

fn marker(cli: &CliUnderTest, case: &ConformanceCase) -> String {
    format!("{}-{}-{}", std::process::id(), cli.name, case.name)
}

/// An address without a listener.
fn unused_address() -> Result<SocketAddr> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_events_are_found_in_numbers_lists_and_counts() {
        for (provider, expected) in [
            (json!({"name": "codex"}), None),
            (json!({"unknown_events": 0}), None),
            (json!({"unknown_events": {}}), None),
            (json!({"unknown_events": []}), None),
            (json!({"unknown_events": 2}), Some("2")),
            (json!({"unknown_events": {"item.new": 1}}), Some(r#"{"item.new":1}"#)),
            (json!({"unknown_events": ["item.new"]}), Some(r#"["item.new"]"#)),
        ] {
            assert_eq!(unknown_of(&provider).as_deref(), expected, "{provider}");
        }
    }
}

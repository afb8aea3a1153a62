//! Environment of one client: a gateway of its own with CLIs behind it, an API key for each case, and a home and a
//! repository for the client.
//!
//! The CLI behind most models is a fake. In the cases with tools and schemas it is a real one, and the mock LLM is its model.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::{Map, Value, json};

use super::case::{LabCase, LabRun};
use super::model_script::{CaseWords, model_script};
use super::row::{ClientRoute, ClientRow};
use super::tool_case::LabObservation;
use crate::conformance::clis;
use crate::conformance::environment::{CliEnvironment, TrunklineChild};
use crate::conformance::http::SentHttpRequest;
use crate::conformance::observe::wait_until;

/// Time for the runs of a case to end after the client has what it wants. `lab-slow` needs half of it.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(10);

const WRONG_KEY: &str = "no-client-has-this-key";

pub(super) struct ClientWorld {
    environment: CliEnvironment,
    gateway: TrunklineChild,
    /// Model of the real CLI, if a case needs it.
    _mock: Option<TrunklineChild>,
    words: BTreeMap<LabCase, CaseWords>,
    /// Folder in which the CLIs work.
    cli_repo: PathBuf,
}

/// Programs under test.
pub(super) struct LabPrograms<'a> {
    pub(super) gateway: &'a Path,
    pub(super) fake_agent: &'a Path,
    /// Folder with the real CLIs, if a case needs them.
    pub(super) real_clis: Option<&'a Path>,
}

impl ClientWorld {
    /// Starts a gateway for a client in `folder`. `bin` comes first in the client's `PATH`.
    pub(super) fn start(row: &ClientRow, programs: &LabPrograms<'_>, bin: &Path, folder: &Path) -> Result<Self> {
        let conversations = folder.join("conversations");
        fs::create_dir_all(&conversations)?;
        let environment = CliEnvironment::new(&[], bin, folder)?;
        // Not the client's repository: some clients write to theirs.
        let cli_repo = environment.another_repo("gateway")?;
        let words: BTreeMap<LabCase, CaseWords> = LabCase::ALL.map(|case| (case, row.words(case))).into();
        let mut models = Map::new();
        for mode in ["lab", "lab-failing", "lab-slow", "lab-endless"] {
            let model = json!({
                "driver": "claude", "command": programs.fake_agent, "repoPath": cli_repo, "sandbox": "off",
                "env": {"FAKE_AGENT": mode, "FAKE_AGENT_FOLDER": conversations},
            });
            models.insert(mode.to_owned(), model);
        }
        let mut mock = None;
        if let Some(real_clis) = programs.real_clis {
            // Clients compare paths with the real one of their folder.
            let repo = fs::canonicalize(&environment.repo)?;
            let repo = repo.to_str().context("the target folder's name is not UTF-8")?;
            let script = folder.join("model.json");
            fs::write(&script, model_script(row, repo, |case| words[&case].clone()).to_string())?;
            let started = TrunklineChild::mock(programs.gateway, folder, Some(&script))?;
            for (name, own_tools) in [("lab-tools", "keep"), ("lab-edit", "off")] {
                let settings = json!({
                    "command": real_clis.join(&row.cli), "repoPath": cli_repo, "sandbox": "off", "ownTools": own_tools,
                });
                let cli = clis::ALL.iter().find(|cli| cli.name == row.cli).context("unknown CLI")?;
                models.insert(name.to_owned(), cli.model(started.address, name, &settings));
            }
            mock = Some(started);
        }
        let keys: Vec<String> = LabCase::ALL.into_iter().map(own_key).collect();
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        let args = ["--warm", "0", "--warm-memory", "0", "--allow-origin", "http://localhost:*"];
        let gateway = environment.gateway(programs.gateway, "gateway", &Value::Object(models), &keys, &args)?;
        Ok(Self { environment, gateway, _mock: mock, words, cli_repo })
    }

    pub(super) fn words(&self, case: LabCase) -> &CaseWords {
        &self.words[&case]
    }

    /// Gives a program the client's environment variables and folder.
    pub(super) fn prepare(&self, mut program: Command) -> Command {
        program.env_clear().envs(self.environment.variables()).current_dir(&self.environment.repo);
        program
    }

    /// Request to the script of the client.
    pub(super) fn request(&self, case: LabCase) -> Value {
        let CaseWords { word, token } = self.words(case);
        let key = if case == LabCase::WrongKey { WRONG_KEY.to_owned() } else { own_key(case) };
        json!({
            "case": case.name(), "base": format!("http://{}", self.gateway.address), "key": key,
            "model": case.model(), "prompts": case.prompts(word),
            "timeout": (case == LabCase::Timeout).then_some(2),
            "token": (case == LabCase::Tools || case == LabCase::Schema).then_some(token),
        })
    }

    /// Whether the gateway has a route: an empty request is then refused for what it lacks.
    pub(super) fn has_route(&self, route: ClientRoute) -> Result<bool> {
        let key = own_key(LabCase::Models);
        let headers = [("x-api-key", key.as_str())];
        let reply = SentHttpRequest::post(self.gateway.address, route.path(), &headers, "{}")?.reply()?;
        Ok(reply.status() != 404)
    }

    /// State after a case: see [`Self::settled_runs`].
    pub(super) fn observe(&self, case: LabCase) -> Result<LabObservation> {
        let runs = self.settled_runs(case)?;
        let log = self.gateway.log();
        let is_ours = |line: &&str| runs.iter().any(|run| run.side.is_none() && line.contains(&run.id));
        let started =
            log.lines().filter(|line| line.contains(" started with tools of the client run=")).filter(is_ours);
        let pids: BTreeSet<&str> =
            started.filter_map(|line| line.split_once(" pid=")?.1.split_whitespace().next()).collect();
        let readme = |repo: &Path| fs::read_to_string(repo.join("README.md"));
        Ok(LabObservation {
            processes: pids.len(),
            runs,
            client_readme: readme(&self.environment.repo)?,
            cli_readme: readme(&self.cli_repo)?,
        })
    }

    /// The runs of a case, when all of them have ended or the time for it is over.
    fn settled_runs(&self, case: LabCase) -> Result<Vec<LabRun>> {
        let mut runs = self.runs(case)?;
        // Runs that do not end are shown in the verdict.
        let _ = wait_until(SETTLE_TIMEOUT, "all runs have ended", || {
            runs = self.runs(case).ok()?;
            (!runs.iter().any(LabRun::is_active)).then_some(())
        });
        Ok(runs)
    }

    fn runs(&self, case: LabCase) -> Result<Vec<LabRun>> {
        let key = own_key(case);
        let reply =
            SentHttpRequest::get(self.gateway.address, "/v1/runs?limit=100", &[("x-api-key", &key)])?.reply()?;
        if reply.status() != 200 {
            bail!("GET /v1/runs: {}", reply.text());
        }
        serde_json::from_value(reply.json()["data"].clone()).context("GET /v1/runs has no data")
    }
}

/// The API key of a case: the gateway lists the runs of each key separately.
fn own_key(case: LabCase) -> String {
    format!("key-of-the-case-{}", case.name())
}

impl ClientRow {
    /// Words that no other case has.
    fn words(&self, case: LabCase) -> CaseWords {
        let name: String = self.name.chars().filter(char::is_ascii_alphanumeric).collect();
        CaseWords {
            word: format!("{name}{}{:04}", case.name().replace('_', ""), fastrand::u16(..10_000)),
            token: format!("heron{:06}", fastrand::u32(..1_000_000)),
        }
    }
}

//! Environment of one client: a gateway of its own with fake CLIs behind it, an API key for each case, and a home and a
//! repository for the client.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::{Map, Value, json};

use super::case::{LabCase, LabRun};
use super::row::{ClientRoute, ClientRow};
use crate::conformance::environment::{CliEnvironment, TrunklineChild};
use crate::conformance::http::SentHttpRequest;
use crate::conformance::observe::wait_until;

/// Time for the runs of a case to end after the client has what it wants. `lab-slow` needs half of it.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(10);

const WRONG_KEY: &str = "no-client-has-this-key";

pub(super) struct ClientWorld {
    environment: CliEnvironment,
    gateway: TrunklineChild,
}

/// Programs under test.
pub(super) struct LabPrograms<'a> {
    pub(super) gateway: &'a Path,
    pub(super) fake_agent: &'a Path,
}

impl ClientWorld {
    /// Starts a gateway in `folder`. `bin` comes first in the client's `PATH`.
    pub(super) fn start(programs: &LabPrograms<'_>, bin: &Path, folder: &Path) -> Result<Self> {
        let conversations = folder.join("conversations");
        std::fs::create_dir_all(&conversations)?;
        let environment = CliEnvironment::new(&[], bin, folder)?;
        // Not the client's repository: some clients write to theirs.
        let repo = environment.another_repo("gateway")?;
        let mut models = Map::new();
        for mode in ["lab", "lab-failing", "lab-slow", "lab-endless"] {
            let model = json!({
                "driver": "claude", "command": programs.fake_agent, "repoPath": repo, "sandbox": "off",
                "env": {"FAKE_AGENT": mode, "FAKE_AGENT_FOLDER": conversations},
            });
            models.insert(mode.to_owned(), model);
        }
        let keys: Vec<String> = LabCase::ALL.into_iter().map(own_key).collect();
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        let args = ["--warm", "0", "--warm-memory", "0", "--allow-origin", "http://localhost:*"];
        let gateway = environment.gateway(programs.gateway, "gateway", &Value::Object(models), &keys, &args)?;
        Ok(Self { environment, gateway })
    }

    /// Gives a program the client's environment variables and folder.
    pub(super) fn prepare(&self, mut program: Command) -> Command {
        program.env_clear().envs(self.environment.variables()).current_dir(&self.environment.repo);
        program
    }

    /// Request to the script of the client.
    pub(super) fn request(&self, case: LabCase, word: &str) -> Value {
        let key = if case == LabCase::WrongKey { WRONG_KEY.to_owned() } else { own_key(case) };
        json!({
            "case": case.name(), "base": format!("http://{}", self.gateway.address), "key": key,
            "model": case.model(), "prompts": case.prompts(word),
            "timeout": (case == LabCase::Timeout).then_some(2),
        })
    }

    /// Whether the gateway has a route: an empty request is then refused for what it lacks.
    pub(super) fn has_route(&self, route: ClientRoute) -> Result<bool> {
        let key = own_key(LabCase::Models);
        let headers = [("x-api-key", key.as_str())];
        let reply = SentHttpRequest::post(self.gateway.address, route.path(), &headers, "{}")?.reply()?;
        Ok(reply.status() != 404)
    }

    /// The runs of a case, when all of them have ended or the time for it is over.
    pub(super) fn settled_runs(&self, case: LabCase) -> Result<Vec<LabRun>> {
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
    /// A word that only the gateway's answer in this case can contain.
    pub(super) fn word(&self, case: LabCase) -> String {
        let name: String = self.name.chars().filter(char::is_ascii_alphanumeric).collect();
        format!("{name}{}{:04}", case.name().replace('_', ""), fastrand::u16(..10_000))
    }
}

//! `trunkline provider check`: puts an executable through the provider protocol and says exactly what breaks.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use trunkline_core::provider::built_in_keys;
use trunkline_engine::of_executable;
use trunkline_process::{KeeperProgram, Keepers, SpawnError};

use super::cases::{AtOnce, Case, cases};
use super::judge::{Ended, Expect, Finding, Observation, Severity, judge};
use super::observe::{Subject, observe};
use super::report::Report;
use crate::Exit;
use crate::config::{Surroundings, parse_span};
use crate::setup::{StopSignals, runtime, say, tell};

/// Check that an executable speaks the provider protocol, and say exactly what breaks and how to mend it
///
/// The executable is started as the gateway starts it: PATH ARGS… generate|stream|health, with a JSON request on stdin
/// and without other providers' keys in its environment.
/// Every case prints a line: PASS, WARN (allowed, but worth a look) or FAIL, and under it the line of stdout, the member,
/// what was expected, and how to mend it.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  trunkline provider check ./my-provider
  trunkline provider check ./my-provider --model llama3.2:latest --timeout 2m
  trunkline provider check python3 my_provider.py -- --fast    (after --, arguments with dashes)

By hand, the same:
  echo '{\"prompt\": \"Hello\"}' | ./my-provider generate
  echo '{\"prompt\": \"Hello\"}' | ./my-provider stream
  ./my-provider health; echo $?

About fifteen requests are sent, one of them with a prompt of 300 kB: mind the cost if a paid model answers.
Exit status: 0 it conforms (warnings or not), 4 it does not, or it cannot be started.")]
pub(crate) struct Check {
    /// The executable: a path, or a name that is on the search path
    path: PathBuf,
    /// Arguments that come before the command
    args: Vec<OsString>,
    /// Ask for this model, as the gateway does: in the request's config.model
    #[arg(long, value_name = "MODEL")]
    model: Option<String>,
    /// The longest that one request may take; health always has 5 s
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = parse_span)]
    timeout: Duration,
}

const HEALTH_LIMIT: Duration = Duration::from_secs(5);

/// After so many cases that hang the others would only take time.
const ENOUGH_HANGS: usize = 2;

impl Check {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let around = Surroundings::read()?;
        let program = located(&self.path, &around);
        let env = of_executable(&around.env, &around.folder);
        tell_what_is_withheld(&around, &env);
        let subject = Subject { program, args: self.args, env, folder: around.folder };
        runtime()?.block_on(async {
            let mut signals = StopSignals::listen()?;
            let keepers = Keepers::new(KeeperProgram::this_binary(), 2)?;
            let outcome = tokio::select! {
                outcome = check(&keepers, subject, self.model.as_deref(), self.timeout) => outcome,
                signal = signals.next() => Ok(Exit::from(signal).into()),
            };
            keepers.shutdown().await;
            outcome
        })
    }
}

/// A provider that wants somebody's key works by hand and not in the gateway, unless its configuration passes it on.
fn tell_what_is_withheld(around: &Surroundings, env: &[(OsString, OsString)]) {
    let given = |name: &OsString| env.iter().any(|(known, _)| known == name);
    let keys = built_in_keys().iter().filter(|key| {
        let name = OsString::from(key);
        around.variable(key).is_some() && !given(&name)
    });
    let keys: BTreeSet<&str> = keys.map(String::as_str).collect();
    if let Some(first) = keys.iter().next() {
        tell(format_args!(
            "… not passed on, as in the gateway: {}; if it needs one, name it in its config: env: {{{first}: \"${{{first}}}\"}}",
            keys.iter().copied().collect::<Vec<_>>().join(", ")
        ));
    }
}

/// A file is meant before a name on the search path; what is not there is said as it was written.
fn located(path: &std::path::Path, around: &Surroundings) -> PathBuf {
    let file = around.folder.join(path);
    let is_name = path.components().count() == 1 && !path.as_os_str().as_encoded_bytes().contains(&b'/');
    if is_name && !file.exists() { path.to_owned() } else { file.components().collect() }
}

async fn check(keepers: &Keepers, subject: Subject, model: Option<&str>, timeout: Duration) -> Result<ExitCode> {
    let mut report = Report::default();
    let mut hangs = 0;
    for case in cases(model) {
        if hangs >= ENOUGH_HANGS {
            report.skipped(case.name)?;
            continue;
        }
        let limit = if case.expect == Expect::Healthy { HEALTH_LIMIT } else { timeout };
        let seen = match try_case(keepers, &subject, &case, limit).await {
            Ok(seen) => seen,
            Err(error) => {
                tell(format_args!("trunkline: {error}; {}", hint(&error)));
                return Ok(Exit::Provider.into());
            }
        };
        hangs += usize::from(seen.iter().any(|seen| matches!(seen.ended, Ended::TimedOut(_))));
        let findings = worst(&case, &seen);
        let took = seen.iter().map(|seen| seen.elapsed).max().unwrap_or_default();
        let stderr = seen.first().map(|seen| seen.stderr.as_str()).unwrap_or_default();
        report.case(case.name, took, &findings, stderr)?;
        if case.expect == Expect::Healthy && findings.iter().any(|finding| finding.severity == Severity::Fail) {
            say("      it is not healthy: what follows may fail for that reason")?;
        }
    }
    report.end()?;
    Ok(if report.conforms() { ExitCode::SUCCESS } else { Exit::Provider.into() })
}

/// The runs of a case.
async fn try_case(
    keepers: &Keepers,
    subject: &Subject,
    case: &Case,
    limit: Duration,
) -> Result<Vec<Observation>, SpawnError> {
    let run = || observe(keepers, subject, case, limit);
    match case.at_once {
        AtOnce::One => Ok(vec![run().await?]),
        AtOnce::Two => tokio::try_join!(run(), run()).map(|(one, other)| vec![one, other]),
    }
}

/// What is wrong with the worst of them.
fn worst(case: &Case, seen: &[Observation]) -> Vec<Finding> {
    let judged = seen.iter().map(|seen| judge(case.expect, case.form, seen));
    judged.max_by_key(|findings| findings.iter().map(|finding| finding.severity).max()).unwrap_or_default()
}

fn hint(error: &SpawnError) -> &'static str {
    match error {
        SpawnError::NotFound { program, .. } if program.exists() => {
            "the file is there, but not the interpreter that its first line (#!) names"
        }
        SpawnError::NotFound { .. } => "is the path right? write ./name for a file in this folder",
        SpawnError::NotExecutable { .. } => "chmod +x it; a script also needs a first line such as #!/bin/sh",
        SpawnError::TooLong { .. } => "give it fewer or shorter arguments",
        SpawnError::BadDirectory { .. } | SpawnError::Unconfined { .. } | SpawnError::Other { .. } => {
            "can you start it by hand?"
        }
        SpawnError::Exhausted(_) | SpawnError::Keeper(_) | SpawnError::ShutDown => {
            "this is no fault of the provider; try again"
        }
    }
}

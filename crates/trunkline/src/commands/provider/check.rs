//! `trunkline provider check`: tests an executable against the provider protocol.

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

use super::cases::{Concurrency, ProtocolCase, cases};
use super::judge::{ExecutionEnd, ExpectedOutcome, FindingSeverity, Observation, ProtocolFinding, judge};
use super::observe::{CheckedExecutable, observe};
use super::report::CheckReport;
use crate::config::{Environment, parse_span};
use crate::exit::CliExit;
use crate::output::{say, tell};
use crate::setup::runtime;
use crate::signals::StopSignals;

/// Test whether an executable implements the provider protocol, and show what is wrong and how to fix it
///
/// The executable is started as the gateway starts it: PATH ARGS… generate|stream|health, with a JSON request on stdin
/// and without other providers' keys in its environment.
/// Every case prints a line: PASS, WARN (allowed, but worth checking) or FAIL, and below it the line of stdout, the member,
/// what was expected, and how to fix it.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  trunkline provider check ./my-provider
  trunkline provider check ./my-provider --model llama3.2:latest --timeout 2m
  trunkline provider check python3 my_provider.py -- --fast    (after --, arguments with dashes)

The same by hand:
  echo '{\"prompt\": \"Hello\"}' | ./my-provider generate
  echo '{\"prompt\": \"Hello\"}' | ./my-provider stream
  ./my-provider health; echo $?

About fifteen requests are sent, one of them with a prompt of 300 kB: consider the cost if a paid model answers.
Exit status: 0 if it conforms, with or without warnings; 4 if it does not, or cannot be started.")]
pub(crate) struct ProviderCheckArgs {
    /// The executable: a path, or a name on the search path
    path: PathBuf,
    /// Arguments before the command
    args: Vec<OsString>,
    /// Model to ask for, in the request's config.model
    #[arg(long, value_name = "MODEL")]
    model: Option<String>,
    /// Time limit of each request; health always has 5 s
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = parse_span)]
    timeout: Duration,
}

const HEALTH_TIMEOUT: Duration = Duration::from_secs(5);

/// After this many cases that time out, the others are skipped.
const MAX_TIMEOUTS: usize = 2;

impl ProviderCheckArgs {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let environment = Environment::read()?;
        let program = located(&self.path, &environment);
        let env = of_executable(&environment.env, &environment.folder);
        list_withheld_keys(&environment, &env);
        let executable = CheckedExecutable { program, args: self.args, env, folder: environment.folder };
        runtime()?.block_on(async {
            let mut signals = StopSignals::listen()?;
            let keepers = Keepers::new(KeeperProgram::this_binary(), 2)?;
            let outcome = tokio::select! {
                outcome = check(&keepers, executable, self.model.as_deref(), self.timeout) => outcome,
                signal = signals.next() => Ok(CliExit::from(signal).into()),
            };
            keepers.shutdown().await;
            outcome
        })
    }
}

/// Lists the keys in our environment that the executable does not get. One that needs such a key works by hand, but in the
/// gateway only if its configuration passes the key.
fn list_withheld_keys(environment: &Environment, env: &[(OsString, OsString)]) {
    let given = |name: &OsString| env.iter().any(|(known, _)| known == name);
    let keys = built_in_keys().iter().filter(|key| {
        let name = OsString::from(key);
        environment.variable(key).is_some() && !given(&name)
    });
    let keys: BTreeSet<&str> = keys.map(String::as_str).collect();
    if let Some(first) = keys.iter().next() {
        tell(format_args!(
            "… not passed, as in the gateway: {}; if it needs one, add it to its config: env: {{{first}: \"${{{first}}}\"}}",
            keys.iter().copied().collect::<Vec<_>>().join(", ")
        ));
    }
}

/// Path of the executable. A file takes precedence over a name on the search path.
fn located(path: &std::path::Path, environment: &Environment) -> PathBuf {
    let file = environment.folder.join(path);
    let is_name = path.components().count() == 1 && !path.as_os_str().as_encoded_bytes().contains(&b'/');
    if is_name && !file.exists() { path.to_owned() } else { file.components().collect() }
}

async fn check(
    keepers: &Keepers,
    executable: CheckedExecutable,
    model: Option<&str>,
    timeout: Duration,
) -> Result<ExitCode> {
    let mut report = CheckReport::default();
    let mut timeouts = 0;
    for case in cases(model) {
        if timeouts >= MAX_TIMEOUTS {
            report.skipped(case.name)?;
            continue;
        }
        let limit = if case.expect == ExpectedOutcome::Healthy { HEALTH_TIMEOUT } else { timeout };
        let seen = match try_case(keepers, &executable, &case, limit).await {
            Ok(seen) => seen,
            Err(error) => {
                tell(format_args!("trunkline: {error}; {}", hint(&error)));
                return Ok(CliExit::Provider.into());
            }
        };
        timeouts += usize::from(seen.iter().any(|seen| matches!(seen.ended, ExecutionEnd::TimedOut(_))));
        let findings = worst(&case, &seen);
        let took = seen.iter().map(|seen| seen.elapsed).max().unwrap_or_default();
        let stderr = seen.first().map(|seen| seen.stderr.as_str()).unwrap_or_default();
        report.case(case.name, took, &findings, stderr)?;
        if case.expect == ExpectedOutcome::Healthy
            && findings.iter().any(|finding| finding.severity == FindingSeverity::Fail)
        {
            say("      not healthy: the following cases may fail for that reason")?;
        }
    }
    report.end()?;
    Ok(if report.conforms() { ExitCode::SUCCESS } else { CliExit::Provider.into() })
}

/// Runs a case, once or twice at the same time.
async fn try_case(
    keepers: &Keepers,
    executable: &CheckedExecutable,
    case: &ProtocolCase,
    limit: Duration,
) -> Result<Vec<Observation>, SpawnError> {
    let run = || observe(keepers, executable, case, limit);
    match case.concurrency {
        Concurrency::One => Ok(vec![run().await?]),
        Concurrency::Two => tokio::try_join!(run(), run()).map(|(one, other)| vec![one, other]),
    }
}

/// Findings of the worst execution.
fn worst(case: &ProtocolCase, seen: &[Observation]) -> Vec<ProtocolFinding> {
    let judged = seen.iter().map(|seen| judge(case.expect, case.form, seen));
    judged.max_by_key(|findings| findings.iter().map(|finding| finding.severity).max()).unwrap_or_default()
}

fn hint(error: &SpawnError) -> &'static str {
    match error {
        SpawnError::NotFound { program, .. } if program.exists() => {
            "the file exists, but not the interpreter in its first line (#!)"
        }
        SpawnError::NotFound { .. } => "is the path right? write ./name for a file in this folder",
        SpawnError::NotExecutable { .. } => "chmod +x it; a script also needs a first line such as #!/bin/sh",
        SpawnError::TooLong { .. } => "give it fewer or shorter arguments",
        SpawnError::BadDirectory { .. } | SpawnError::Unconfined { .. } | SpawnError::Other { .. } => {
            "can you start it by hand?"
        }
        SpawnError::Exhausted(_) | SpawnError::Keeper(_) | SpawnError::ShutDown => {
            "this is not an error of the provider; try again"
        }
    }
}

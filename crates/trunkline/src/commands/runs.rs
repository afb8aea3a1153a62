//! `trunkline runs`: lists runs of all surfaces, shows one, follows it, cancels it.
//!
//! Everything except cancelling reads the state folder and needs no gateway.

use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};
use trunkline_core::prompt::latest_user_text;
use trunkline_core::turn::ClientId;
use trunkline_engine::{Caps, DiffError, Follow, RunLogEntry, RunRow, RunState, current_run, current_runs};
use trunkline_store::{RunLogReader, Store, Time};

use super::columns::{aligned, short_name};
use super::gateway::GatewayClient;
use super::sessions::SavedState;
use crate::engine_args::EngineArgs;
use crate::exit::CliExit;
use crate::output::{say, tell};
use crate::repl::plain::{first_line, plain};
use crate::setup::{LoadedConfig, runtime};
use crate::wording::worktree_result;

/// Runs that are listed if a prefix matches several.
const MAX_MATCHES: u32 = 5;

/// Characters of a prompt or a model's name in a table.
const MAX_CELL_CHARS: usize = 50;

/// List runs, newest first; show one, follow it, cancel it
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "\
Examples:
  trunkline runs --status running                   runs in progress
  trunkline runs events 01a1e21c --follow           events of a run as they happen
  trunkline runs diff 01a1e21c | git apply --stat   what a run changed"
)]
pub(crate) struct RunsArgs {
    #[command(subcommand)]
    command: Option<RunsCommand>,
    #[command(flatten)]
    list: ListRunsArgs,
}

#[derive(Debug, Subcommand)]
enum RunsCommand {
    /// Show the details of a run
    Show(ShowRunArgs),
    /// Print the changes in a run's worktree as a patch
    Diff(OneRunArgs),
    /// Print the events of a run, one JSON object per line
    Events(RunEventsArgs),
    /// Cancel a run; returns when all its processes have ended
    Cancel(OneRunArgs),
}

#[derive(Debug, Args)]
struct ListRunsArgs {
    #[command(flatten)]
    engine_args: EngineArgs,
    /// Only runs in this state: queued, running, finished, failed, cancelled, interrupted
    #[arg(long, value_name = "S", value_parser = state)]
    status: Option<RunState>,
    /// Only runs of this model
    #[arg(long, short)]
    model: Option<String>,
    /// Maximum number of runs
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    limit: u32,
    /// Print one JSON object per line
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct OneRunArgs {
    #[command(flatten)]
    engine_args: EngineArgs,
    /// Run id from `trunkline runs`; a unique prefix is enough
    run: String,
}

#[derive(Debug, Args)]
struct ShowRunArgs {
    #[command(flatten)]
    one: OneRunArgs,
    /// Print all records of the run in the log, one JSON object per line
    #[arg(long)]
    records: bool,
}

#[derive(Debug, Args)]
struct RunEventsArgs {
    #[command(flatten)]
    one: OneRunArgs,
    /// Keep printing until the run ends
    #[arg(long, short)]
    follow: bool,
}

fn state(name: &str) -> Result<RunState, String> {
    let names = || RunState::ALL.map(RunState::name).join(", ");
    RunState::from_name(name).ok_or_else(|| format!("not a state of a run; states are {}", names()))
}

impl RunsArgs {
    pub(crate) fn run(self) -> Result<ExitCode> {
        runtime()?.block_on(async {
            match self.command {
                None => self.list.show().await,
                Some(RunsCommand::Show(show)) => show.show().await,
                Some(RunsCommand::Diff(one)) => one.diff().await,
                Some(RunsCommand::Events(events)) => events.show().await,
                Some(RunsCommand::Cancel(one)) => one.cancel().await,
            }
        })
    }
}

impl ListRunsArgs {
    async fn show(self) -> Result<ExitCode> {
        let saved = SavedState::open(&self.engine_args).await?;
        let which = trunkline_store::RunFilter {
            state: self.status,
            model: self.model,
            // One more than is shown, to detect whether there are more.
            limit: self.limit.saturating_add(1),
            ..Default::default()
        };
        let mut runs = match &saved.store {
            Some(store) => current_runs(store, &saved.state, which).await?,
            None => Vec::new(),
        };
        saved.close().await;
        let more = runs.len() > self.limit as usize;
        runs.truncate(self.limit as usize);
        if self.json {
            for run in &runs {
                say(serde_json::to_string(run)?)?;
            }
            return Ok(ExitCode::SUCCESS);
        }
        for line in table(&runs, Time::now()) {
            say(line)?;
        }
        if runs.is_empty() {
            tell("no runs");
        } else if more {
            tell("there are more: --limit N shows N of them");
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl ShowRunArgs {
    async fn show(self) -> Result<ExitCode> {
        let (saved, run) = self.one.found().await?;
        if self.records {
            let mut log = saved.store.as_ref().and_then(|store| store.run_log(&run));
            while let Some(record) = log.as_mut().map_or(Ok(None), RunLogReader::next_record)? {
                say(serde_json::to_string(&record)?)?;
            }
        } else {
            for (name, value) in details(&run, Time::now()) {
                say(plain(&format!("{name:<9} {value}")))?;
            }
        }
        saved.close().await;
        Ok(ExitCode::SUCCESS)
    }
}

impl OneRunArgs {
    async fn diff(self) -> Result<ExitCode> {
        let (saved, run) = self.found().await?;
        let loaded = LoadedConfig::new(&self.engine_args)?;
        let engine = loaded.engine(Caps::default(), None)?;
        let patch = match &saved.store {
            Some(store) => {
                engine.remember_in(store.clone());
                let owner = ClientId::named(run.owner.as_str());
                engine.diff(&owner, &run.id).await
            }
            None => Err(DiffError::Nothing("this state folder has no database")),
        };
        engine.shutdown().await;
        let patch = patch.with_context(|| format!("there is no diff of run {}", run.id))?;
        io::stdout().lock().write_all(&patch)?;
        Ok(ExitCode::SUCCESS)
    }

    /// Asks the gateway to cancel the run: only the process that drives it can.
    async fn cancel(self) -> Result<ExitCode> {
        let (saved, run) = self.found().await?;
        saved.close().await;
        if run.state.is_over() {
            bail!("run {} has ended: {}", run.id, run.state.name());
        }
        let Some(gateway) = GatewayClient::of_state(&saved.state, &saved.environment) else {
            bail!("no gateway runs on {}: run {} cannot be cancelled", saved.state.display(), run.id);
        };
        let reply = gateway.send("DELETE", &format!("/v1/runs/{}", run.id), &[], "").await;
        let reply = reply.map_err(|error| gateway.no_answer(&saved.state, error))?;
        if reply.status == 200 {
            tell(format_args!("· run {} is cancelled", run.id));
            return Ok(ExitCode::SUCCESS);
        }
        tell(format_args!("trunkline: {}", error_message(&reply.body)));
        Ok(CliExit::General.into())
    }

    pub(super) async fn found(&self) -> Result<(SavedState, RunRow)> {
        let saved = SavedState::open(&self.engine_args).await?;
        let run = find(saved.store.as_ref(), &self.run).await?;
        let run = current_run(&saved.state, run);
        Ok((saved, run))
    }
}

impl RunEventsArgs {
    async fn show(self) -> Result<ExitCode> {
        let (saved, run) = self.one.found().await?;
        let Some(store) = &saved.store else { return Ok(ExitCode::SUCCESS) };
        let mut follow = Follow::kept(&saved.state, store.clone(), &run, 0);
        if self.follow {
            while let Some(entry) = follow.next().await {
                say_entry(&entry)?;
            }
        } else {
            while let Some(entry) = follow.written() {
                say_entry(&entry)?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn say_entry(entry: &RunLogEntry) -> Result<()> {
    Ok(say(serde_json::to_string(entry)?)?)
}

/// The run with this id, or the only one with this prefix.
pub(super) async fn find(store: Option<&Store>, name: &str) -> Result<RunRow> {
    let none = || format!("no run begins with {name:?}; see: trunkline runs");
    let store = store.with_context(none)?;
    let which = trunkline_store::RunFilter { begins: Some(name.to_owned()), limit: MAX_MATCHES, ..Default::default() };
    let mut found = store.runs(&which).await?;
    if let Some(at) = found.iter().position(|run| run.id == name) {
        return Ok(found.swap_remove(at));
    }
    if found.len() > 1 {
        let line =
            |run: &RunRow| format!("\n  {}  {}", run.id, first_line(latest_user_text(&run.prompt), MAX_CELL_CHARS));
        bail!("several runs begin with {name:?}:{}", found.iter().map(line).collect::<String>());
    }
    found.pop().with_context(none)
}

/// Error message in a gateway's reply.
pub(super) fn error_message(body: &str) -> String {
    let error = serde_json::from_str::<serde_json::Value>(body).unwrap_or_default();
    let member = |name: &str| error["error"][name].as_str().map(str::to_owned);
    let detail = member("detail").or_else(|| member("hint")).map(|more| format!(" ({more})")).unwrap_or_default();
    member("message").map_or_else(|| "the gateway refused the request".to_owned(), |message| message + &detail)
}

fn table(runs: &[RunRow], now: Time) -> Vec<String> {
    if runs.is_empty() {
        return Vec::new();
    }
    let names: Vec<&str> = runs.iter().map(|run| run.id.as_str()).collect();
    let head = ["run", "age", "state", "model", "provider", "took", "files", "first words"].map(str::to_owned);
    let cells = runs.iter().map(|run| {
        let age = Duration::from_millis(u64::try_from(now.millis() - run.begun.millis()).unwrap_or(0));
        let files = run.workspace.as_ref().map_or_else(
            || "-".to_owned(),
            |left| left.files_changed.map_or_else(|| "?".to_owned(), |files| files.to_string()),
        );
        [
            short_name(&names, &run.id),
            brief(age),
            run.state.name().to_owned(),
            first_line(&run.model, MAX_CELL_CHARS),
            provider(run),
            brief(run.duration(now)),
            files,
            first_line(latest_user_text(&run.prompt), MAX_CELL_CHARS),
        ]
    });
    let cells: Vec<[String; 8]> = std::iter::once(head).chain(cells).collect();
    aligned(&cells, &[0, 1, 2, 3, 4, 5, 6, 7])
}

/// Details of a run, as labels and values.
fn details(run: &RunRow, now: Time) -> Vec<(&'static str, String)> {
    let mut lines = vec![
        ("run", run.id.clone()),
        ("state", run.state.name().to_owned()),
        ("model", run.model.clone()),
        ("provider", provider(run)),
        ("folder", run.place.clone()),
        ("begun", run.begun.to_string()),
        ("took", brief(run.duration(now))),
        ("attempts", run.attempts.to_string()),
    ];
    lines.extend(run.session.as_ref().map(|session| ("session", session.to_string())));
    lines.extend(run.surface.map(|surface| ("by", surface.name().to_owned())));
    lines.extend(run.error.as_ref().map(|error| ("error", format!("{} ({})", error.message, error.category.name()))));
    lines.extend(run.workspace.as_ref().map(|receipt| ("left", worktree_result(receipt))));
    lines.extend(run.detached.then(|| ("detached", "it continues without its client".to_owned())));
    lines.push(("prompt", first_line(latest_user_text(&run.prompt), usize::MAX)));
    lines
}

/// Provider of the latest attempt; a dash if none was started.
fn provider(run: &RunRow) -> String {
    run.provider.clone().filter(|provider| !provider.is_empty()).unwrap_or_else(|| "-".to_owned())
}

/// A duration in one unit.
fn brief(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0..10 => format!("{:.1}s", time.as_secs_f64()),
        10..60 => format!("{seconds}s"),
        60..3600 => format!("{}m", seconds / 60),
        3600..86_400 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn duration_is_shown_in_its_largest_unit() {
        for (millis, shown) in
            [(40, "0.0s"), (9_940, "9.9s"), (59_999, "59s"), (60_000, "1m"), (7_200_000, "2h"), (200_000_000, "2d")]
        {
            assert_eq!(brief(Duration::from_millis(millis)), shown);
        }
    }
}

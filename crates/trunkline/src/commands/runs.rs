//! `trunkline runs`: what ran and what runs, by whatever door it came.
//!
//! Everything but stopping a run is read from the state folder itself: it needs no gateway.

use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};
use trunkline_core::prompt::latest_words;
use trunkline_core::turn::Owner;
use trunkline_engine::{Caps, Entry, Follow, NoDiff, RunRow, RunState, run_seen, runs_seen};
use trunkline_store::{Store, Time};

use super::columns::{aligned, short_name};
use super::gateway::Running;
use super::sessions::Remembered;
use crate::Exit;
use crate::cli::Places;
use crate::repl::plain::{first_line, plain};
use crate::setup::{Loaded, runtime, say, tell};
use crate::wording::left;

/// How many runs are named when it is not clear which one is meant.
const CHOICE: u32 = 5;

const WORDS: usize = 50;

/// List runs, the newest first; show one, follow it, stop it
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Examples: trunkline runs --status running\n          trunkline runs events 01a1e21c --follow\n          \
    trunkline runs diff 01a1e21c | git apply --stat"
)]
pub(crate) struct Runs {
    #[command(subcommand)]
    what: Option<What>,
    #[command(flatten)]
    list: List,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Everything that is known of one
    Show(One),
    /// What it has changed in its worktree, as a patch
    Diff(One),
    /// What happened in it, one JSON object a line
    Events(Events),
    /// Stop it; returns when nothing of it is left
    Cancel(One),
}

#[derive(Debug, Args)]
struct List {
    #[command(flatten)]
    places: Places,
    /// Only those in this state: queued, running, finished, failed, cancelled, interrupted
    #[arg(long, value_name = "S", value_parser = state)]
    status: Option<RunState>,
    /// Only those of this model
    #[arg(long, short)]
    model: Option<String>,
    /// How many at most
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    limit: u32,
    /// One JSON object a line
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct One {
    #[command(flatten)]
    places: Places,
    /// A run of `trunkline runs`; the beginning of its name is enough
    run: String,
}

#[derive(Debug, Args)]
struct Events {
    #[command(flatten)]
    one: One,
    /// Go on until it ends
    #[arg(long, short)]
    follow: bool,
}

fn state(name: &str) -> Result<RunState, String> {
    let names = || RunState::ALL.map(RunState::name).join(", ");
    RunState::from_name(name).ok_or_else(|| format!("no state of a run; they are {}", names()))
}

impl Runs {
    pub(crate) fn run(self) -> Result<ExitCode> {
        runtime()?.block_on(async {
            match self.what {
                None => self.list.show().await,
                Some(What::Show(one)) => one.show().await,
                Some(What::Diff(one)) => one.diff().await,
                Some(What::Events(events)) => events.show().await,
                Some(What::Cancel(one)) => one.cancel().await,
            }
        })
    }
}

impl List {
    async fn show(self) -> Result<ExitCode> {
        let remembered = Remembered::open(&self.places).await?;
        let which = trunkline_store::Runs {
            state: self.status,
            model: self.model,
            // One more than is shown, to know whether there are more.
            limit: self.limit.saturating_add(1),
            ..Default::default()
        };
        let mut runs = match &remembered.store {
            Some(store) => runs_seen(store, &remembered.state, which).await?,
            None => Vec::new(),
        };
        remembered.close().await;
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

impl One {
    async fn show(self) -> Result<ExitCode> {
        let (remembered, run) = self.found().await?;
        remembered.close().await;
        for (name, value) in told(&run, Time::now()) {
            say(plain(&format!("{name:<9} {value}")))?;
        }
        Ok(ExitCode::SUCCESS)
    }

    async fn diff(self) -> Result<ExitCode> {
        let (remembered, run) = self.found().await?;
        let loaded = Loaded::new(&self.places)?;
        let engine = loaded.engine(Caps::default(), None)?;
        let patch = match &remembered.store {
            Some(store) => {
                engine.remember_in(store.clone());
                let owner = Owner::named(run.owner.as_str());
                engine.diff(&owner, &run.id).await
            }
            None => Err(NoDiff::Nothing("nothing is remembered here")),
        };
        engine.shutdown().await;
        let patch = patch.with_context(|| format!("there is no diff of run {}", run.id))?;
        io::stdout().lock().write_all(&patch)?;
        Ok(ExitCode::SUCCESS)
    }

    /// Only who runs it can stop it.
    async fn cancel(self) -> Result<ExitCode> {
        let (remembered, run) = self.found().await?;
        remembered.close().await;
        if run.state.is_over() {
            bail!("run {} is over: {}", run.id, run.state.name());
        }
        let Some(gateway) = Running::of_state(&remembered.state, &remembered.around) else {
            bail!("no gateway runs on {}: nothing can stop run {}", remembered.state.display(), run.id);
        };
        let reply = gateway.send("DELETE", &format!("/v1/runs/{}", run.id), &[], "").await;
        let reply = reply.map_err(|error| gateway.silent(&remembered.state, error))?;
        if reply.status == 200 {
            tell(format_args!("· run {} is stopped", run.id));
            return Ok(ExitCode::SUCCESS);
        }
        tell(format_args!("trunkline: {}", refusal(&reply.body)));
        Ok(Exit::General.into())
    }

    pub(super) async fn found(&self) -> Result<(Remembered, RunRow)> {
        let remembered = Remembered::open(&self.places).await?;
        let run = find(remembered.store.as_ref(), &self.run).await?;
        let run = run_seen(&remembered.state, run);
        Ok((remembered, run))
    }
}

impl Events {
    async fn show(self) -> Result<ExitCode> {
        let (remembered, run) = self.one.found().await?;
        let Some(store) = &remembered.store else { return Ok(ExitCode::SUCCESS) };
        let mut follow = Follow::kept(&remembered.state, store.clone(), &run.id, 0);
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

fn say_entry(entry: &Entry) -> Result<()> {
    Ok(say(serde_json::to_string(entry)?)?)
}

/// The run of this name, or the only one whose name begins like this.
pub(super) async fn find(store: Option<&Store>, name: &str) -> Result<RunRow> {
    let none = || format!("no run begins with {name:?}; see: trunkline runs");
    let store = store.with_context(none)?;
    let which = trunkline_store::Runs { begins: Some(name.to_owned()), limit: CHOICE, ..Default::default() };
    let mut found = store.runs(&which).await?;
    if let Some(at) = found.iter().position(|run| run.id == name) {
        return Ok(found.swap_remove(at));
    }
    if found.len() > 1 {
        let line = |run: &RunRow| format!("\n  {}  {}", run.id, first_line(latest_words(&run.prompt), WORDS));
        bail!("several runs begin with {name:?}:{}", found.iter().map(line).collect::<String>());
    }
    found.pop().with_context(none)
}

/// What a gateway says against something, in its own words.
pub(super) fn refusal(body: &str) -> String {
    let error = serde_json::from_str::<serde_json::Value>(body).unwrap_or_default();
    let word = |name: &str| error["error"][name].as_str().map(str::to_owned);
    let detail = word("detail").or_else(|| word("hint")).map(|more| format!(" ({more})")).unwrap_or_default();
    word("message").map_or_else(|| "the gateway refuses".to_owned(), |message| message + &detail)
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
            first_line(&run.model, WORDS),
            provider(run),
            brief(run.duration(now)),
            files,
            first_line(latest_words(&run.prompt), WORDS),
        ]
    });
    let cells: Vec<[String; 8]> = std::iter::once(head).chain(cells).collect();
    aligned(&cells, &[0, 1, 2, 3, 4, 5, 6, 7])
}

/// What there is to say of a run, line by line.
fn told(run: &RunRow, now: Time) -> Vec<(&'static str, String)> {
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
    lines.extend(run.workspace.as_ref().map(|receipt| ("left", left(receipt))));
    lines.extend(run.detached.then(|| ("detached", "it goes on without its client".to_owned())));
    lines.push(("prompt", first_line(latest_words(&run.prompt), usize::MAX)));
    lines
}

/// The provider of the latest attempt; a dash where none was started.
fn provider(run: &RunRow) -> String {
    run.provider.clone().filter(|provider| !provider.is_empty()).unwrap_or_else(|| "-".to_owned())
}

/// A time in its largest unit that says something.
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
    fn times_are_brief() {
        for (millis, told) in
            [(40, "0.0s"), (9_940, "9.9s"), (59_999, "59s"), (60_000, "1m"), (7_200_000, "2h"), (200_000_000, "2d")]
        {
            assert_eq!(brief(Duration::from_millis(millis)), told);
        }
    }
}

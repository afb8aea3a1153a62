//! `trunkline sessions`: lists saved sessions, and deletes old ones.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use trunkline_engine::same_folder;
use trunkline_store::{DATABASE_FILE, LOG_FOLDER, Pruned, SessionFilter, SessionRow, Store};

use super::columns::{aligned, short_name};
use super::retention;
use crate::config::{Environment, parse_span};
use crate::engine_args::EngineArgs;
use crate::output::{say, tell};
use crate::repl::plain::first_line;
use crate::setup::runtime;

/// Characters of a title or a model's name in the table.
const MAX_CELL_CHARS: usize = 60;

/// List the sessions of this folder, most recently used first
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  trunkline sessions --all --model codex   Codex sessions of every folder
  trunkline sessions --prune 90d           delete those not used for 90 days

To read one: trunkline history SESSION")]
pub(crate) struct SessionsArgs {
    #[command(flatten)]
    engine_args: EngineArgs,
    /// Only sessions with this model
    #[arg(long, short)]
    model: Option<String>,
    /// Sessions of every folder
    #[arg(long)]
    all: bool,
    /// Maximum number of sessions
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    limit: u32,
    /// Print one JSON object per line
    #[arg(long)]
    json: bool,
    /// Delete the sessions of every folder that were not used for this long, with their archive: 90d, 2w, 12h
    #[arg(long, value_name = "AGE", value_parser = age, conflicts_with_all = ["model", "all", "json"])]
    prune: Option<Duration>,
}

impl SessionsArgs {
    pub(crate) fn run(self) -> Result<ExitCode> {
        runtime()?.block_on(async {
            let saved = SavedState::open(&self.engine_args).await?;
            match self.prune {
                Some(age) => prune(&saved, age).await?,
                None => self.list(&saved).await?,
            }
            saved.close().await;
            Ok(ExitCode::SUCCESS)
        })
    }

    async fn list(self, saved: &SavedState) -> Result<()> {
        // One more than is shown, to detect whether there are more.
        let limit = Some(self.limit.saturating_add(1));
        let mut rows = match &saved.store {
            Some(store) => {
                let repos = if self.all { None } else { Some(saved.names_of_folder(store).await?) };
                store.sessions(&SessionFilter { repos, model: self.model, limit, ..SessionFilter::default() }).await?
            }
            None => Vec::new(),
        };
        let more = rows.len() > self.limit as usize;
        rows.truncate(self.limit as usize);
        if self.json {
            for row in &rows {
                say(serde_json::to_string(row)?)?;
            }
            return Ok(());
        }
        for line in table(&rows, self.all) {
            say(line)?;
        }
        if rows.is_empty() {
            let elsewhere = if self.all { "" } else { " in this folder; --all shows those of other folders" };
            tell(format!("no sessions{elsewhere}"));
        } else if more {
            tell("there are more: --limit N shows N of them");
        }
        Ok(())
    }
}

async fn prune(saved: &SavedState, age: Duration) -> Result<()> {
    let pruned = retention::delete_older(age, saved.store.as_ref(), &saved.state).await?;
    let Pruned { sessions, turns, messages, .. } = pruned;
    let plural = |count: u64, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
    let rest = if messages == 0 { String::new() } else { format!(", {}", plural(messages, "bridge message")) };
    say(format!("deleted {}, {}{rest}", plural(sessions, "session"), plural(turns, "turn")))?;
    Ok(())
}

/// The state folder and its database, if there is one. Needs no configuration.
pub(super) struct SavedState {
    pub(super) store: Option<Store>,
    pub(super) environment: Environment,
    pub(super) state: PathBuf,
}

impl SavedState {
    pub(super) async fn open(engine_args: &EngineArgs) -> Result<Self> {
        let environment = Environment::read().context("cannot read the current folder")?;
        let state = engine_args.state_folder(&environment);
        let path = state.join(DATABASE_FILE);
        // Reading does not create a database, but the log is indexed if the database was deleted.
        let exists = path.exists() || state.join(LOG_FOLDER).exists();
        let store = if exists { Some(Store::open(&path).await?) } else { None };
        Ok(Self { store, environment, state })
    }

    /// Paths of the current folder in the sessions: a configuration may name it through a symbolic link.
    async fn names_of_folder(&self, store: &Store) -> Result<Vec<PathBuf>> {
        let mut repos = store.session_repos().await?;
        repos.retain(|repo| same_folder(repo, &self.environment.folder));
        Ok(repos)
    }

    pub(super) async fn close(&self) {
        if let Some(store) = &self.store {
            store.close().await;
        }
    }
}

/// Parses an age: `90d`, `2w`, or a time with a unit. A bare number would be seconds, which is never meant here.
pub(super) fn age(text: &str) -> Result<Duration, String> {
    let days = |text: &str, factor: f64| {
        let number: f64 = text.trim().parse().ok()?;
        Duration::try_from_secs_f64(number * factor * 86_400.0).ok()
    };
    let age = match (text.strip_suffix('d'), text.strip_suffix('w')) {
        (Some(number), _) => days(number, 1.0),
        (None, Some(number)) => days(number, 7.0),
        (None, None) => parse_span(text).ok().filter(|_| text.ends_with(|last: char| last.is_ascii_alphabetic())),
    };
    age.ok_or_else(|| format!("{text:?} is not an age: write 90d, 2w or 12h"))
}

fn table(rows: &[SessionRow], with_folder: bool) -> Vec<String> {
    if rows.is_empty() {
        return Vec::new();
    }
    let names: Vec<&str> = rows.iter().map(|row| row.id.0.as_str()).collect();
    let head = ["session", "used (UTC)", "model", "turns", "folder", "first words"].map(str::to_owned);
    let cells = rows.iter().map(|row| {
        let used = row.used.timestamp().strftime("%Y-%m-%d %H:%M").to_string();
        let folder = first_line(&row.repo.to_string_lossy(), usize::MAX);
        let (model, title) = (first_line(&row.model, MAX_CELL_CHARS), first_line(&row.title, MAX_CELL_CHARS));
        [short_name(&names, &row.id.0), used, model, row.turns.to_string(), folder, title]
    });
    let cells: Vec<[String; 6]> = std::iter::once(head).chain(cells).collect();
    let shown: Vec<usize> = (0..6).filter(|&column| with_folder || column != 4).collect();
    aligned(&cells, &shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn age_needs_a_unit() {
        let hours = |hours: u64| Ok(Duration::from_secs(hours * 3600));
        for (text, expected) in [("90d", hours(90 * 24)), ("2w", hours(14 * 24)), ("12h", hours(12)), ("0d", hours(0))]
        {
            assert_eq!(age(text), expected, "{text}");
        }
        for text in ["90", "", "d", "-1d", "1y", "many d", "1e99d"] {
            assert_eq!(age(text), Err(format!("{text:?} is not an age: write 90d, 2w or 12h")));
        }
    }
}

//! `trunkline sessions`: the conversations that are remembered, and forgetting those that are old.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use trunkline_engine::same_folder;
use trunkline_store::{FILE, Filter, Pruned, SessionRow, Store};

use super::columns::{aligned, short_name};
use super::retention;
use crate::cli::Places;
use crate::config::{Surroundings, parse_span};
use crate::repl::plain::first_line;
use crate::setup::{runtime, say, tell};

const TITLE: usize = 60;

/// List the sessions of this folder, the one used last first
#[derive(Debug, Args)]
#[command(after_help = "Example: trunkline sessions --all --model codex\n\nWhat was said in one of them: trunkline \
    history SESSION")]
pub(crate) struct Sessions {
    #[command(flatten)]
    places: Places,
    /// Only those with this model
    #[arg(long, short)]
    model: Option<String>,
    /// Those of every folder
    #[arg(long)]
    all: bool,
    /// How many at most
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    limit: u32,
    /// One JSON object a line
    #[arg(long)]
    json: bool,
    /// Forget the sessions that were not used for so long, of every folder, with everything archived of them: 90d, 12h
    #[arg(long, value_name = "AGE", value_parser = age, conflicts_with_all = ["model", "all", "json"])]
    prune: Option<Duration>,
}

impl Sessions {
    pub(crate) fn run(self) -> Result<ExitCode> {
        runtime()?.block_on(async {
            let remembered = Remembered::open(&self.places).await?;
            match self.prune {
                Some(age) => prune(&remembered, age).await?,
                None => self.list(&remembered).await?,
            }
            remembered.close().await;
            Ok(ExitCode::SUCCESS)
        })
    }

    async fn list(self, remembered: &Remembered) -> Result<()> {
        // One more than is shown, to know whether there are more.
        let limit = Some(self.limit.saturating_add(1));
        let mut rows = match &remembered.store {
            Some(store) => {
                let repos = if self.all { None } else { Some(remembered.names_of_folder(store).await?) };
                store.sessions(&Filter { repos, model: self.model, limit, ..Filter::default() }).await?
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
            let elsewhere = if self.all { "" } else { " of this folder; --all shows those of others" };
            tell(format!("no sessions{elsewhere}"));
        } else if more {
            tell("there are more: --limit N shows N of them");
        }
        Ok(())
    }
}

async fn prune(remembered: &Remembered, age: Duration) -> Result<()> {
    let pruned = retention::forget(age, remembered.store.as_ref(), &remembered.state).await?;
    let Pruned { sessions, turns, messages, .. } = pruned;
    let some = |count: u64, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
    let rest = if messages == 0 { String::new() } else { format!(", {}", some(messages, "bridge message")) };
    say(format!("forgot {}, {}{rest}", some(sessions, "session"), some(turns, "turn")))?;
    Ok(())
}

/// What earlier runs left, if there were any; reading it needs no configuration.
pub(super) struct Remembered {
    pub(super) store: Option<Store>,
    pub(super) around: Surroundings,
    pub(super) state: PathBuf,
}

impl Remembered {
    pub(super) async fn open(places: &Places) -> Result<Self> {
        let around = Surroundings::read().context("cannot see where this is")?;
        let state = places.state_folder(&around);
        let path = state.join(FILE);
        // Looking is no reason to begin one.
        let store = if path.exists() { Some(Store::open(&path).await?) } else { None };
        Ok(Self { store, around, state })
    }

    /// The names under which sessions know the current folder: a configuration may lead to it through a link.
    async fn names_of_folder(&self, store: &Store) -> Result<Vec<PathBuf>> {
        let mut repos = store.session_repos().await?;
        repos.retain(|repo| same_folder(repo, &self.around.folder));
        Ok(repos)
    }

    pub(super) async fn close(&self) {
        if let Some(store) = &self.store {
            store.close().await;
        }
    }
}

/// `90d`, `2w`, or a time with a unit: a bare number would be seconds, which nobody means here.
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
        let (model, title) = (first_line(&row.model, TITLE), first_line(&row.title, TITLE));
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
    fn an_age_has_a_unit() {
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

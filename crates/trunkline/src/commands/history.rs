//! `trunkline history`: shows the conversation of a session, and exports the archive as JSON lines.

use std::fs::OpenOptions;
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;
use trunkline_core::event::Event;
use trunkline_core::prompt::latest_user_text;
use trunkline_store::{EventRow, ExportFilter, RunOutcome, SessionRow, Store, StoreError, Time, TurnRow};

use super::sessions::{SavedState, age};
use crate::engine_args::EngineArgs;
use crate::output::{say, tell};
use crate::repl::plain::plain;
use crate::repl::tool::{RunningTools, call};
use crate::setup::runtime;

/// Sessions that are listed if a prefix matches several.
const MAX_MATCHES: u32 = 5;

/// Show the conversation of a session, or export the archive
#[derive(Debug, Args)]
#[command(
    after_help = "Examples: trunkline history 01a1e21c\n          trunkline history --export - --since 7d | jq .prompt"
)]
pub(crate) struct HistoryArgs {
    #[command(flatten)]
    engine_args: EngineArgs,
    /// Session id from `trunkline sessions`; a unique prefix is enough
    #[arg(required_unless_present = "export")]
    session: Option<String>,
    /// Print one JSON object per turn
    #[arg(long)]
    json: bool,
    /// Show every event of each turn
    #[arg(long)]
    events: bool,
    /// Write every turn with its events as JSON lines to a file, or to stdout with `-`
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-", conflicts_with_all = ["session", "json", "events"])]
    export: Option<PathBuf>,
    /// Only turns that began within this time, such as 7d or 12h
    #[arg(long, value_name = "AGE", value_parser = age, requires = "export", conflicts_with = "session")]
    since: Option<Duration>,
}

impl HistoryArgs {
    pub(crate) fn run(self) -> Result<ExitCode> {
        runtime()?.block_on(async {
            let saved = SavedState::open(&self.engine_args).await?;
            match (&self.export, &self.session) {
                (Some(file), _) => export(saved.store.as_ref(), file, self.since).await?,
                (None, name) => self.show(saved.store.as_ref(), name.as_deref().unwrap_or_default()).await?,
            }
            saved.close().await;
            Ok(ExitCode::SUCCESS)
        })
    }

    async fn show(&self, store: Option<&Store>, name: &str) -> Result<()> {
        let (store, session) = find(store, name).await?;
        let turns = store.turns(&session.id).await?;
        if self.json && self.events {
            let selection = ExportFilter { session: Some(session.id), ..ExportFilter::default() };
            write_all(store, &selection, &mut io::stdout().lock()).await?;
        } else if self.json {
            for turn in &turns {
                say(serde_json::to_string(turn)?)?;
            }
        } else {
            say(heading(&session))?;
            for turn in &turns {
                let events = store.events(&turn.run, 0).await?;
                for line in if self.events { event_lines(turn, &events) } else { conversation_lines(turn, &events) } {
                    say(line)?;
                }
            }
            if turns.is_empty() {
                tell("no turn of this session is in the archive");
            }
        }
        Ok(())
    }
}

async fn export(store: Option<&Store>, file: &Path, since: Option<Duration>) -> Result<()> {
    let selection = ExportFilter { since: since.map(Time::ago), ..ExportFilter::default() };
    if file == Path::new("-") {
        return match store {
            Some(store) => write_all(store, &selection, &mut io::stdout().lock()).await.map(drop),
            None => Ok(()),
        };
    }
    // Private: it contains prompts and answers.
    let opened = OpenOptions::new().create(true).write(true).truncate(true).mode(0o600).open(file);
    let opened = opened.with_context(|| format!("cannot write {}", file.display()))?;
    let count = match store {
        Some(store) => write_all(store, &selection, &mut BufWriter::new(opened)).await?,
        None => 0,
    };
    tell(format!("wrote {count} turns to {}", file.display()));
    Ok(())
}

/// Exports to `to`. An I/O error is returned as such, so that a closed pipe is recognised.
async fn write_all(store: &Store, selection: &ExportFilter, to: &mut impl Write) -> Result<u64> {
    let written = store.export(selection, to).await;
    match written {
        Err(StoreError::Write(error)) => Err(error.into()),
        written => {
            to.flush()?;
            Ok(written?)
        }
    }
}

/// The session with this id, or the only one with this prefix.
async fn find<'a>(store: Option<&'a Store>, name: &str) -> Result<(&'a Store, SessionRow)> {
    let none = || format!("no session begins with {name:?}; see: trunkline sessions --all");
    let store = store.with_context(none)?;
    let mut found = store.sessions_beginning(name, MAX_MATCHES).await?;
    if let Some(at) = found.iter().position(|session| session.id.0 == name) {
        return Ok((store, found.swap_remove(at)));
    }
    if found.len() > 1 {
        let names: Vec<String> =
            found.iter().map(|session| format!("\n  {}  {}", session.id, plain(&session.title))).collect();
        bail!("several sessions begin with {name:?}:{}", names.concat());
    }
    Ok((store, found.pop().with_context(none)?))
}

fn heading(session: &SessionRow) -> String {
    let SessionRow { id, model, provider, repo, .. } = session;
    let forked = session.parent.as_ref().map(|parent| format!(", forked from {parent}")).unwrap_or_default();
    let by = if model == provider || provider.is_empty() { String::new() } else { format!(" by {provider}") };
    plain(&format!("session {id}: {model}{by} in {}, begun {}{forked}", repo.display(), minute(session.created)))
}

/// A turn as a conversation.
fn conversation_lines(turn: &TurnRow, events: &[EventRow]) -> Vec<String> {
    let mut lines = vec![String::new(), summary(turn), labelled("You", latest_user_text(&turn.prompt))];
    let mut tools = RunningTools::default();
    let mut last = None;
    for row in events {
        match &row.event {
            Event::Text { delta } if !delta.trim().is_empty() => {
                lines.push(labelled("Agent", delta));
                last = Some(delta.trim());
            }
            Event::ToolStarted { id, name, input } => {
                lines.push(format!("[Tool: {}]", call(name, input)));
                tools.started(id, name, input);
            }
            Event::ToolFinished { id, output, ok: false } => lines.push(format!("[{}]", tools.failed(id, output))),
            Event::Started { .. }
            | Event::Text { .. }
            | Event::Thinking { .. }
            | Event::ToolFinished { .. }
            | Event::ToolCall { .. }
            | Event::Notice { .. }
            | Event::Unknown { .. }
            | Event::Workspace(_)
            | Event::Attempted(_)
            | Event::Finished(_)
            | Event::Failed(_) => {}
        }
    }
    match (turn.outcome, turn.answer.as_deref().map(str::trim)) {
        (Some(RunOutcome::Ok), Some(answer)) if last != Some(answer) && !answer.is_empty() => {
            lines.push(labelled("Agent", answer))
        }
        (Some(RunOutcome::Failed(category)), Some(why)) => {
            lines.push(plain(&format!("failed ({}): {why}", category.name())))
        }
        (Some(_), _) => {}
        (None, _) => lines.push("(still running, or interrupted when its gateway ended)".to_owned()),
    }
    lines
}

/// A turn with all its events, one per line.
fn event_lines(turn: &TurnRow, events: &[EventRow]) -> Vec<String> {
    let mut lines = vec![String::new(), summary(turn), labelled("You", &turn.prompt)];
    for row in events {
        let json = serde_json::to_string(&row.event).unwrap_or_default();
        lines.push(plain(&format!("{:>5}  {json}", row.sequence)));
    }
    lines
}

fn summary(turn: &TurnRow) -> String {
    let outcome = turn.outcome.map_or("unfinished", RunOutcome::name);
    let surface = turn.surface.map_or("elsewhere", trunkline_store::Surface::name);
    let seconds = turn.duration.map(|time| format!(", {:.1} s", time.as_secs_f64())).unwrap_or_default();
    let about = if turn.usage.estimated { "about " } else { "" };
    let tokens = format!(", {about}{} tokens in, {} out", turn.usage.input_tokens, turn.usage.output_tokens);
    let tokens = if turn.outcome.is_some() { tokens } else { String::new() };
    let provider = turn.provider.as_deref().filter(|name| !name.is_empty() && *name != turn.model);
    let by = provider.map(|provider| format!(" by {provider}")).unwrap_or_default();
    plain(&format!("· {} {surface}: {}{by}, {outcome}{seconds}{tokens}", minute(turn.begun), turn.model))
}

fn labelled(speaker: &str, text: &str) -> String {
    format!("{speaker}: {}", plain(text.trim()))
}

/// To the minute, in UTC.
fn minute(time: Time) -> String {
    time.timestamp().strftime("%Y-%m-%d %H:%M").to_string()
}

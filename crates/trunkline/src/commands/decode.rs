//! `trunkline decode`: reads recorded CLI output from stdin and prints the decoded result as one JSON object.

use std::fs;
use std::io::{self, Read};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use clap::Args;
use serde_json::{Value, json};
use trunkline_core::event::Event;
use trunkline_core::failure::Failure;
use trunkline_core::parse::{Context, Decoder, Ending, Format};
use trunkline_core::provider::Provider;

use crate::config::{self, ConfigFolder, Environment};
use crate::exit::CliExit;
use crate::output::{say, tell};

/// Decode recorded CLI output (stdin) into events, content, usage and error
#[derive(Debug, Args)]
#[command(after_help = "Example: codex exec --json - <task.txt >out.jsonl 2>err.txt; \
    trunkline decode --provider codex --exit $? --stderr err.txt <out.jsonl")]
pub(crate) struct DecodeArgs {
    /// Provider whose output it is, by name or alias; `trunkline doctor` lists them
    #[arg(long)]
    provider: String,
    /// Output format: text, json, stream-json, or one that belongs to a CLI [default: the provider's own]
    #[arg(long, value_parser = format_named)]
    format: Option<Format>,
    /// Exit status of the CLI; a negative number is the signal that ended it
    #[arg(long, default_value_t = 0, allow_negative_numbers = true)]
    exit: i32,
    /// File with its stderr
    #[arg(long)]
    stderr: Option<PathBuf>,
    /// The CLI was stopped by a time limit
    #[arg(long)]
    timed_out: bool,
    /// Folder with your own providers.toml
    #[arg(long, value_name = "DIR", env = "TRUNKLINE_CONFIG")]
    config: Option<PathBuf>,
}

impl DecodeArgs {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let mut stdout = Vec::new();
        io::stdin().lock().read_to_end(&mut stdout).context("cannot read standard input")?;
        let stderr = match &self.stderr {
            Some(path) => {
                let bytes = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
                String::from_utf8_lossy(&bytes).into_owned()
            }
            None => String::new(),
        };
        let ending = match self.exit {
            _ if self.timed_out => Ending::TimedOut("the run was stopped by its time limit"),
            code if code < 0 => Ending::Signal(-code),
            code => Ending::Code(code),
        };
        let environment = Environment::read()?;
        let providers = config::providers(&ConfigFolder::find(self.config.clone(), &environment)?, &mut Vec::new())?;
        let provider = providers.values().find(|p| p.name == self.provider || p.aliases.contains(&self.provider));
        let provider = provider.map(AsRef::as_ref);
        let format = match self.chosen_format(provider) {
            Ok(format) => format,
            Err(error) => {
                tell(format_args!("trunkline: {error:#}"));
                return Ok(CliExit::Arguments.into());
            }
        };
        let context = Context {
            program: self.provider.clone(),
            rules: provider.map(|p| p.failures.clone()).unwrap_or_default(),
            noise: provider.map(|p| p.noise.clone()).unwrap_or_default(),
            ..Context::default()
        };
        say(decode(format, context, &stdout, ending, &stderr))?;
        Ok(ExitCode::SUCCESS)
    }

    /// The format to decode. A provider's own format reads both of its JSON forms, so `json` and `stream-json` select it.
    fn chosen_format(&self, provider: Option<&Provider>) -> Result<Format> {
        Ok(match (self.format, provider) {
            (Some(Format::Json | Format::StreamJson) | None, Some(provider)) => provider.format,
            (Some(format), _) => format,
            (None, None) => bail!(
                "unknown provider {:?}: give --format, or one of the providers of `trunkline doctor`",
                self.provider
            ),
        })
    }
}

fn format_named(name: &str) -> Result<Format, String> {
    let known = || format!("known formats: {}", Format::NAMES.join(", "));
    Format::ALL.into_iter().find(|format| format.name() == name).ok_or_else(known)
}

/// The object that `trunkline decode` prints.
fn decode(format: Format, context: Context, stdout: &[u8], ending: Ending<'_>, stderr: &str) -> Value {
    let mut decoder = Decoder::new(format, context);
    let mut events = decoder.push(stdout);
    let conclusion = decoder.conclude(ending, stderr, "");
    events.extend(conclusion.events);
    if let Some(failure) = &conclusion.failure {
        events.push(Event::Failed(failure.clone()));
    }
    json!({
        "content": conclusion.content,
        "events": events,
        "usage": {
            "input_tokens": conclusion.usage.input_tokens,
            "output_tokens": conclusion.usage.output_tokens,
            "estimated": conclusion.usage.estimated,
        },
        "session_id": conclusion.session,
        "error": conclusion.failure.as_ref().map(error),
    })
}

fn error(failure: &Failure) -> Value {
    let policy = failure.category.policy();
    json!({
        "category": failure.category,
        "message": failure.message,
        "retry": policy.retry,
        "fallback": policy.fallback,
        "retry_after_ms": failure.retry_after.map(|wait| wait.as_millis() as u64),
    })
}

//! A CLI run by hand: without the gateway, but with the arguments and the environment that the gateway gives it. The
//! gateway's own decoder reads its output, so that "first token" means the same in both cases.

use std::fs;
use std::process::Stdio;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::Command;
use trunkline_core::event::Event;
use trunkline_core::model::Normalize;
use trunkline_core::provider::Form;

use super::subject::BenchSubject;
use crate::conformance::environment::CliEnvironment;

/// Runs one turn; returns the seconds to the first token and to the exit of the program.
pub(crate) async fn turn(subject: &BenchSubject, environment: &CliEnvironment) -> Result<(f64, f64)> {
    let mut command = command(subject, environment)?;
    let prompt = subject.by_hand(environment)?.stdin.unwrap_or_default();
    let mut decoder = subject.provider.decoder(Normalize::None, Form::Streamed);
    let began = Instant::now();
    let mut child = command.spawn().with_context(|| format!("cannot start {}", subject.program.display()))?;
    let mut stdin = child.stdin.take().context("stdin is not piped")?;
    // A program that takes the prompt as an argument may not read its stdin.
    let _ = stdin.write_all(prompt.as_bytes()).await;
    drop(stdin);
    let mut stdout = child.stdout.take().context("stdout is not piped")?;
    let (mut first, mut bytes) = (None, vec![0; 64 * 1024]);
    loop {
        let read = stdout.read(&mut bytes).await?;
        if read == 0 {
            break;
        }
        let has_text = decoder.push(&bytes[..read]).iter().any(|event| matches!(event, Event::Text { .. }));
        if has_text && first.is_none() {
            first = Some(began.elapsed().as_secs_f64());
        }
    }
    let status = child.wait().await?;
    let total = began.elapsed().as_secs_f64();
    match first {
        Some(first) if status.success() => Ok((first, total)),
        Some(_) | None => bail!("{} by hand printed no text, or failed: {status}", subject.name),
    }
}

#[expect(clippy::disallowed_methods, reason = "the program is measured without the gateway")]
fn command(subject: &BenchSubject, environment: &CliEnvironment) -> Result<Command> {
    let line = subject.by_hand(environment)?;
    let mut command = Command::new(&subject.program);
    command
        .args(&line.args)
        .env_clear()
        .envs(subject.variables(environment, &line))
        .current_dir(&environment.repo)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true);
    if let Some(settings) = &subject.provider.settings {
        let file = environment.repo.with_file_name("settings.json");
        fs::write(&file, &settings.content)?;
        command.env(&settings.env, file);
    }
    Ok(command)
}

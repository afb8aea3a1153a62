//! A CLI run by hand: the program a person starts, with the arguments and the environment that the gateway gives it. Its
//! output is read by the gateway's own decoder, so that both mean the same by a first token.

use std::fs;
use std::process::Stdio;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::Command;
use trunkline_core::event::Event;
use trunkline_core::model::Normalize;
use trunkline_core::provider::Form;

use super::subject::Subject;
use crate::conformance::place::Place;

/// One turn: seconds to the first token, and to the program's end.
pub(crate) async fn turn(subject: &Subject, place: &Place) -> Result<(f64, f64)> {
    let mut command = command(subject, place)?;
    let prompt = subject.by_hand(place)?.stdin.unwrap_or_default();
    let mut decoder = subject.provider.decoder(Normalize::None, Form::Streamed);
    let began = Instant::now();
    let mut child = command.spawn().with_context(|| format!("cannot start {}", subject.program.display()))?;
    let mut stdin = child.stdin.take().context("it is piped")?;
    let _it_may_not_want_to_know = stdin.write_all(prompt.as_bytes()).await;
    drop(stdin);
    let mut stdout = child.stdout.take().context("it is piped")?;
    let (mut first, mut bytes) = (None, vec![0; 64 * 1024]);
    loop {
        let read = stdout.read(&mut bytes).await?;
        if read == 0 {
            break;
        }
        let spoke = decoder.push(&bytes[..read]).iter().any(|event| matches!(event, Event::Text { .. }));
        if spoke && first.is_none() {
            first = Some(began.elapsed().as_secs_f64());
        }
    }
    let status = child.wait().await?;
    let total = began.elapsed().as_secs_f64();
    match first {
        Some(first) if status.success() => Ok((first, total)),
        Some(_) | None => bail!("{} by hand said nothing, or failed: {status}", subject.name),
    }
}

#[expect(clippy::disallowed_methods, reason = "the program without the gateway is what is measured")]
fn command(subject: &Subject, place: &Place) -> Result<Command> {
    let line = subject.by_hand(place)?;
    let mut command = Command::new(&subject.program);
    command
        .args(&line.args)
        .env_clear()
        .envs(subject.environment(place, &line))
        .current_dir(&place.repo)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true);
    if let Some(settings) = &subject.provider.settings {
        let file = place.repo.with_file_name("settings.json");
        fs::write(&file, &settings.content)?;
        command.env(&settings.env, file);
    }
    Ok(command)
}

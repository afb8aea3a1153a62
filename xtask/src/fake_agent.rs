//! Fake CLI that speaks codex's format and costs almost nothing, for measuring and testing the gateway around it.
//!
//! `FAKE_AGENT` selects the mode: `noop` answers at once; `stream` prints 50 messages, 20 ms apart, each with its time of
//! printing; `hang` stops responding after its first message; `flood` prints 10 MB; `work` executes the task in its prompt;
//! `sessions` speaks Claude Code's format instead, and keeps conversations; so do the modes `lab…`, which answer clients.
//! Started as `app-server`, it stays alive and answers every turn at once. Started with a command of the provider protocol,
//! it answers in that format, at once.

mod fake_lab;
mod fake_live;
mod fake_provider;
mod fake_sessions;
mod fake_work;

use std::io::{Write, stdout};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

fn main() {
    if fake_work::sleep_if_daemon() {
        return;
    }
    let mode = mode();
    let mut out = stdout().lock();
    let mut line = |text: &str| {
        // The reader may have closed the pipe.
        let _ = writeln!(out, "{text}").and_then(|()| out.flush());
    };
    if fake_live::is_app_server() {
        return fake_live::serve(&mut line);
    }
    if mode.as_deref() == Some("sessions") {
        return fake_sessions::answer(&mut line);
    }
    if let Some(mode) = mode.as_deref().filter(|mode| mode.starts_with("lab")) {
        return fake_lab::answer(mode, &mut line);
    }
    if fake_provider::answer_command(&mut line) {
        return;
    }
    line(r#"{"type":"thread.started","thread_id":"01a1dc9b-98ad-7900-b3ff-2cd667be397c"}"#);
    match mode.as_deref() {
        Some("stream") => {
            for _ in 0..50 {
                std::thread::sleep(Duration::from_millis(20));
                let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos());
                line(&format!(r#"{{"type":"content","content":"<{now}>"}}"#));
            }
        }
        Some("flood") => flood(&mut line),
        Some("work") => fake_work::work(&mut line),
        Some("hang") => {
            line(r#"{"type":"content","content":"<0>"}"#);
            std::thread::sleep(Duration::from_secs(600));
        }
        Some(_) | None => {
            line(r#"{"type":"item.completed","item":{"id":"item_0","type":"agent_message","text":"ok"}}"#)
        }
    }
    line(r#"{"type":"turn.completed","usage":{"input_tokens":1,"output_tokens":1}}"#);
}

/// Prints 10 MB, a quarter each: one huge line, 40 tool outputs, an answer in small pieces, and lines that are not JSON.
fn flood(line: &mut impl FnMut(&str)) {
    const QUARTER_BYTES: usize = 10 * 1024 * 1024 / 4;
    let tool = |id: usize, size: usize| {
        let output = "x".repeat(size);
        format!(
            r#"{{"type":"item.completed","item":{{"id":"item_{id}","type":"command_execution","command":"make","aggregated_output":"{output}","exit_code":0,"status":"completed"}}}}"#
        )
    };
    line(&tool(0, QUARTER_BYTES));
    for id in 1..=40 {
        line(&tool(id, QUARTER_BYTES / 40));
    }
    let (piece, noise) = ("word ".repeat(50), "no JSON ".repeat(50));
    for _ in 0..QUARTER_BYTES / piece.len() {
        line(&format!(r#"{{"type":"content","content":"{piece}"}}"#));
    }
    for _ in 0..QUARTER_BYTES / noise.len() {
        line(&noise);
    }
}

#[expect(clippy::disallowed_methods, reason = "a separate program that is configured by its environment")]
fn mode() -> Option<String> {
    std::env::var("FAKE_AGENT").ok()
}

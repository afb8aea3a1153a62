//! Checks after the restart: asks the new gateway for everything that the old one has promised.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::client::{self, TurnRequest};
use super::finding::{AnswerFinding, AnswerFindingKind};
use super::later_verdict::{KnownConversation, judge_next_turn, judge_repetition};
use super::plan::AnswerKind;
use super::received::Received;
use super::run_verdict::{ClientKnowledge, LogAfterRestart, RunAfterRestart, judge_runs};
use super::world::AnswerWorld;

/// Limit for the new gateway to end the runs of the old one. Does not apply to runs whose answer is complete.
const INTERRUPT_TIMEOUT: Duration = Duration::from_secs(5);

/// A turn before the kill, and what its client received.
pub(super) struct SentTurn {
    pub(super) request: TurnRequest,
    pub(super) received: Received,
    /// The CLI's own id of the conversation, as the fake agent had recorded it before the restart.
    pub(super) native: Option<String>,
}

impl SentTurn {
    fn knowledge(&self) -> ClientKnowledge {
        let Received { run, session, text, .. } = &self.received;
        let complete = self.received.is_complete();
        ClientKnowledge {
            complete,
            run: run.clone(),
            session: session.clone(),
            text: text.clone().filter(|_| complete),
        }
    }
}

/// Runs all checks. `turns` are all turns before the kill, the last one at the kill.
pub(super) fn all(world: &AnswerWorld<'_>, kind: AnswerKind, turns: &[SentTurn]) -> Vec<AnswerFinding> {
    let mut findings = Vec::new();
    for turn in turns {
        let client = turn.knowledge();
        let runs = runs_of(world.address, turn, &client);
        let starts = world.starts(&turn.request.work);
        findings.extend(judge_runs(&client, &runs, &starts));
        if turn.request.key.is_some() {
            let repeated = turn.request.send(world.address);
            let after = world.starts(&turn.request.work);
            findings.extend(judge_repetition(&client, &runs, (&starts, &after), &repeated));
        }
    }
    findings.extend(resume(world, kind, turns));
    findings
}

/// The runs of a request: the one that the client knows, and those in the list of runs.
fn runs_of(address: SocketAddr, turn: &SentTurn, client: &ClientKnowledge) -> Vec<RunAfterRestart> {
    // Read first, because the promise of a complete answer holds at once.
    let known = client.run.as_ref().map(|run| client::get(address, &format!("/v1/runs/{run}")).reply.json());
    let list = client::get(address, "/v1/runs?limit=100").reply.json();
    let task = format!("\"work\":\"{}\"", turn.request.work);
    let is_ours = |row: &&Value| row["prompt"].as_str().is_some_and(|prompt| prompt.contains(&task));
    let listed: BTreeSet<String> = list["data"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(is_ours)
        .filter_map(|row| row["id"].as_str().map(str::to_owned))
        .collect();
    let ids: BTreeSet<String> = listed.iter().cloned().chain(client.run.clone()).collect();
    ids.into_iter()
        .map(|id| {
            let row = match &known {
                Some(row) if client.complete && client.run.as_ref() == Some(&id) => row.clone(),
                Some(_) | None => ended_row(address, &id),
            };
            let state = row["state"].as_str().map(str::to_owned);
            let log = if state.is_some() { log_of(address, &id) } else { LogAfterRestart::default() };
            let (session, listed) = (row["session"].as_str().map(str::to_owned), listed.contains(&id));
            RunAfterRestart { id, state, session, listed, log }
        })
        .collect()
}

/// The row of a run, once the run has ended or the limit has passed.
fn ended_row(address: SocketAddr, run: &str) -> Value {
    let deadline = Instant::now() + INTERRUPT_TIMEOUT;
    loop {
        let row = client::get(address, &format!("/v1/runs/{run}")).reply.json();
        let in_progress = matches!(row["state"].as_str(), Some("queued" | "running"));
        if !in_progress || Instant::now() >= deadline {
            return row;
        }
        sleep(Duration::from_millis(5));
    }
}

fn log_of(address: SocketAddr, run: &str) -> LogAfterRestart {
    let events = client::get_events(address, run);
    LogAfterRestart::parse(&events.reply.frames())
}

/// Sends the next turn of the session that the client got with the last complete answer.
fn resume(world: &AnswerWorld<'_>, kind: AnswerKind, turns: &[SentTurn]) -> Vec<AnswerFinding> {
    let Some(last) = turns.iter().rev().find(|turn| turn.received.is_complete()) else { return Vec::new() };
    let Some(session) = last.received.session.clone() else {
        return vec![AnswerFindingKind::LostSession.finding("a complete answer names no session")];
    };
    // No start for a complete answer is a finding of its own.
    let Some(native) = last.native.clone() else { return Vec::new() };
    let conversation = KnownConversation { session: session.clone(), native };
    let mut next = TurnRequest::at_once(&format!("{}-next", last.request.work));
    if kind == AnswerKind::History {
        let answer = serde_json::json!({"role": "assistant", "content": last.received.text});
        next.history = vec![last.request.message(), answer];
    } else {
        next.session = Some(session);
    }
    let reply = next.send(world.address);
    judge_next_turn(&conversation, &world.starts(&next.work), &reply)
}

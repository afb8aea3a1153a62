//! One round: turns, the kill, the restart, the checks.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::check::{self, SentTurn};
use super::client::TurnRequest;
use super::finding::{AnswerFinding, AnswerFindingKind};
use super::plan::{AnswerForm, LagEstimate, RoundPlan};
use super::received::{Received, ReceivedEnd};
use super::table::{AnswerRound, ClientProgress};
use super::world::{AnswerWorld, Programs};

/// Time before an instant that is spent waiting actively, because sleeping is not precise.
const SPIN_TIME: Duration = Duration::from_millis(1);

/// Runs one round. A round that cannot be carried out is a finding, too.
pub(super) fn run(
    programs: &Programs,
    number: u32,
    plan: RoundPlan,
    delete_index: bool,
    lag: &mut LagEstimate,
) -> AnswerRound {
    let began = Instant::now();
    let mut round = AnswerRound {
        number,
        plan,
        progress: ClientProgress::Cut,
        killed_after: None,
        took: Duration::ZERO,
        findings: Vec::new(),
        kept: None,
    };
    match AnswerWorld::new(programs) {
        Ok(mut world) => {
            let findings = play(&mut world, &mut round, delete_index, lag);
            round.findings = findings.unwrap_or_else(|error| vec![broken(&error)]);
            round.took = began.elapsed();
            if !round.findings.is_empty() {
                round.kept = Some(world.keep(&report(&round)));
            }
        }
        Err(error) => round.findings = vec![broken(&error)],
    }
    round
}

fn broken(error: &anyhow::Error) -> AnswerFinding {
    AnswerFindingKind::Broken.finding(format!("{error:#}"))
}

fn report(round: &AnswerRound) -> String {
    let findings: Vec<String> = round.findings.iter().map(ToString::to_string).collect();
    format!("{:?}\nkilled {} after the last byte\n{}\n", round.plan, round.kill(), findings.join("\n"))
}

fn play(
    world: &mut AnswerWorld<'_>,
    round: &mut AnswerRound,
    delete_index: bool,
    lag: &mut LagEstimate,
) -> Result<Vec<AnswerFinding>> {
    let plan = round.plan.clone();
    let mut turns = Vec::new();
    let mut session = None;
    if plan.kind.continues_session() {
        let request = TurnRequest::at_once("first");
        let received = request.send(world.address);
        ensure!(received.is_complete(), "the first turn has no answer: {received:?}");
        session = Some(received.session.clone().context("the first turn has no session")?);
        turns.push(sent(world, request, received));
    }
    let mut request = TurnRequest::new("last", plan.form, plan.delay, plan.words);
    request.key = plan.kind.has_key().then(|| format!("key-{}", plan.seed));
    request.session = session;
    let (received, killed) = send_and_kill(world, &plan, &request, lag);
    round.killed_after = received.last_byte.map(|last_byte| millis_after(last_byte, killed));
    round.progress = match (received.is_complete(), received.accepted) {
        (true, _) => ClientProgress::Complete,
        (false, true) => ClientProgress::Accepted,
        (false, false) => ClientProgress::Cut,
    };
    let expected = if plan.form == AnswerForm::Accepted { ReceivedEnd::Waiting } else { ReceivedEnd::Complete };
    let cut_by_kill = plan.kill_micros < 0 && received.end == ReceivedEnd::Cut;
    ensure!(received.end == expected || cut_by_kill, "the turn has no answer before the kill: {received:?}");
    world.wait()?;
    turns.push(sent(world, request, received));
    world.copy_state()?;
    if delete_index {
        world.delete_index()?;
    }
    world.start().context("the gateway does not start again")?;
    Ok(check::all(world, plan.kind, &turns))
}

fn sent(world: &AnswerWorld<'_>, request: TurnRequest, received: Received) -> SentTurn {
    let native = world.starts(&request.work).pop().map(|start| start.native);
    SentTurn { request, received, native }
}

/// Sends the request and kills the gateway at the planned instant. Returns the time of the kill.
fn send_and_kill(
    world: &AnswerWorld<'_>,
    plan: &RoundPlan,
    request: &TurnRequest,
    lag: &mut LagEstimate,
) -> (Received, Instant) {
    let cause = if plan.form == AnswerForm::Accepted { Instant::now() } else { request.answer_at };
    let offset = Duration::from_micros(plan.kill_micros.unsigned_abs());
    if plan.kill_micros < 0 {
        let predicted = cause + lag.get(plan.form);
        return std::thread::scope(|scope| {
            let killer = scope.spawn(|| {
                wait_until(predicted.checked_sub(offset).unwrap_or(predicted));
                world.kill()
            });
            let received = request.send(world.address);
            (received, killer.join().expect("the killer does not panic"))
        });
    }
    let mut received = request.send(world.address);
    let last_byte = received.last_byte.unwrap_or_else(Instant::now);
    if plan.closes {
        received.connection = None;
    }
    wait_until(last_byte + offset);
    let killed = world.kill();
    lag.add(plan.form, last_byte.saturating_duration_since(cause));
    (received, killed)
}

/// Waits until an instant, precisely.
fn wait_until(instant: Instant) {
    std::thread::sleep(instant.saturating_duration_since(Instant::now()).saturating_sub(SPIN_TIME));
    while Instant::now() < instant {
        std::hint::spin_loop();
    }
}

/// Milliseconds from one instant to another, negative if the other is earlier.
fn millis_after(from: Instant, to: Instant) -> f64 {
    let millis = |duration: Duration| duration.as_secs_f64() * 1000.0;
    millis(to.saturating_duration_since(from)) - millis(from.saturating_duration_since(to))
}

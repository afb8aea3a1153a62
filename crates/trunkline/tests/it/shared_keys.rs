//! One idempotency key at two gateways on one state folder.

use std::collections::HashSet;

use serde_json::json;
use trunkline_core::event::{Answer, Event, Finish, Usage};
use trunkline_store::{
    ClientId, Durability, LogRecord, LogWriter, Purpose, RunAccepted, RunEnded, RunLogEntry, RunOutcome, Time, log_line,
};

use crate::database::Database;
use crate::observe::until;
use crate::test_gateway::TestGateway;

fn gateway(script: &str) -> TestGateway {
    TestGateway::new().cli("codex", script).model("m", json!({"driver": "codex"})).start()
}

#[test]
fn request_runs_once_when_two_gateways_get_its_key_at_the_same_time() {
    const ROUNDS: usize = 10;
    let gateway = gateway("codex_answers \"$(counted)\"");
    let other = gateway.second_gateway();
    let mut answers = HashSet::new();
    for round in 0..ROUNDS {
        let key = format!("key-{round}");
        let text = format!("round {round}");
        // Neither is read before both are sent.
        let pending =
            [other.chat("m", &text), gateway.chat(&text)].map(|chat| chat.header("idempotency-key", &key).open());
        let [one, two] = pending.map(|reply| reply.finish());
        assert_eq!((one.status, &one.body), (200, &two.body), "{two:?}");
        let replayed = [&one, &two].map(|reply| reply.header("idempotent-replayed") == Some("true"));
        assert_ne!(replayed[0], replayed[1], "one of them started the run");
        assert_eq!(one.header("x-trunkline-run"), two.header("x-trunkline-run"));
        answers.insert(one.content());
    }
    assert_eq!(gateway.read_note("codex.runs").lines().count(), ROUNDS);
    assert_eq!(answers.len(), ROUNDS);
}

/// The run that the first process has claimed the key for. It sorts before all others.
const CLAIMED: &str = "01900000-0000-7000-8000-000000000001";

/// Writes records of a run, as another process does.
fn write(log: &LogWriter, run: &str, records: &[LogRecord]) {
    let mut lines = Vec::new();
    for record in records {
        log_line(&mut lines, run, record);
    }
    log.append(&lines, Purpose::Accept, |_| ()).unwrap();
}

#[test]
fn second_gateway_waits_when_the_first_has_claimed_a_key_and_not_recorded_its_run() {
    let gateway = gateway("codex_answers \"$(counted)\"");
    let other = gateway.second_gateway();
    let first = gateway.chat("hi").header("idempotency-key", "k").send();
    assert_eq!(first.content(), "1");
    let mut database = Database::open(&gateway.path("state/trunkline.db"));
    until("the index has the first run", || database.all("SELECT state FROM turns") == ["finished"]);
    // As if the first gateway had claimed the key for another run just now. The second deletes the key that has expired.
    database.run("UPDATE repeats SET run = '01900000-0000-7000-8000-000000000001'");
    database.run("INSERT INTO repeats VALUES ('nobody', zeroblob(32), zeroblob(32), 'expired', 0, NULL)");
    let mark = database.all("SELECT gateway FROM repeats WHERE gateway IS NOT NULL").remove(0);
    let waiting = other.chat("m", "hi").header("idempotency-key", "k").open();
    until("the second gateway has found the claim", || {
        database.all("SELECT run FROM repeats") == ["01900000-0000-7000-8000-000000000001"]
    });
    // It reads the log again and again until the run is there, and thereby finds other runs.
    let log = LogWriter::new(&gateway.path("state"), Durability::Process);
    let accepted = || {
        let (at, owner, gateway) = (Time::now(), ClientId::local(), mark.clone());
        LogRecord::Accepted(RunAccepted { at, owner, gateway, model: "m".into(), ..RunAccepted::default() }.into())
    };
    for run in ["01900000-0000-7000-8000-00000000000a", "01900000-0000-7000-8000-00000000000b"] {
        write(&log, run, &[accepted()]);
        until("the second gateway has read the log", || {
            database.all("SELECT run FROM turns").iter().any(|found| found == run)
        });
    }
    let answer = Event::Finished(Answer::new("from the first", Usage::default(), Finish::Stop));
    let ended = RunEnded {
        at: Time::now(),
        provider: "codex".into(),
        outcome: RunOutcome::Ok,
        message: None,
        interrupted: false,
        usage: Usage::default(),
        duration: std::time::Duration::ZERO,
        session: None,
        attempts: 1,
        log: None,
        key_released: false,
    };
    let event = LogRecord::Event(Box::new(RunLogEntry { seq: 0, at: 0, by: None, event: answer }));
    write(&log, CLAIMED, &[accepted(), event, LogRecord::Ended(ended.into())]);
    let reply = waiting.finish();
    assert_eq!((reply.content().as_str(), reply.header("idempotent-replayed")), ("from the first", Some("true")));
    assert_eq!(gateway.read_note("codex.runs").lines().count(), 1, "nothing ran again");
}

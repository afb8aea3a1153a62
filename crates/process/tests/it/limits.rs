//! Tests the limits of a program, one by one.

use std::time::{Duration, Instant};

use trunkline_core::limits::{Limit, Limits};
use trunkline_core::phase::Phase;
use trunkline_process::{Cut, ProcessEvent, ProcessExit};

use crate::keeper_test::{KeeperTest, lines};

const SHORT: Duration = Duration::from_millis(150);

fn limit_of(event: ProcessEvent) -> Limit {
    match event {
        ProcessEvent::Limit(overrun) => overrun.limit,
        ProcessEvent::Stdout(_) | ProcessEvent::Exited(_) => panic!("{event:?}"),
    }
}

fn bash() -> Phase {
    Phase::Tool { names: vec!["Bash".to_owned()] }
}

#[tokio::test]
async fn startup_limit_applies_before_first_output() {
    let test = KeeperTest::new();
    let mut spec = test.script("echo busy >&2; sleep 1000");
    spec.limits = Limits { startup: SHORT, ..Limits::NONE };
    let mut running = test.keepers.spawn(spec).await.unwrap();
    assert_eq!(limit_of(running.next().await), Limit::Startup);
    assert_eq!(running.stderr_tail(), "busy\n");
    assert_eq!(running.stop().await, ProcessExit::Signal(15));
    test.keepers.shutdown().await;
}

#[tokio::test]
async fn idle_limit_applies_after_first_output() {
    let test = KeeperTest::new();
    let mut spec = test.script("echo hello; sleep 1000");
    spec.limits = Limits { idle: SHORT, startup: Duration::from_secs(60), ..Limits::NONE };
    let mut running = test.keepers.spawn(spec).await.unwrap();
    assert_eq!(lines(&mut running, 1).await, ["hello"]);
    assert_eq!(limit_of(running.next().await), Limit::Idle);
    test.keepers.shutdown().await;
}

#[tokio::test]
async fn tool_limit_applies_while_a_tool_runs() {
    let test = KeeperTest::new();
    let mut spec = test.script("echo hello; sleep 1000");
    spec.limits = Limits { idle: SHORT, tool: 4 * SHORT, ..Limits::NONE };
    let start = Instant::now();
    let mut running = test.keepers.spawn(spec).await.unwrap();
    assert_eq!(lines(&mut running, 1).await, ["hello"]);
    running.enter(bash());
    let ProcessEvent::Limit(overrun) = running.next().await else { panic!() };
    assert_eq!((overrun.limit, overrun.value, overrun.phase), (Limit::Tool, 4 * SHORT, bash()));
    assert!(start.elapsed() >= 4 * SHORT);
    test.keepers.shutdown().await;
}

#[tokio::test]
async fn limit_is_noticed_when_output_never_pauses() {
    let test = KeeperTest::new();
    for flood in ["exec yes", "exec yes >&2", "yes >&2 & exec yes"] {
        let mut spec = test.script(flood);
        spec.limits = Limits { total: SHORT, ..Limits::NONE };
        let mut running = test.keepers.spawn(spec).await.unwrap();
        let limit = loop {
            match running.next().await {
                ProcessEvent::Stdout(_) => {}
                event @ (ProcessEvent::Exited(_) | ProcessEvent::Limit(_)) => break event,
            }
        };
        assert_eq!(limit_of(limit), Limit::Total, "{flood}");
        assert_eq!(running.stop().await, ProcessExit::Signal(15), "{flood}");
    }
    test.keepers.shutdown().await;
}

#[tokio::test]
async fn output_does_not_extend_the_total_limit() {
    let test = KeeperTest::new();
    let mut spec = test.script("while :; do echo tick; sleep 0.01; done");
    spec.limits = Limits { total: 2 * SHORT, idle: SHORT, startup: SHORT, ..Limits::NONE };
    let mut running = test.keepers.spawn(spec).await.unwrap();
    let limit = loop {
        match running.next().await {
            ProcessEvent::Stdout(_) => {}
            event @ (ProcessEvent::Exited(_) | ProcessEvent::Limit(_)) => break event,
        }
    };
    assert_eq!(limit_of(limit), Limit::Total);
    assert!(
        matches!(running.next().await, ProcessEvent::Stdout(_)),
        "reported once; the program runs until it is stopped"
    );
    test.keepers.shutdown().await;
}

#[tokio::test]
async fn collecting_output_stops_at_a_limit() {
    let test = KeeperTest::new();
    let mut spec = test.script("echo some; sleep 1000");
    spec.limits = Limits { total: SHORT, ..Limits::NONE };
    let output = test.keepers.output(spec).await.unwrap();
    assert_eq!((&output.stdout[..], output.exit), (&b"some\n"[..], ProcessExit::Signal(15)));
    let Some(Cut::Limit(overrun)) = output.cut else { panic!("{:?}", output.cut) };
    assert_eq!((overrun.limit, overrun.value), (Limit::Total, SHORT));
    test.keepers.shutdown().await;
}

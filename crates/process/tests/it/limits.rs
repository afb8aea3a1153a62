//! Runs that take too long, each in its own way.

use std::time::{Duration, Instant};

use trunkline_core::limits::{Limit, Limits};
use trunkline_core::phase::Phase;
use trunkline_process::{Cut, Exit, Step};

use crate::stage::{Stage, lines};

const SHORT: Duration = Duration::from_millis(150);

fn limit_of(step: Step) -> Limit {
    match step {
        Step::Limit(overrun) => overrun.limit,
        Step::Stdout(_) | Step::Exited(_) => panic!("{step:?}"),
    }
}

fn bash() -> Phase {
    Phase::Tool { names: vec!["Bash".to_owned()] }
}

#[tokio::test]
async fn silence_before_the_first_word() {
    let stage = Stage::new();
    let mut spec = stage.script("echo busy >&2; sleep 1000");
    spec.limits = Limits { startup: SHORT, ..Limits::NONE };
    let mut running = stage.keepers.spawn(spec).await.unwrap();
    assert_eq!(limit_of(running.next().await), Limit::Startup);
    assert_eq!(running.stderr_tail(), "busy\n");
    assert_eq!(running.stop().await, Exit::Signal(15));
    stage.keepers.shutdown().await;
}

#[tokio::test]
async fn silence_after_it() {
    let stage = Stage::new();
    let mut spec = stage.script("echo hello; sleep 1000");
    spec.limits = Limits { idle: SHORT, startup: Duration::from_secs(60), ..Limits::NONE };
    let mut running = stage.keepers.spawn(spec).await.unwrap();
    assert_eq!(lines(&mut running, 1).await, ["hello"]);
    assert_eq!(limit_of(running.next().await), Limit::Idle);
    stage.keepers.shutdown().await;
}

#[tokio::test]
async fn a_tool_may_be_silent_but_not_for_ever() {
    let stage = Stage::new();
    let mut spec = stage.script("echo hello; sleep 1000");
    spec.limits = Limits { idle: SHORT, tool: 4 * SHORT, ..Limits::NONE };
    let start = Instant::now();
    let mut running = stage.keepers.spawn(spec).await.unwrap();
    assert_eq!(lines(&mut running, 1).await, ["hello"]);
    running.enter(bash());
    let Step::Limit(overrun) = running.next().await else { panic!() };
    assert_eq!((overrun.limit, overrun.value, overrun.phase), (Limit::Tool, 4 * SHORT, bash()));
    assert!(start.elapsed() >= 4 * SHORT);
    stage.keepers.shutdown().await;
}

#[tokio::test]
async fn a_flood_does_not_hide_the_limit() {
    let stage = Stage::new();
    for flood in ["exec yes", "exec yes >&2", "yes >&2 & exec yes"] {
        let mut spec = stage.script(flood);
        spec.limits = Limits { total: SHORT, ..Limits::NONE };
        let mut running = stage.keepers.spawn(spec).await.unwrap();
        let limit = loop {
            match running.next().await {
                Step::Stdout(_) => {}
                step @ (Step::Exited(_) | Step::Limit(_)) => break step,
            }
        };
        assert_eq!(limit_of(limit), Limit::Total, "{flood}");
        assert_eq!(running.stop().await, Exit::Signal(15), "{flood}");
    }
    stage.keepers.shutdown().await;
}

#[tokio::test]
async fn chatter_does_not_stretch_the_total() {
    let stage = Stage::new();
    let mut spec = stage.script("while :; do echo tick; sleep 0.01; done");
    spec.limits = Limits { total: 2 * SHORT, idle: SHORT, startup: SHORT, ..Limits::NONE };
    let mut running = stage.keepers.spawn(spec).await.unwrap();
    let limit = loop {
        match running.next().await {
            Step::Stdout(_) => {}
            step @ (Step::Exited(_) | Step::Limit(_)) => break step,
        }
    };
    assert_eq!(limit_of(limit), Limit::Total);
    assert!(matches!(running.next().await, Step::Stdout(_)), "said once; the run goes on until it is stopped");
    stage.keepers.shutdown().await;
}

#[tokio::test]
async fn collecting_stops_at_a_limit() {
    let stage = Stage::new();
    let mut spec = stage.script("echo some; sleep 1000");
    spec.limits = Limits { total: SHORT, ..Limits::NONE };
    let output = stage.keepers.output(spec).await.unwrap();
    assert_eq!((&output.stdout[..], output.exit), (&b"some\n"[..], Exit::Signal(15)));
    let Some(Cut::Limit(overrun)) = output.cut else { panic!("{:?}", output.cut) };
    assert_eq!((overrun.limit, overrun.value), (Limit::Total, SHORT));
    stage.keepers.shutdown().await;
}

//! How runs end: by themselves, when asked, and when they must. Nothing of them may be left.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::{Duration, Instant};

use trunkline_process::{Exit, SpawnError, Step, StopSignal};

use crate::stage::{Stage, all_gone, children, executable, hear, lines, pids, state, until};

const SHORT: Duration = Duration::from_millis(100);

#[tokio::test]
async fn codes_and_signals_are_reported() {
    let stage = Stage::new();
    for (script, exit) in [
        ("exit 0", Exit::Code(0)),
        ("exit 77", Exit::Code(77)),
        ("kill -9 $$", Exit::Signal(9)),
        ("kill -SEGV $$", Exit::Signal(11)),
        ("kill -PIPE $$", Exit::Signal(13)),
    ] {
        let mut running = stage.start(script).await;
        assert_eq!(hear(&mut running).await.1, exit, "{script}");
        assert_eq!(running.next().await, Step::Exited(exit), "said again if asked again");
    }
    stage.keepers.shutdown().await;
}

#[tokio::test]
async fn the_signal_is_the_one_asked_for() {
    let stage = Stage::new();
    for (stop, said) in [(StopSignal::Term, "term\n"), (StopSignal::Int, "int\n")] {
        let mut spec = stage
            .script("trap 'echo term >said; exit 1' TERM; trap 'echo int >said; exit 1' INT; echo; sleep 1000 & wait");
        spec.stop = stop;
        let mut running = stage.keepers.spawn(spec).await.unwrap();
        lines(&mut running, 1).await;
        assert_eq!(running.stop().await, Exit::Code(1));
        assert_eq!(std::fs::read_to_string(stage.folder().join("said")).unwrap(), said);
    }
    stage.keepers.shutdown().await;
}

#[tokio::test]
async fn all_it_printed_is_heard_by_who_wants_to_hear_it() {
    let stage = Stage::new();
    let running = stage.start("trap 'echo two; exit 4' TERM; echo one; : >begun; sleep 1000 & wait").await;
    // Nobody has asked for a step yet: what it printed is in its pipe.
    until("it has begun", || stage.folder().join("begun").exists()).await;
    let mut heard = Vec::new();
    assert_eq!(running.stop_hearing(|chunk| heard.extend_from_slice(chunk)).await, Exit::Code(4));
    assert_eq!(String::from_utf8(heard).unwrap(), "one\ntwo\n");
    stage.keepers.shutdown().await;
}

#[tokio::test]
async fn case_39_what_ignores_the_signal_is_killed_after_the_grace() {
    let stage = Stage::new();
    let mut spec = stage.script("trap '' TERM; echo $$; while :; do sleep 1000; done");
    spec.grace = SHORT;
    let mut running = stage.keepers.spawn(spec).await.unwrap();
    let main = pids(&mut running, 1).await;
    let start = Instant::now();
    assert_eq!(running.stop().await, Exit::Signal(9));
    assert!(start.elapsed() >= SHORT);
    assert_eq!(state(main[0]), None);
    stage.keepers.shutdown().await;
}

#[tokio::test]
async fn case_39_a_stopped_process_is_woken_to_be_stopped() {
    let stage = Stage::new();
    let mut running = stage.start("trap 'exit 5' TERM; echo $$; kill -STOP $$").await;
    let main = pids(&mut running, 1).await[0];
    until("it is stopped", || state(main) == Some('T')).await;
    assert_eq!(running.stop().await, Exit::Code(5));
    stage.keepers.shutdown().await;
}

#[tokio::test]
async fn case_40_daemons_die_with_the_main_process_and_do_not_hold_it_up() {
    let stage = Stage::new();
    for daemon in [
        "setsid sleep 1000 & echo $!",
        "(setsid sleep 1000 & echo $!)",
        "(env -i setsid sleep 1000 & echo $!)",
        "(setsid sh -c 'trap \"\" TERM HUP INT; sleep 1000 & wait' & echo $!)",
    ] {
        let start = Instant::now();
        let mut running = stage.start(&format!("{daemon}; exit 0")).await;
        let daemon = pids(&mut running, 1).await;
        assert_eq!(hear(&mut running).await, (String::new(), Exit::Code(0)));
        // Its stdout was open in the daemon all along.
        assert!(start.elapsed() < Duration::from_secs(10));
        let keeper = running.keeper();
        running.finish(Duration::from_secs(60)).await;
        assert_eq!(state(daemon[0]), None);
        assert!(children(keeper).is_empty());
    }
    stage.keepers.shutdown().await;
}

#[tokio::test]
async fn dropping_a_run_ends_the_whole_tree() {
    let stage = Stage::new();
    let mut spec = stage.script(
        "trap '' TERM; echo $$; setsid sleep 1000 & echo $!; (env -i setsid sleep 1000 & echo $!); sleep 1000 & echo $!; wait",
    );
    spec.grace = SHORT;
    let mut running = stage.keepers.spawn(spec).await.unwrap();
    let tree = pids(&mut running, 4).await;
    assert!(tree.iter().all(|&pid| state(pid).is_some()));
    let keeper = running.keeper();
    drop(running);
    all_gone(&tree).await;
    until("the keeper is back", || children(keeper).is_empty()).await;
    stage.keepers.shutdown().await;
}

#[tokio::test]
async fn a_dropped_run_is_still_drained() {
    let stage = Stage::new();
    let script = "trap 'head -c 1000000 /dev/zero; echo >cleaned; exit' TERM; echo; while :; do sleep 0.01; done";
    let mut running = stage.start(script).await;
    lines(&mut running, 1).await;
    drop(running);
    until("it cleaned up", || stage.folder().join("cleaned").exists()).await;
    stage.keepers.shutdown().await;
}

#[tokio::test]
async fn a_released_run_may_end_by_itself() {
    let stage = Stage::new();
    let script = "echo answer; while ! test -e go; do sleep 0.01; done; head -c 1000000 /dev/zero; echo >ended";
    let mut running = stage.start(script).await;
    lines(&mut running, 1).await;
    running.release(Duration::from_secs(60));
    std::fs::write(stage.folder().join("go"), "").unwrap();
    until("it ended", || stage.folder().join("ended").exists()).await;
    stage.keepers.shutdown().await;
}

#[tokio::test]
async fn finishing_waits_for_the_linger_and_then_stops() {
    let stage = Stage::new();
    let mut running = stage.start("echo answer; exec sleep 1000").await;
    lines(&mut running, 1).await;
    let main = running.pid();
    let start = Instant::now();
    assert_eq!(running.finish(SHORT).await, Exit::Signal(15));
    assert!(start.elapsed() >= SHORT);
    assert_eq!(state(main), None);
    let mut running = stage.start("echo answer; exit 6").await;
    lines(&mut running, 1).await;
    assert_eq!(running.finish(Duration::from_secs(60)).await, Exit::Code(6));
    stage.keepers.shutdown().await;
}

#[tokio::test]
async fn case_41_a_program_that_closes_its_output_and_stays_is_stopped() {
    let stage = Stage::new();
    let mut running = stage.start("echo answer; exec sleep 1000 >&- 2>&-").await;
    assert_eq!(hear(&mut running).await, ("answer\n".into(), Exit::Signal(15)));
    assert!(running.was_mute());
    stage.keepers.shutdown().await;
}

#[tokio::test]
async fn case_51_what_forks_faster_than_one_can_look_is_caught() {
    let stage = Stage::new();
    let hop = stage.folder().join("hop");
    executable(&hop, "#!/bin/sh\nsetsid \"$0\" &\n");
    let mut running = stage.start("./hop; exit 0").await;
    assert_eq!(hear(&mut running).await.1, Exit::Code(0));
    let keeper = running.keeper();
    running.finish(Duration::from_secs(60)).await;
    assert!(children(keeper).is_empty());
    assert!(stage.residents().is_empty());
    stage.keepers.shutdown().await;
}

#[tokio::test]
async fn a_cancelled_start_leaves_nothing() {
    let stage = Stage::new();
    for _ in 0..20 {
        let start = pin!(stage.keepers.spawn(stage.script("exec sleep 1000")));
        let polled = poll_immediately(start).await;
        assert!(polled.is_pending(), "the request is sent, the answer is not here yet");
    }
    until("all are gone", || stage.residents().is_empty()).await;
    stage.keepers.shutdown().await;
}

#[tokio::test]
async fn shutting_down_ends_everything_and_refuses_more() {
    let stage = Stage::new();
    let mut busy = stage.start("trap '' TERM; echo $$; setsid sleep 1000 & echo $!; wait").await;
    let tree = pids(&mut busy, 2).await;
    let mut polite = stage.start("trap 'echo >polite; exit' TERM; echo; sleep 1000 & wait").await;
    lines(&mut polite, 1).await;
    let keepers = [busy.keeper(), polite.keeper()];
    drop(polite);
    stage.keepers.shutdown().await;
    assert!(tree.iter().chain(&keepers).all(|&pid| state(pid).is_none()));
    assert!(stage.folder().join("polite").exists(), "a run being stopped keeps its grace");
    assert_eq!(hear(&mut busy).await.1, Exit::Signal(9));
    let error = stage.keepers.spawn(stage.script("true")).await.unwrap_err();
    assert!(matches!(error, SpawnError::ShutDown), "{error:?}");
}

#[tokio::test]
async fn shutting_down_does_not_wait_for_a_linger() {
    let stage = Stage::new();
    let mut running = stage.start("trap 'exit 1' TERM; echo; sleep 1000 & wait").await;
    lines(&mut running, 1).await;
    let main = running.pid();
    running.release(Duration::from_secs(1000));
    stage.keepers.shutdown().await;
    assert_eq!(state(main), None);
}

async fn poll_immediately<F: Future>(mut future: Pin<&mut F>) -> Poll<F::Output> {
    poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx))).await
}

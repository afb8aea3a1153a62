//! Tests how programs end: by themselves, when asked, and when killed. No process may be left.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::{Duration, Instant};

use trunkline_process::{ProcessEvent, ProcessExit, SpawnError, StopSignal};

use crate::keeper_test::{KeeperTest, all_gone, children, executable, lines, pids, read_all, state, until};

const SHORT: Duration = Duration::from_millis(100);

#[tokio::test]
async fn exit_codes_and_signals_are_reported() {
    let test = KeeperTest::new();
    for (script, exit) in [
        ("exit 0", ProcessExit::Code(0)),
        ("exit 77", ProcessExit::Code(77)),
        ("kill -9 $$", ProcessExit::Signal(9)),
        ("kill -SEGV $$", ProcessExit::Signal(11)),
        ("kill -PIPE $$", ProcessExit::Signal(13)),
    ] {
        let mut running = test.start(script).await;
        assert_eq!(read_all(&mut running).await.1, exit, "{script}");
        assert_eq!(running.next().await, ProcessEvent::Exited(exit), "repeated if asked again");
    }
    test.keepers.shutdown().await;
}

#[tokio::test]
async fn stop_signal_is_the_one_of_the_spec() {
    let test = KeeperTest::new();
    for (stop, expected) in [(StopSignal::Term, "term\n"), (StopSignal::Int, "int\n")] {
        let mut spec = test
            .script("trap 'echo term >said; exit 1' TERM; trap 'echo int >said; exit 1' INT; echo; sleep 1000 & wait");
        spec.stop = stop;
        let mut running = test.keepers.spawn(spec).await.unwrap();
        lines(&mut running, 1).await;
        assert_eq!(running.stop().await, ProcessExit::Code(1));
        assert_eq!(std::fs::read_to_string(test.folder().join("said")).unwrap(), expected);
    }
    test.keepers.shutdown().await;
}

#[tokio::test]
async fn stop_hearing_passes_on_all_remaining_output() {
    let test = KeeperTest::new();
    let running = test.start("trap 'echo two; exit 4' TERM; echo one; : >begun; sleep 1000 & wait").await;
    // `next` was not called yet: the output is in the pipe.
    until("the program has started", || test.folder().join("begun").exists()).await;
    let mut output = Vec::new();
    assert_eq!(running.stop_hearing(|chunk| output.extend_from_slice(chunk)).await, ProcessExit::Code(4));
    assert_eq!(String::from_utf8(output).unwrap(), "one\ntwo\n");
    test.keepers.shutdown().await;
}

#[tokio::test]
async fn case_39_program_is_killed_after_grace_when_it_ignores_the_signal() {
    let test = KeeperTest::new();
    let mut spec = test.script("trap '' TERM; echo $$; while :; do sleep 1000; done");
    spec.grace = SHORT;
    let mut running = test.keepers.spawn(spec).await.unwrap();
    let main = pids(&mut running, 1).await;
    let start = Instant::now();
    assert_eq!(running.stop().await, ProcessExit::Signal(9));
    assert!(start.elapsed() >= SHORT);
    assert_eq!(state(main[0]), None);
    test.keepers.shutdown().await;
}

#[tokio::test]
async fn case_39_suspended_process_is_continued_when_asked_to_stop() {
    let test = KeeperTest::new();
    let mut running = test.start("trap 'exit 5' TERM; echo $$; kill -STOP $$").await;
    let main = pids(&mut running, 1).await[0];
    until("the process is suspended", || state(main) == Some('T')).await;
    assert_eq!(running.stop().await, ProcessExit::Code(5));
    test.keepers.shutdown().await;
}

#[tokio::test]
async fn case_40_daemons_die_with_the_main_process_and_do_not_delay_it() {
    let test = KeeperTest::new();
    for daemon in [
        "setsid sleep 1000 & echo $!",
        "(setsid sleep 1000 & echo $!)",
        "(env -i setsid sleep 1000 & echo $!)",
        "(setsid sh -c 'trap \"\" TERM HUP INT; sleep 1000 & wait' & echo $!)",
    ] {
        let start = Instant::now();
        let mut running = test.start(&format!("{daemon}; exit 0")).await;
        let daemon = pids(&mut running, 1).await;
        assert_eq!(read_all(&mut running).await, (String::new(), ProcessExit::Code(0)));
        // The daemon had the stdout open all the time.
        assert!(start.elapsed() < Duration::from_secs(10));
        let keeper = running.keeper();
        running.finish(Duration::from_secs(60)).await;
        assert_eq!(state(daemon[0]), None);
        assert!(children(keeper).is_empty());
    }
    test.keepers.shutdown().await;
}

#[tokio::test]
async fn whole_tree_is_killed_when_handle_is_dropped() {
    let test = KeeperTest::new();
    let mut spec = test.script(
        "trap '' TERM; echo $$; setsid sleep 1000 & echo $!; (env -i setsid sleep 1000 & echo $!); sleep 1000 & echo $!; wait",
    );
    spec.grace = SHORT;
    let mut running = test.keepers.spawn(spec).await.unwrap();
    let tree = pids(&mut running, 4).await;
    assert!(tree.iter().all(|&pid| state(pid).is_some()));
    let keeper = running.keeper();
    drop(running);
    all_gone(&tree).await;
    until("the keeper has no children", || children(keeper).is_empty()).await;
    test.keepers.shutdown().await;
}

#[tokio::test]
async fn output_is_still_read_after_handle_is_dropped() {
    let test = KeeperTest::new();
    let script = "trap 'head -c 1000000 /dev/zero; echo >cleaned; exit' TERM; echo; while :; do sleep 0.01; done";
    let mut running = test.start(script).await;
    lines(&mut running, 1).await;
    drop(running);
    until("the program has cleaned up", || test.folder().join("cleaned").exists()).await;
    test.keepers.shutdown().await;
}

#[tokio::test]
async fn released_program_may_end_by_itself() {
    let test = KeeperTest::new();
    let script = "echo answer; while ! test -e go; do sleep 0.01; done; head -c 1000000 /dev/zero; echo >ended";
    let mut running = test.start(script).await;
    lines(&mut running, 1).await;
    running.release(Duration::from_secs(60));
    std::fs::write(test.folder().join("go"), "").unwrap();
    until("the program has ended", || test.folder().join("ended").exists()).await;
    test.keepers.shutdown().await;
}

#[tokio::test]
async fn finish_waits_for_linger_before_it_stops_the_program() {
    let test = KeeperTest::new();
    let mut running = test.start("echo answer; exec sleep 1000").await;
    lines(&mut running, 1).await;
    let main = running.pid();
    let start = Instant::now();
    assert_eq!(running.finish(SHORT).await, ProcessExit::Signal(15));
    assert!(start.elapsed() >= SHORT);
    assert_eq!(state(main), None);
    let mut running = test.start("echo answer; exit 6").await;
    lines(&mut running, 1).await;
    assert_eq!(running.finish(Duration::from_secs(60)).await, ProcessExit::Code(6));
    test.keepers.shutdown().await;
}

#[tokio::test]
async fn case_41_program_is_stopped_when_it_closes_its_output_and_stays() {
    let test = KeeperTest::new();
    let mut running = test.start("echo answer; exec sleep 1000 >&- 2>&-").await;
    assert_eq!(read_all(&mut running).await, ("answer\n".into(), ProcessExit::Signal(15)));
    assert!(running.was_mute());
    test.keepers.shutdown().await;
}

#[tokio::test]
async fn case_51_processes_are_killed_when_they_fork_faster_than_proc_can_be_read() {
    let test = KeeperTest::new();
    let hop = test.folder().join("hop");
    executable(&hop, "#!/bin/sh\nsetsid \"$0\" &\n");
    let mut running = test.start("./hop; exit 0").await;
    assert_eq!(read_all(&mut running).await.1, ProcessExit::Code(0));
    let keeper = running.keeper();
    running.finish(Duration::from_secs(60)).await;
    assert!(children(keeper).is_empty());
    assert!(test.residents().is_empty());
    test.keepers.shutdown().await;
}

#[tokio::test]
async fn cancelled_start_leaves_no_process() {
    let test = KeeperTest::new();
    for _ in 0..20 {
        let start = pin!(test.keepers.spawn(test.script("exec sleep 1000")));
        let polled = poll_immediately(start).await;
        assert!(polled.is_pending(), "the request is sent, the report has not arrived yet");
    }
    until("all processes are gone", || test.residents().is_empty()).await;
    test.keepers.shutdown().await;
}

#[tokio::test]
async fn shutdown_ends_everything_and_refuses_new_programs() {
    let test = KeeperTest::new();
    let mut busy = test.start("trap '' TERM; echo $$; setsid sleep 1000 & echo $!; wait").await;
    let tree = pids(&mut busy, 2).await;
    let mut polite = test.start("trap 'echo >polite; exit' TERM; echo; sleep 1000 & wait").await;
    lines(&mut polite, 1).await;
    let keepers = [busy.keeper(), polite.keeper()];
    drop(polite);
    test.keepers.shutdown().await;
    assert!(tree.iter().chain(&keepers).all(|&pid| state(pid).is_none()));
    assert!(test.folder().join("polite").exists(), "a run being stopped keeps its grace period");
    assert_eq!(read_all(&mut busy).await.1, ProcessExit::Signal(9));
    let error = test.keepers.spawn(test.script("true")).await.unwrap_err();
    assert!(matches!(error, SpawnError::ShutDown), "{error:?}");
}

#[tokio::test]
async fn shutdown_does_not_wait_for_linger() {
    let test = KeeperTest::new();
    let mut running = test.start("trap 'exit 1' TERM; echo; sleep 1000 & wait").await;
    lines(&mut running, 1).await;
    let main = running.pid();
    running.release(Duration::from_secs(1000));
    test.keepers.shutdown().await;
    assert_eq!(state(main), None);
}

async fn poll_immediately<F: Future>(mut future: Pin<&mut F>) -> Poll<F::Output> {
    poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx))).await
}

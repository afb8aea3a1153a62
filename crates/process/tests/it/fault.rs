//! Tests `kill -9` of the gateway and of a keeper.
//!
//! The victim is a second copy of this test binary: a gateway that loses a keeper kills every child that is not a keeper,
//! which in this process would be the children of other tests.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use trunkline_process::ProcessExit;

use crate::keeper_test::{KeeperTest, children, pids, read_all, state, until};

#[tokio::test]
async fn case_37_no_process_survives_when_gateway_is_killed() {
    let mut gateway = copy("gateway_to_be_killed");
    let stdout = BufReader::new(gateway.stdout.take().unwrap());
    let printed = stdout.lines().map_while(Result::ok).find_map(|line| line.strip_prefix("pids ").map(str::to_owned));
    let pids: Vec<u32> = printed.unwrap().split(' ').map(|pid| pid.parse().unwrap()).collect();
    assert_eq!(pids.len(), 8);
    assert!(pids.iter().all(|&pid| state(pid).is_some()));
    gateway.kill().unwrap();
    let start = Instant::now();
    gateway.wait().unwrap();
    // The keepers are reaped by init, or by this process if other tests made it a subreaper.
    let (keepers, kept) = pids.split_at(2);
    until("the keepers have ended", || keepers.iter().all(|&pid| matches!(state(pid), None | Some('Z')))).await;
    assert!(kept.iter().all(|&pid| state(pid).is_none()), "no keeper ends before its descendants");
    assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
}

#[test]
#[ignore = "run by case_37_no_process_survives_when_gateway_is_killed"]
fn gateway_to_be_killed() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let test = KeeperTest::new();
        let script = "trap '' TERM; echo $$; setsid sleep 1000 & echo $!; (env -i setsid sleep 1000 & echo $!); wait";
        let mut first = test.start(script).await;
        let mut second = test.start(script).await;
        let mut all = vec![first.keeper(), second.keeper()];
        all.extend(pids(&mut first, 3).await);
        all.extend(pids(&mut second, 3).await);
        let all: Vec<_> = all.iter().map(u32::to_string).collect();
        println!("\npids {}", all.join(" "));
        std::future::pending::<()>().await;
    });
}

#[test]
fn only_its_own_run_ends_when_a_keeper_is_killed() {
    assert!(copy("keeper_to_be_killed").wait_with_output().unwrap().status.success());
}

#[tokio::test]
#[ignore = "run by only_its_own_run_ends_when_a_keeper_is_killed"]
async fn keeper_to_be_killed() {
    let test = KeeperTest::new();
    let mut other = test.start("echo $$; sleep 1000 & echo $!; wait").await;
    let other_tree = pids(&mut other, 2).await;
    let script = "trap '' TERM; echo $$; setsid sleep 1000 & echo $!; (env -i setsid sleep 1000 & echo $!); wait";
    let mut running = test.start(script).await;
    let tree = pids(&mut running, 3).await;
    kill(running.keeper(), Signal::KILL);
    assert_eq!(read_all(&mut running).await.1, ProcessExit::Signal(9));
    running.stop().await;
    assert!(tree.iter().all(|&pid| state(pid).is_none()));
    assert!(other_tree.iter().all(|&pid| state(pid).is_some()));
    assert_eq!(children(std::process::id()), [other.keeper()], "the lost keeper is reaped, the other one is not");
    assert!(test.keepers.output(test.script("true")).await.unwrap().success());
    test.keepers.shutdown().await;
}

#[test]
fn keeper_is_killed_when_it_does_not_answer() {
    assert!(copy("keeper_to_be_stopped").wait_with_output().unwrap().status.success());
}

#[tokio::test]
#[ignore = "run by keeper_is_killed_when_it_does_not_answer"]
async fn keeper_to_be_stopped() {
    let test = KeeperTest::new();
    let mut spec = test.script("echo $$; setsid sleep 1000 & echo $!; wait");
    spec.grace = Duration::ZERO;
    let mut running = test.keepers.spawn(spec).await.unwrap();
    let tree = pids(&mut running, 2).await;
    kill(running.keeper(), Signal::STOP);
    assert_eq!(running.stop().await, ProcessExit::Signal(9));
    assert!(tree.iter().all(|&pid| state(pid).is_none()));
    test.keepers.shutdown().await;
}

#[test]
fn keeper_is_replaced_when_it_died_while_idle() {
    assert!(copy("idle_keeper_to_be_killed").wait_with_output().unwrap().status.success());
}

#[tokio::test]
#[ignore = "run by keeper_is_replaced_when_it_died_while_idle"]
async fn idle_keeper_to_be_killed() {
    let test = KeeperTest::new();
    let mut running = test.start("true").await;
    let keeper = running.keeper();
    read_all(&mut running).await;
    running.stop().await;
    kill(keeper, Signal::KILL);
    until("the keeper is reaped without further calls", || state(keeper).is_none()).await;
    let mut running = test.start("true").await;
    assert_eq!(read_all(&mut running).await.1, ProcessExit::Code(0));
    assert_ne!(running.keeper(), keeper);
    drop(running);
    test.keepers.shutdown().await;
}

#[tokio::test]
async fn keeper_ignores_signals_but_its_run_does_not() {
    let test = KeeperTest::new();
    let mut running = test.start("echo $$; sleep 1000").await;
    let main = pids(&mut running, 1).await[0];
    for signal in [Signal::HUP, Signal::INT, Signal::TERM] {
        kill(running.keeper(), signal);
    }
    kill(main, Signal::TERM);
    assert_eq!(read_all(&mut running).await.1, ProcessExit::Signal(15), "reported by its keeper, which is alive");
    test.keepers.shutdown().await;
}

/// Runs one of the ignored tests above in a process of its own.
#[expect(clippy::disallowed_methods, reason = "a gateway that is to be killed cannot run under a keeper")]
fn copy(test: &str) -> Child {
    let name = format!("fault::{test}");
    let mut command = Command::new(std::env::current_exe().expect("this binary runs"));
    command
        .args(["--exact", &name, "--ignored", "--nocapture"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("this binary runs")
}

fn kill(pid: u32, signal: Signal) {
    kill_process(Pid::from_raw(pid as i32).expect("not 0"), signal).expect("it is alive");
}

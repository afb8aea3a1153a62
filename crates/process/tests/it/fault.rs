//! Kill -9 where it hurts: the gateway, a keeper. The victim is a second copy of this test binary, as a gateway that
//! loses a keeper ends every child it does not know, and here that would be the other tests'.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use trunkline_process::Exit;

use crate::stage::{Stage, children, hear, pids, state, until};

#[tokio::test]
async fn case_37_no_process_survives_the_gateway() {
    let mut gateway = copy("gateway_to_be_killed");
    let stdout = BufReader::new(gateway.stdout.take().unwrap());
    let told = stdout.lines().map_while(Result::ok).find_map(|line| line.strip_prefix("pids ").map(str::to_owned));
    let pids: Vec<u32> = told.unwrap().split(' ').map(|pid| pid.parse().unwrap()).collect();
    assert_eq!(pids.len(), 8);
    assert!(pids.iter().all(|&pid| state(pid).is_some()));
    gateway.kill().unwrap();
    let start = Instant::now();
    gateway.wait().unwrap();
    // Whoever inherits the keepers (init, or this process if other tests made it a subreaper) reaps them in its time.
    let (keepers, kept) = pids.split_at(2);
    until("the keepers have ended", || keepers.iter().all(|&pid| matches!(state(pid), None | Some('Z')))).await;
    assert!(kept.iter().all(|&pid| state(pid).is_none()), "no keeper ends before what it keeps");
    assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
}

#[test]
#[ignore = "run by case_37_no_process_survives_the_gateway"]
fn gateway_to_be_killed() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let stage = Stage::new();
        let script = "trap '' TERM; echo $$; setsid sleep 1000 & echo $!; (env -i setsid sleep 1000 & echo $!); wait";
        let mut first = stage.start(script).await;
        let mut second = stage.start(script).await;
        let mut all = vec![first.keeper(), second.keeper()];
        all.extend(pids(&mut first, 3).await);
        all.extend(pids(&mut second, 3).await);
        let all: Vec<_> = all.iter().map(u32::to_string).collect();
        println!("\npids {}", all.join(" "));
        std::future::pending::<()>().await;
    });
}

#[test]
fn a_lost_keeper_costs_its_run_and_no_more() {
    assert!(copy("keeper_to_be_killed").wait_with_output().unwrap().status.success());
}

#[tokio::test]
#[ignore = "run by a_lost_keeper_costs_its_run_and_no_more"]
async fn keeper_to_be_killed() {
    let stage = Stage::new();
    let mut other = stage.start("echo $$; sleep 1000 & echo $!; wait").await;
    let other_tree = pids(&mut other, 2).await;
    let script = "trap '' TERM; echo $$; setsid sleep 1000 & echo $!; (env -i setsid sleep 1000 & echo $!); wait";
    let mut running = stage.start(script).await;
    let tree = pids(&mut running, 3).await;
    kill(running.keeper(), Signal::KILL);
    assert_eq!(hear(&mut running).await.1, Exit::Signal(9));
    running.stop().await;
    assert!(tree.iter().all(|&pid| state(pid).is_none()));
    assert!(other_tree.iter().all(|&pid| state(pid).is_some()));
    assert_eq!(children(std::process::id()), [other.keeper()], "the lost keeper is reaped, the other one is not");
    assert!(stage.keepers.output(stage.script("true")).await.unwrap().success());
    stage.keepers.shutdown().await;
}

#[test]
fn a_stopped_keeper_is_given_up() {
    assert!(copy("keeper_to_be_stopped").wait_with_output().unwrap().status.success());
}

#[tokio::test]
#[ignore = "run by a_stopped_keeper_is_given_up"]
async fn keeper_to_be_stopped() {
    let stage = Stage::new();
    let mut spec = stage.script("echo $$; setsid sleep 1000 & echo $!; wait");
    spec.grace = Duration::ZERO;
    let mut running = stage.keepers.spawn(spec).await.unwrap();
    let tree = pids(&mut running, 2).await;
    kill(running.keeper(), Signal::STOP);
    assert_eq!(running.stop().await, Exit::Signal(9));
    assert!(tree.iter().all(|&pid| state(pid).is_none()));
    stage.keepers.shutdown().await;
}

#[test]
fn an_idle_keeper_that_died_is_replaced() {
    assert!(copy("idle_keeper_to_be_killed").wait_with_output().unwrap().status.success());
}

#[tokio::test]
#[ignore = "run by an_idle_keeper_that_died_is_replaced"]
async fn idle_keeper_to_be_killed() {
    let stage = Stage::new();
    let mut running = stage.start("true").await;
    let keeper = running.keeper();
    hear(&mut running).await;
    running.stop().await;
    kill(keeper, Signal::KILL);
    until("it is reaped, without anybody asking for it", || state(keeper).is_none()).await;
    let mut running = stage.start("true").await;
    assert_eq!(hear(&mut running).await.1, Exit::Code(0));
    assert_ne!(running.keeper(), keeper);
    drop(running);
    stage.keepers.shutdown().await;
}

#[tokio::test]
async fn a_keeper_leaves_signals_to_the_gateway_but_its_run_does_not() {
    let stage = Stage::new();
    let mut running = stage.start("echo $$; sleep 1000").await;
    let main = pids(&mut running, 1).await[0];
    for signal in [Signal::HUP, Signal::INT, Signal::TERM] {
        kill(running.keeper(), signal);
    }
    kill(main, Signal::TERM);
    assert_eq!(hear(&mut running).await.1, Exit::Signal(15), "told by its keeper, which lives");
    stage.keepers.shutdown().await;
}

/// Runs one of the ignored tests above in a process of its own.
#[expect(clippy::disallowed_methods, reason = "a gateway that is to be killed cannot be kept by a keeper")]
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

//! Tests the environment that a program starts in, and the errors if it cannot be started.

use std::collections::BTreeSet;
use std::fs;

use trunkline_process::{ProcessExit, SpawnError};

use crate::keeper_test::{KeeperTest, TEST_TIMEOUT, children, executable, read_all, state, until};

#[tokio::test]
async fn program_gets_only_the_arguments_environment_and_directory_of_its_spec() {
    let test = KeeperTest::new();
    let mut spec = test.script(r#"printf '%s|' "$@" "$(pwd)" "$HOME" "$GIVEN"; exec env"#);
    spec.args.extend(["sh", "a b", "", "--"]);
    spec.env.set("GIVEN", "x=y");
    let output = test.keepers.output(spec).await.unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let (printed, env) = text.rsplit_once('|').unwrap();
    assert_eq!(printed, format!("a b||--|{}||x=y", test.folder().display()));
    let names: BTreeSet<_> = env.lines().filter_map(|line| line.split_once('=')).map(|(name, _)| name).collect();
    assert_eq!(names, BTreeSet::from(["GIVEN", "PATH", "PWD"]), "PWD is set by the shell");
    assert_eq!(output.exit, ProcessExit::Code(0));
    test.keepers.shutdown().await;
}

#[tokio::test]
async fn case_55_program_inherits_no_descriptors() {
    let test = KeeperTest::new();
    // Possible leaks: the sockets of busy keepers, the pipe of long input, and a descriptor without CLOEXEC.
    let _leaky = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::empty()).unwrap();
    let _other = test.start("sleep 1000").await;
    let mut spec = test.spec("ls", &["/proc/self/fd"]);
    spec.stdin = vec![b'x'; 1 << 20];
    let output = test.keepers.output(spec).await.unwrap();
    // The fourth is the folder that ls reads.
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "0\n1\n2\n3\n");
    test.keepers.shutdown().await;
}

#[tokio::test]
async fn missing_program_and_missing_directory_are_different_errors() {
    let test = KeeperTest::new();
    let missing = test.folder().join("missing");
    for program in [missing.clone(), "no-such-program-anywhere".into()] {
        let error = test.keepers.spawn(test.spec(program, &[])).await.unwrap_err();
        assert!(matches!(error, SpawnError::NotFound { .. }), "{error:?}");
    }
    let mut spec = test.script("true");
    spec.cwd = missing;
    let error = test.keepers.spawn(spec).await.unwrap_err();
    assert!(matches!(error, SpawnError::BadDirectory { .. }), "{error:?}");
    let mut spec = test.script("true");
    spec.cwd = "/etc/passwd".into();
    let error = test.keepers.spawn(spec).await.unwrap_err();
    assert!(matches!(error, SpawnError::BadDirectory { .. }), "{error:?}");
    // The keeper still works.
    assert!(test.keepers.output(test.script("true")).await.unwrap().success());
    test.keepers.shutdown().await;
}

#[tokio::test]
async fn case_50_start_fails_when_file_cannot_be_executed() {
    let test = KeeperTest::new();
    let plain = test.folder().join("plain");
    fs::write(&plain, "#!/bin/sh\n").unwrap();
    let garbage = test.folder().join("garbage");
    executable(&garbage, "\u{7f}not a program");
    for program in [plain, garbage, test.folder().into()] {
        let error = test.keepers.spawn(test.spec(program, &[])).await.unwrap_err();
        assert!(matches!(error, SpawnError::NotExecutable { .. }), "{error:?}");
    }
    let orphan = test.folder().join("no-interpreter");
    executable(&orphan, "#!/no/such/interpreter\n");
    let error = test.keepers.spawn(test.spec(orphan, &[])).await.unwrap_err();
    assert!(matches!(error, SpawnError::NotFound { .. }), "{error:?}");
    test.keepers.shutdown().await;
}

#[tokio::test]
async fn bare_name_is_looked_up_in_path_of_the_spec() {
    let test = KeeperTest::new();
    executable(&test.folder().join("tool"), "#!/bin/sh\necho \"tool $1\"\n");
    let mut spec = test.spec("tool", &["x"]);
    spec.env.set("PATH", format!("/nowhere:{}:/bin", test.folder().display()));
    let output = test.keepers.output(spec).await.unwrap();
    assert_eq!(output.stdout, b"tool x\n");
    test.keepers.shutdown().await;
}

#[tokio::test]
async fn request_arrives_when_it_is_larger_than_the_socket_buffer() {
    let test = KeeperTest::new();
    let mut spec = test.script(r#"echo "${#A} ${#B} ${#C} $#""#);
    spec.args.push("sh");
    spec.args.extend((0..2000).map(|n| format!("{n:0100}")));
    for name in ["A", "B", "C"] {
        spec.env.set(name, "x".repeat(100_000));
    }
    let output = test.keepers.output(spec).await.unwrap();
    assert_eq!(output.stdout, b"100000 100000 100000 2000\n");
    let error = test.keepers.spawn(test.spec("/bin/true", &[&"x".repeat(1 << 18)])).await.unwrap_err();
    assert!(matches!(error, SpawnError::TooLong { .. }), "{error:?}");
    test.keepers.shutdown().await;
}

#[tokio::test]
async fn case_56_keeper_serves_many_runs_and_leaves_no_zombie() {
    let test = KeeperTest::new();
    let mut keepers = BTreeSet::new();
    for _ in 0..100 {
        let mut running = test.start("true & exit 3").await;
        keepers.insert(running.keeper());
        assert_eq!(read_all(&mut running).await, (String::new(), ProcessExit::Code(3)));
        assert_eq!(running.stop().await, ProcessExit::Code(3));
    }
    assert_eq!(keepers.len(), 1);
    let keeper = *keepers.first().unwrap();
    assert!(children(keeper).is_empty());
    test.keepers.shutdown().await;
    assert_eq!(state(keeper), None, "reaped");
}

#[tokio::test]
async fn sixty_four_programs_run_at_once() {
    let test = KeeperTest::new();
    let mut runs = Vec::new();
    for n in 0..64 {
        let mut spec = test.script("read line; echo got $line; cat >/dev/null");
        spec.stdin = format!("{n}\n").repeat(20_000).into_bytes();
        runs.push(test.keepers.spawn(spec).await.unwrap());
    }
    let keepers: BTreeSet<_> = runs.iter().map(|running| running.keeper()).collect();
    assert_eq!(keepers.len(), 64);
    for (n, running) in runs.iter_mut().enumerate() {
        assert_eq!(read_all(running).await, (format!("got {n}\n"), ProcessExit::Code(0)));
    }
    drop(runs);
    test.keepers.shutdown().await;
    assert!(keepers.iter().all(|&keeper| state(keeper).is_none()));
}

#[tokio::test]
async fn surplus_keepers_are_retired_after_a_burst() {
    let test = KeeperTest::new();
    let mut runs = Vec::new();
    for _ in 0..12 {
        runs.push(test.start("true").await);
    }
    let keepers: Vec<_> = runs.iter().map(|running| running.keeper()).collect();
    for running in runs {
        running.finish(TEST_TIMEOUT).await;
    }
    let alive = || keepers.iter().filter(|&&keeper| state(keeper).is_some()).count();
    assert_eq!(alive(), 12);
    tokio::time::pause();
    until("all but a few are retired", || alive() == 4).await;
    tokio::time::resume();
    let mut running = test.start("true").await;
    assert!(keepers.contains(&running.keeper()));
    read_all(&mut running).await;
    test.keepers.shutdown().await;
}

#[tokio::test]
async fn case_52_oom_killer_prefers_the_run_to_the_gateway() {
    let test = KeeperTest::new();
    let ours: i32 = fs::read_to_string("/proc/self/oom_score_adj").unwrap().trim().parse().unwrap();
    let output =
        test.keepers.output(test.script("cat /proc/self/oom_score_adj; sh -c 'cat /proc/$$/oom_score_adj'")).await;
    let theirs = String::from_utf8(output.unwrap().stdout).unwrap();
    assert_eq!(theirs, format!("{0}\n{0}\n", ours.max(500)));
    test.keepers.shutdown().await;
}

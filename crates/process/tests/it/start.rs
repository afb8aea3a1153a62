//! What a program finds when it starts, and what is said when it does not.

use std::collections::BTreeSet;
use std::fs;

use trunkline_process::{Exit, SpawnError};

use crate::stage::{PATIENCE, Stage, children, executable, hear, state, until};

#[tokio::test]
async fn it_gets_what_it_was_given_and_nothing_else() {
    let stage = Stage::new();
    let mut spec = stage.script(r#"printf '%s|' "$@" "$(pwd)" "$HOME" "$GIVEN"; exec env"#);
    spec.args.extend(["sh", "a b", "", "--"].map(Into::into));
    spec.env.push(("GIVEN".into(), "x=y".into()));
    let output = stage.keepers.output(spec).await.unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let (said, env) = text.rsplit_once('|').unwrap();
    assert_eq!(said, format!("a b||--|{}||x=y", stage.folder().display()));
    let names: BTreeSet<_> = env.lines().filter_map(|line| line.split_once('=')).map(|(name, _)| name).collect();
    assert_eq!(names, BTreeSet::from(["GIVEN", "PATH", "PWD"]), "PWD is the shell's own");
    assert_eq!(output.exit, Exit::Code(0));
    stage.keepers.shutdown().await;
}

#[tokio::test]
async fn case_55_it_inherits_no_descriptors() {
    let stage = Stage::new();
    // Keepers that are busy meanwhile, and input that goes on, could leak; so could a descriptor that we inherited.
    let _leaky = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::empty()).unwrap();
    let _other = stage.start("sleep 1000").await;
    let mut spec = stage.spec("ls", &["/proc/self/fd"]);
    spec.stdin = vec![b'x'; 1 << 20];
    let output = stage.keepers.output(spec).await.unwrap();
    // The fourth is ls's own, for reading the folder.
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "0\n1\n2\n3\n");
    stage.keepers.shutdown().await;
}

#[tokio::test]
async fn a_missing_program_is_told_from_a_missing_folder() {
    let stage = Stage::new();
    let missing = stage.folder().join("missing");
    for program in [missing.clone(), "no-such-program-anywhere".into()] {
        let error = stage.keepers.spawn(stage.spec(program, &[])).await.unwrap_err();
        assert!(matches!(error, SpawnError::NotFound { .. }), "{error:?}");
    }
    let mut spec = stage.script("true");
    spec.cwd = missing;
    let error = stage.keepers.spawn(spec).await.unwrap_err();
    assert!(matches!(error, SpawnError::BadDirectory { .. }), "{error:?}");
    let mut spec = stage.script("true");
    spec.cwd = "/etc/passwd".into();
    let error = stage.keepers.spawn(spec).await.unwrap_err();
    assert!(matches!(error, SpawnError::BadDirectory { .. }), "{error:?}");
    // The keeper is none the worse for it.
    assert!(stage.keepers.output(stage.script("true")).await.unwrap().success());
    stage.keepers.shutdown().await;
}

#[tokio::test]
async fn case_50_what_cannot_be_executed_is_refused() {
    let stage = Stage::new();
    let plain = stage.folder().join("plain");
    fs::write(&plain, "#!/bin/sh\n").unwrap();
    let garbage = stage.folder().join("garbage");
    executable(&garbage, "\u{7f}not a program");
    for program in [plain, garbage, stage.folder().into()] {
        let error = stage.keepers.spawn(stage.spec(program, &[])).await.unwrap_err();
        assert!(matches!(error, SpawnError::NotExecutable { .. }), "{error:?}");
    }
    let orphan = stage.folder().join("no-interpreter");
    executable(&orphan, "#!/no/such/interpreter\n");
    let error = stage.keepers.spawn(stage.spec(orphan, &[])).await.unwrap_err();
    assert!(matches!(error, SpawnError::NotFound { .. }), "{error:?}");
    stage.keepers.shutdown().await;
}

#[tokio::test]
async fn a_bare_name_is_looked_up_in_its_own_path() {
    let stage = Stage::new();
    executable(&stage.folder().join("tool"), "#!/bin/sh\necho \"tool $1\"\n");
    let mut spec = stage.spec("tool", &["x"]);
    spec.env = vec![("PATH".into(), format!("/nowhere:{}:/bin", stage.folder().display()).into())];
    let output = stage.keepers.output(spec).await.unwrap();
    assert_eq!(output.stdout, b"tool x\n");
    stage.keepers.shutdown().await;
}

#[tokio::test]
async fn a_request_larger_than_the_socket_s_buffer_arrives() {
    let stage = Stage::new();
    let mut spec = stage.script(r#"echo "${#A} ${#B} ${#C} $#""#);
    spec.args.push("sh".into());
    spec.args.extend((0..2000).map(|n| format!("{n:0100}").into()));
    for name in ["A", "B", "C"] {
        spec.env.push((name.into(), "x".repeat(100_000).into()));
    }
    let output = stage.keepers.output(spec).await.unwrap();
    assert_eq!(output.stdout, b"100000 100000 100000 2000\n");
    let error = stage.keepers.spawn(stage.spec("/bin/true", &[&"x".repeat(1 << 18)])).await.unwrap_err();
    assert!(matches!(error, SpawnError::TooLong { .. }), "{error:?}");
    stage.keepers.shutdown().await;
}

#[tokio::test]
async fn case_56_one_keeper_serves_run_after_run_and_leaves_no_zombie() {
    let stage = Stage::new();
    let mut keepers = BTreeSet::new();
    for _ in 0..100 {
        let mut running = stage.start("true & exit 3").await;
        keepers.insert(running.keeper());
        assert_eq!(hear(&mut running).await, (String::new(), Exit::Code(3)));
        assert_eq!(running.stop().await, Exit::Code(3));
    }
    assert_eq!(keepers.len(), 1);
    let keeper = *keepers.first().unwrap();
    assert!(children(keeper).is_empty());
    stage.keepers.shutdown().await;
    assert_eq!(state(keeper), None, "reaped");
}

#[tokio::test]
async fn sixty_four_at_once() {
    let stage = Stage::new();
    let mut runs = Vec::new();
    for n in 0..64 {
        let mut spec = stage.script("read line; echo got $line; cat >/dev/null");
        spec.stdin = format!("{n}\n").repeat(20_000).into_bytes();
        runs.push(stage.keepers.spawn(spec).await.unwrap());
    }
    let keepers: BTreeSet<_> = runs.iter().map(|running| running.keeper()).collect();
    assert_eq!(keepers.len(), 64);
    for (n, running) in runs.iter_mut().enumerate() {
        assert_eq!(hear(running).await, (format!("got {n}\n"), Exit::Code(0)));
    }
    drop(runs);
    stage.keepers.shutdown().await;
    assert!(keepers.iter().all(|&keeper| state(keeper).is_none()));
}

#[tokio::test]
async fn a_burst_s_keepers_are_not_kept_for_ever() {
    let stage = Stage::new();
    let mut runs = Vec::new();
    for _ in 0..12 {
        runs.push(stage.start("true").await);
    }
    let keepers: Vec<_> = runs.iter().map(|running| running.keeper()).collect();
    for running in runs {
        running.finish(PATIENCE).await;
    }
    let living = || keepers.iter().filter(|&&keeper| state(keeper).is_some()).count();
    assert_eq!(living(), 12);
    tokio::time::pause();
    until("all but a few are retired", || living() == 4).await;
    tokio::time::resume();
    let mut running = stage.start("true").await;
    assert!(keepers.contains(&running.keeper()));
    hear(&mut running).await;
    stage.keepers.shutdown().await;
}

#[tokio::test]
async fn case_52_when_memory_runs_out_a_run_goes_before_the_gateway() {
    let stage = Stage::new();
    let ours: i32 = fs::read_to_string("/proc/self/oom_score_adj").unwrap().trim().parse().unwrap();
    let output =
        stage.keepers.output(stage.script("cat /proc/self/oom_score_adj; sh -c 'cat /proc/$$/oom_score_adj'")).await;
    let theirs = String::from_utf8(output.unwrap().stdout).unwrap();
    assert_eq!(theirs, format!("{0}\n{0}\n", ours.max(500)));
    stage.keepers.shutdown().await;
}

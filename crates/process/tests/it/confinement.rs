//! Tests what a confined program can and cannot write, with the kernel of this machine.
//!
//! Each test is a shell script with two folders: `in` is writable, `out` is not.

use std::fs;
use std::path::PathBuf;

use trunkline_process::{Confinement, Landlock, Output, ProcessExit, Spec};

use crate::keeper_test::{KeeperTest, children, lines, pids, read_all, state, until};

/// Beginning of every script. `refused` expects a command to fail for lack of permission, `works` expects it to succeed.
/// Both print a line if it does not.
const FUNCTIONS: &str = r#"
refused() {
    if said=$(LC_ALL=C "$@" 2>&1 >/dev/null); then echo "done: $*"; return; fi
    case "$said" in
        *"Permission denied"*|*"Operation not permitted"*|*"Invalid cross-device link"*) ;;
        *) echo "failed otherwise: $*: $said" ;;
    esac
}
works() { said=$(LC_ALL=C "$@" 2>&1 >/dev/null) || echo "refused: $*: $said"; }
"#;

/// Creates a test with confined programs. None if the kernel cannot confine them.
fn confinement_test() -> Option<KeeperTest> {
    match Landlock::here() {
        Ok(_) => {
            let test = KeeperTest::new();
            for folder in ["in", "out"] {
                fs::create_dir(test.folder().join(folder)).unwrap();
            }
            fs::write(test.folder().join("out/kept"), "kept").unwrap();
            Some(test)
        }
        Err(missing) => {
            eprintln!("skipped: {missing}");
            None
        }
    }
}

fn confined(test: &KeeperTest, script: &str) -> Spec {
    let writable: Vec<PathBuf> = vec![test.folder().join("in"), "/dev/null".into(), "/no/such/place".into()];
    let confinement = Some(Confinement { writable, ..Confinement::default() });
    Spec { confinement, ..test.script(&format!("{FUNCTIONS}{script}")) }
}

async fn run(test: &KeeperTest, script: &str) -> Output {
    test.keepers.output(confined(test, script)).await.unwrap()
}

/// Runs a script and asserts that it printed nothing and changed nothing in `out`.
async fn expect_silence(script: &str) {
    let Some(test) = confinement_test() else { return };
    let output = run(&test, script).await;
    assert_eq!((String::from_utf8_lossy(&output.stdout), output.stderr.as_str()), ("".into(), ""));
    assert_eq!(output.exit, ProcessExit::Code(0));
    assert_eq!(fs::read_to_string(test.folder().join("out/kept")).unwrap(), "kept");
    let outside: Vec<_> = fs::read_dir(test.folder().join("out")).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(outside, [test.folder().join("out/kept")]);
    test.keepers.shutdown().await;
}

#[tokio::test]
async fn case_34_everything_works_inside() {
    expect_silence(
        r#"
        works sh -c 'echo text > in/file && echo more >> in/file && cat in/file'
        works mkdir -p in/a/b/c
        works mv in/file in/a/b/file
        works ln in/a/b/file in/link
        works ln -s file in/soft
        works mkfifo in/pipe
        works truncate -s 1 in/link
        works chmod 600 in/link
        works rm -r in/a in/link in/pipe
        works sh -c 'echo out > /dev/stdout; echo err > /dev/stderr; echo none > /dev/null'
        works cat out/kept
        works ls out
        works sh -c 'sleep 100 & kill $!'
        "#,
    )
    .await;
}

#[tokio::test]
async fn case_34_nothing_is_written_outside() {
    expect_silence(
        r#"
        refused sh -c 'echo text > out/new'
        refused sh -c 'echo text >> out/kept'
        refused sh -c ': > out/kept'
        refused truncate -s 0 out/kept
        refused rm -f out/kept
        refused mkdir out/folder
        refused mkfifo out/pipe
        refused ln -s kept out/soft
        refused rmdir out
        refused mv out/kept out/other
        refused touch /etc/trunkline-was-here
        refused mknod in/device c 1 3
        refused stty -F /dev/ptmx size
        "#,
    )
    .await;
}

#[tokio::test]
async fn case_34_confinement_cannot_be_bypassed() {
    expect_silence(
        r#"
        works ln -s ../out in/way
        refused sh -c 'echo text > in/way/new'
        refused sh -c 'echo text > in/way/kept'
        works ln -s ../out/kept in/name
        refused sh -c 'echo text > in/name'
        echo text > in/file
        refused ln in/file out/file
        refused mv in/file out/file
        refused mv -T in/file out/kept
        refused ln out/kept in/kept
        refused mv out/kept in/kept
        refused sh -c 'cd in && echo text > ../out/new'
        refused sh -c 'sh -c "sh -c \"echo text > out/new\""'
        refused setsid -w sh -c 'echo text > out/new'
        refused env -i /bin/sh -c 'echo text > out/new'
        refused sh -c 'echo text > /proc/self/cwd/out/new'
        "#,
    )
    .await;
}

#[tokio::test]
async fn case_34_a_daemon_stays_confined() {
    let Some(test) = confinement_test() else { return };
    let script = "setsid sh -c 'sh -c \"echo x > out/new; echo x > in/tried; sleep 1000\" &' & \
        until test -e in/tried; do sleep 0.01; done";
    let output = run(&test, script).await;
    assert_eq!(output.exit, ProcessExit::Code(0));
    assert!(!test.folder().join("out/new").exists());
    until("the daemon is gone", || test.residents().is_empty()).await;
    test.keepers.shutdown().await;
}

#[tokio::test]
async fn case_34_no_process_outside_is_signalled_or_traced() {
    let Some(test) = confinement_test() else { return };
    if !Landlock::here().unwrap().holds_signals() {
        return eprintln!("skipped: Landlock of this kernel does not restrict signals");
    }
    let script = format!(
        "refused kill -0 $PPID; refused kill -9 $PPID; refused kill -0 {us}; refused readlink -v /proc/{us}/cwd; \
         refused readlink -v /proc/$PPID/fd/0",
        us = std::process::id(),
    );
    let mut running = test.keepers.spawn(confined(&test, &script)).await.unwrap();
    let keeper = running.keeper();
    assert_eq!(read_all(&mut running).await, (String::new(), ProcessExit::Code(0)));
    assert!(state(keeper).is_some());
    test.keepers.shutdown().await;
}

#[tokio::test]
async fn keeper_stays_unrestricted_and_clean_after_a_confined_run() {
    let Some(test) = confinement_test() else { return };
    for round in 0..20 {
        let mut running = test.keepers.spawn(confined(&test, "true & sleep 1000 & exit 3")).await.unwrap();
        let keeper = running.keeper();
        assert_eq!(read_all(&mut running).await, (String::new(), ProcessExit::Code(3)));
        assert_eq!(running.stop().await, ProcessExit::Code(3));
        let mut running = test.start(&format!("echo {round} > out/kept; cat out/kept")).await;
        assert_eq!(running.keeper(), keeper, "the same keeper");
        assert_eq!(read_all(&mut running).await, (format!("{round}\n"), ProcessExit::Code(0)));
        running.stop().await;
        assert!(children(keeper).is_empty());
    }
    assert!(test.residents().is_empty());
    test.keepers.shutdown().await;
}

#[tokio::test]
async fn confined_run_is_stopped_like_any_other() {
    let Some(test) = confinement_test() else { return };
    let script = "trap 'echo asked; exit 5' TERM; setsid sleep 1000 & echo $!; while :; do sleep 0.01; done";
    let mut running = test.keepers.spawn(confined(&test, script)).await.unwrap();
    let daemon = pids(&mut running, 1).await;
    assert_eq!(running.stop().await, ProcessExit::Code(5));
    assert_eq!(state(daemon[0]), None);
    let mut running = test.keepers.spawn(confined(&test, "echo on; exec sleep 1000")).await.unwrap();
    lines(&mut running, 1).await;
    drop(running);
    until("a dropped run is gone", || test.residents().is_empty()).await;
    test.keepers.shutdown().await;
}

#[tokio::test]
async fn start_error_is_the_same_when_confined() {
    let Some(test) = confinement_test() else { return };
    let mut spec = confined(&test, "");
    spec.program = "/no/such/program".into();
    let error = test.keepers.spawn(spec).await.unwrap_err();
    assert!(matches!(error, trunkline_process::SpawnError::NotFound { .. }), "{error:?}");
    test.keepers.shutdown().await;
}

#[tokio::test]
async fn confined_process_cannot_read_environment_of_an_undumpable_one() {
    let Some(test) = confinement_test() else { return };
    // A keeper is undumpable, and its pool keeps it alive after the run.
    let mut running = test.keepers.spawn(confined(&test, "true")).await.unwrap();
    let keeper = running.keeper();
    assert_eq!(read_all(&mut running).await, (String::new(), ProcessExit::Code(0)));
    running.stop().await;
    let output = run(&test, &format!("refused cat /proc/{keeper}/environ")).await;
    assert_eq!(String::from_utf8_lossy(&output.stdout), "");
    assert!(state(keeper).is_some(), "the keeper is still there");
    test.keepers.shutdown().await;
}

#[tokio::test]
async fn pinned_path_grants_nothing_when_it_has_become_a_symbolic_link() {
    let Some(test) = confinement_test() else { return };
    let folder = test.folder().canonicalize().unwrap();
    for (link, path) in [("link", "link"), ("parent", "parent/in")] {
        let target = if path == "link" { folder.join("out") } else { folder.clone() };
        std::os::unix::fs::symlink(target, folder.join(link)).unwrap();
        let script = format!("{FUNCTIONS}refused sh -c 'echo x >{path}/new'");
        let granting = |confinement| Spec { confinement: Some(confinement), ..test.script(&script) };
        let null = PathBuf::from("/dev/null");
        let pinned =
            Confinement { writable: vec![null.clone()], pinned: vec![folder.join(path)], ..Confinement::default() };
        let output = test.keepers.output(granting(pinned)).await.unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), "", "{path}");
        let followed = Confinement { writable: vec![null, folder.join(path)], ..Confinement::default() };
        let output = test.keepers.output(granting(followed)).await.unwrap();
        assert!(
            String::from_utf8_lossy(&output.stdout).starts_with("done:"),
            "{path} is writable when links are followed"
        );
    }
}

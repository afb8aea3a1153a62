//! What a confined run can write, and what it cannot, with the kernel of this machine.
//!
//! Each test is a shell script with one folder of its own, `in`, beside a folder that is not, `out`.

use std::fs;
use std::path::PathBuf;

use trunkline_process::{Confinement, Exit, Landlock, Output, Spec};

use crate::stage::{Stage, children, hear, lines, pids, state, until};

/// What every script begins with. `refused` wants a command to fail for lack of permission, and says what did not.
const WORDS: &str = r#"
refused() {
    if said=$(LC_ALL=C "$@" 2>&1 >/dev/null); then echo "done: $*"; return; fi
    case "$said" in
        *"Permission denied"*|*"Operation not permitted"*|*"Invalid cross-device link"*) ;;
        *) echo "failed otherwise: $*: $said" ;;
    esac
}
works() { said=$(LC_ALL=C "$@" 2>&1 >/dev/null) || echo "refused: $*: $said"; }
"#;

/// A stage for confined runs; none where the kernel cannot hold them.
fn stage() -> Option<Stage> {
    match Landlock::here() {
        Ok(_) => {
            let stage = Stage::new();
            for folder in ["in", "out"] {
                fs::create_dir(stage.folder().join(folder)).unwrap();
            }
            fs::write(stage.folder().join("out/kept"), "kept").unwrap();
            Some(stage)
        }
        Err(missing) => {
            eprintln!("skipped: {missing}");
            None
        }
    }
}

fn confined(stage: &Stage, script: &str) -> Spec {
    let writable: Vec<PathBuf> = vec![stage.folder().join("in"), "/dev/null".into(), "/no/such/place".into()];
    let confinement = Some(Confinement { writable, pinned: Vec::new() });
    Spec { confinement, ..stage.script(&format!("{WORDS}{script}")) }
}

async fn run(stage: &Stage, script: &str) -> Output {
    stage.keepers.output(confined(stage, script)).await.unwrap()
}

/// A script that prints what went otherwise than it says.
async fn goes_as_said(script: &str) {
    let Some(stage) = stage() else { return };
    let output = run(&stage, script).await;
    assert_eq!((String::from_utf8_lossy(&output.stdout), output.stderr.as_str()), ("".into(), ""));
    assert_eq!(output.exit, Exit::Code(0));
    assert_eq!(fs::read_to_string(stage.folder().join("out/kept")).unwrap(), "kept");
    let outside: Vec<_> =
        fs::read_dir(stage.folder().join("out")).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(outside, [stage.folder().join("out/kept")]);
    stage.keepers.shutdown().await;
}

#[tokio::test]
async fn case_34_inside_everything_works() {
    goes_as_said(
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
async fn case_34_outside_nothing_is_written() {
    goes_as_said(
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
async fn case_34_no_way_leads_around_it() {
    goes_as_said(
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
    let Some(stage) = stage() else { return };
    let script = "setsid sh -c 'sh -c \"echo x > out/new; echo x > in/tried; sleep 1000\" &' & \
        until test -e in/tried; do sleep 0.01; done";
    let output = run(&stage, script).await;
    assert_eq!(output.exit, Exit::Code(0));
    assert!(!stage.folder().join("out/new").exists());
    until("the daemon is gone", || stage.residents().is_empty()).await;
    stage.keepers.shutdown().await;
}

#[tokio::test]
async fn case_34_nobody_outside_is_signalled_or_traced() {
    let Some(stage) = stage() else { return };
    if !Landlock::here().unwrap().holds_signals() {
        return eprintln!("skipped: this kernel's Landlock knows no signals");
    }
    let script = format!(
        "refused kill -0 $PPID; refused kill -9 $PPID; refused kill -0 {us}; refused readlink -v /proc/{us}/cwd; \
         refused readlink -v /proc/$PPID/fd/0",
        us = std::process::id(),
    );
    let mut running = stage.keepers.spawn(confined(&stage, &script)).await.unwrap();
    let keeper = running.keeper();
    assert_eq!(hear(&mut running).await, (String::new(), Exit::Code(0)));
    assert!(state(keeper).is_some());
    stage.keepers.shutdown().await;
}

#[tokio::test]
async fn a_confined_run_leaves_its_keeper_free_and_clean() {
    let Some(stage) = stage() else { return };
    for round in 0..20 {
        let mut running = stage.keepers.spawn(confined(&stage, "true & sleep 1000 & exit 3")).await.unwrap();
        let keeper = running.keeper();
        assert_eq!(hear(&mut running).await, (String::new(), Exit::Code(3)));
        assert_eq!(running.stop().await, Exit::Code(3));
        let mut running = stage.start(&format!("echo {round} > out/kept; cat out/kept")).await;
        assert_eq!(running.keeper(), keeper, "the same one");
        assert_eq!(hear(&mut running).await, (format!("{round}\n"), Exit::Code(0)));
        running.stop().await;
        assert!(children(keeper).is_empty());
    }
    assert!(stage.residents().is_empty());
    stage.keepers.shutdown().await;
}

#[tokio::test]
async fn a_confined_run_is_stopped_like_any_other() {
    let Some(stage) = stage() else { return };
    let script = "trap 'echo asked; exit 5' TERM; setsid sleep 1000 & echo $!; while :; do sleep 0.01; done";
    let mut running = stage.keepers.spawn(confined(&stage, script)).await.unwrap();
    let daemon = pids(&mut running, 1).await;
    assert_eq!(running.stop().await, Exit::Code(5));
    assert_eq!(state(daemon[0]), None);
    let mut running = stage.keepers.spawn(confined(&stage, "echo on; exec sleep 1000")).await.unwrap();
    lines(&mut running, 1).await;
    drop(running);
    until("a dropped run is gone", || stage.residents().is_empty()).await;
    stage.keepers.shutdown().await;
}

#[tokio::test]
async fn who_cannot_be_started_is_named_as_ever() {
    let Some(stage) = stage() else { return };
    let mut spec = confined(&stage, "");
    spec.program = "/no/such/program".into();
    let error = stage.keepers.spawn(spec).await.unwrap_err();
    assert!(matches!(error, trunkline_process::SpawnError::NotFound { .. }), "{error:?}");
    stage.keepers.shutdown().await;
}

#[tokio::test]
async fn environment_of_a_closed_process_outside_cannot_be_read_by_a_confined_one() {
    let Some(stage) = stage() else { return };
    // A keeper is closed to others, and stays after its first run.
    run(&stage, "true").await;
    let keepers = children(std::process::id());
    assert!(!keepers.is_empty());
    for pid in keepers {
        let output = run(&stage, &format!("refused cat /proc/{pid}/environ")).await;
        assert_eq!(String::from_utf8_lossy(&output.stdout), "", "{pid}");
    }
}

#[tokio::test]
async fn pinned_path_grants_nothing_when_it_has_become_a_symbolic_link() {
    let Some(stage) = stage() else { return };
    let folder = stage.folder().canonicalize().unwrap();
    for (link, path) in [("link", "link"), ("parent", "parent/in")] {
        let target = if path == "link" { folder.join("out") } else { folder.clone() };
        std::os::unix::fs::symlink(target, folder.join(link)).unwrap();
        let script = format!("{WORDS}refused sh -c 'echo x >{path}/new'");
        let granting = |confinement| Spec { confinement: Some(confinement), ..stage.script(&script) };
        let null = PathBuf::from("/dev/null");
        let pinned = Confinement { writable: vec![null.clone()], pinned: vec![folder.join(path)] };
        let output = stage.keepers.output(granting(pinned)).await.unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), "", "{path}");
        let followed = Confinement { writable: vec![null, folder.join(path)], pinned: Vec::new() };
        let output = stage.keepers.output(granting(followed)).await.unwrap();
        assert!(
            String::from_utf8_lossy(&output.stdout).starts_with("done:"),
            "{path} is writable when links are followed"
        );
    }
}

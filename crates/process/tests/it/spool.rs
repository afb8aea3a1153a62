//! Programs that exit without waiting for their reader, as Node programs do: all that they print arrives.

use std::fs;
use std::path::Path;

use trunkline_process::{Exit, Running, Spec, Step};

use crate::stage::{PATIENCE, Stage, hear, lines, state, until};

/// Prints `$1` bytes through a non-blocking stdout, and exits.
const NODE: &str = "process.stdout.write('x'.repeat(Number(process.argv[1]))); process.exit(0);";
const PYTHON: &str = "
import os, sys
os.set_blocking(1, False)
rest = b'x' * int(sys.argv[1])
try:
    while rest:
        rest = rest[os.write(1, rest):]
except BlockingIOError:
    pass
os._exit(0)
";

/// The programs of this machine that can do it.
fn impatient(stage: &Stage, bytes: usize) -> Vec<Spec> {
    let bytes = bytes.to_string();
    [("node", "-e", NODE), ("python3", "-c", PYTHON)]
        .into_iter()
        .filter(|(program, ..)| {
            let there = ["/usr/local/bin", "/usr/bin", "/bin"].iter().any(|bin| Path::new(bin).join(program).exists());
            if !there {
                eprintln!("skipped: there is no {program}");
            }
            there
        })
        .map(|(program, flag, script)| stage.spec(program, &[flag, script, &bytes]))
        .collect()
}

async fn spooled(stage: &Stage, script: &str) -> Running {
    stage.keepers.spawn_spooled(stage.script(script)).await.unwrap()
}

#[tokio::test]
async fn output_is_whole_when_the_program_exits_without_waiting() {
    let stage = Stage::new();
    for bytes in [10, 70_000, 300_000, 5_000_000] {
        for spec in impatient(&stage, bytes) {
            let program = spec.program.clone();
            let mut running = stage.keepers.spawn_spooled(spec).await.unwrap();
            let (text, exit) = hear(&mut running).await;
            assert_eq!((text.len(), exit), (bytes, Exit::Code(0)), "{}", program.display());
        }
    }
    stage.keepers.shutdown().await;
}

#[tokio::test]
async fn output_is_whole_when_it_is_read_after_the_program_has_gone() {
    let stage = Stage::new();
    for bytes in [70_000, 5_000_000] {
        for spec in impatient(&stage, bytes) {
            let mut running = stage.keepers.spawn_spooled(spec).await.unwrap();
            let pid = running.pid();
            until("it is gone", || state(pid).is_none()).await;
            let (text, exit) = hear(&mut running).await;
            assert_eq!((text.len(), exit), (bytes, Exit::Code(0)));
        }
    }
    stage.keepers.shutdown().await;
}

#[tokio::test]
async fn nothing_is_dropped_when_the_reader_pauses_after_the_end() {
    let stage = Stage::new();
    let mut running = spooled(&stage, "head -c 3000000 /dev/zero | tr '\\0' x; echo end").await;
    let pid = running.pid();
    until("it is gone", || state(pid).is_none()).await;
    tokio::time::pause();
    let mut total = 0;
    let exit = loop {
        match running.next().await {
            Step::Stdout(chunk) => {
                total += chunk.len();
                // Longer than output is awaited after the end.
                tokio::time::advance(std::time::Duration::from_secs(2)).await;
            }
            Step::Exited(exit) => break exit,
            Step::Limit(limit) => panic!("{limit:?}"),
        }
    };
    assert_eq!((total, exit), (3_000_004, Exit::Code(0)));
    stage.keepers.shutdown().await;
}

#[tokio::test]
async fn output_comes_as_it_is_printed_when_it_is_spooled() {
    let stage = Stage::new();
    let mut running = spooled(&stage, "echo one; while ! test -e go; do sleep 0.01; done; echo two").await;
    assert_eq!(lines(&mut running, 1).await, ["one"]);
    fs::write(stage.folder().join("go"), "").unwrap();
    assert_eq!(hear(&mut running).await, ("two\n".into(), Exit::Code(0)));
    stage.keepers.shutdown().await;
}

#[tokio::test]
async fn the_end_is_not_taken_for_granted_when_stdout_was_opened_again() {
    let stage = Stage::new();
    let script = "echo one >>/dev/stdout; echo two >>/dev/stdout; while ! test -e go; do sleep 0.01; done; echo three";
    let mut running = spooled(&stage, script).await;
    assert_eq!(lines(&mut running, 2).await, ["one", "two"]);
    fs::write(stage.folder().join("go"), "").unwrap();
    assert_eq!(hear(&mut running).await, ("three\n".into(), Exit::Code(0)));
    stage.keepers.shutdown().await;
}

#[tokio::test]
async fn a_program_that_closes_its_stdout_is_stopped_when_it_stays() {
    let stage = Stage::new();
    let mut running = spooled(&stage, "echo bye; exec >&-; while :; do sleep 1000; done").await;
    let (text, exit) = hear(&mut running).await;
    assert_eq!((text.as_str(), exit), ("bye\n", Exit::Signal(15)));
    assert!(running.was_mute());
    stage.keepers.shutdown().await;
}

#[tokio::test]
async fn a_program_stands_still_when_it_is_far_ahead_of_its_reader() {
    let stage = Stage::new();
    let mut running = spooled(&stage, "exec head -c 200000000 /dev/zero").await;
    let pid = running.pid();
    until("it stands still", || state(pid) == Some('T')).await;
    let mut total = 0;
    let exit = loop {
        match running.next().await {
            Step::Stdout(chunk) => total += chunk.len(),
            Step::Exited(exit) => break exit,
            Step::Limit(limit) => panic!("{limit:?}"),
        }
    };
    assert_eq!((total, exit), (200_000_000, Exit::Code(0)));
    // The keeper is as good as new.
    assert_eq!(hear(&mut spooled(&stage, "echo next").await).await, ("next\n".into(), Exit::Code(0)));
    stage.keepers.shutdown().await;
}

#[tokio::test]
async fn a_program_that_stands_still_is_ended_when_its_run_is_stopped() {
    let stage = Stage::new();
    let running = spooled(&stage, "exec head -c 200000000 /dev/zero").await;
    let pid = running.pid();
    until("it stands still", || state(pid) == Some('T')).await;
    tokio::time::timeout(PATIENCE, running.stop()).await.unwrap();
    until("it is gone", || state(pid).is_none()).await;
    stage.keepers.shutdown().await;
}

#[tokio::test]
async fn memory_is_given_back_when_it_was_read() {
    let stage = Stage::new();
    let mut running =
        spooled(&stage, "until test -p go; do sleep 0.01; done; head -c 100000000 /dev/zero; read -r line <go").await;
    let fifo = stage.folder().join("go");
    rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, rustix::fs::Mode::RWXU).unwrap();
    let mut total = 0;
    while total < 100_000_000 {
        let Step::Stdout(chunk) = running.next().await else { panic!("it ended") };
        total += chunk.len();
    }
    // The program's own end of the file says how much memory it holds.
    use std::os::linux::fs::MetadataExt;
    let held = fs::metadata(format!("/proc/{}/fd/1", running.pid())).unwrap().st_blocks() * 512;
    assert!(held < 4 << 20, "{held} bytes are held");
    fs::write(fifo, "\n").unwrap();
    assert_eq!(hear(&mut running).await.1, Exit::Code(0));
    stage.keepers.shutdown().await;
}

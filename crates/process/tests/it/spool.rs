//! Tests programs that exit without waiting for their reader, as Node programs do: all output arrives.

use std::fs;
use std::path::Path;

use trunkline_process::{ProcessEvent, ProcessExit, RunningProcess, Spec};

use crate::keeper_test::{KeeperTest, TEST_TIMEOUT, lines, read_all, state, until};

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

/// Lists the interpreters of this machine that can run such a program.
fn impatient(test: &KeeperTest, bytes: usize) -> Vec<Spec> {
    let bytes = bytes.to_string();
    [("node", "-e", NODE), ("python3", "-c", PYTHON)]
        .into_iter()
        .filter(|(program, ..)| {
            let exists = ["/usr/local/bin", "/usr/bin", "/bin"].iter().any(|bin| Path::new(bin).join(program).exists());
            if !exists {
                eprintln!("skipped: {program} not found");
            }
            exists
        })
        .map(|(program, flag, script)| test.spec(program, &[flag, script, &bytes]))
        .collect()
}

async fn spooled(test: &KeeperTest, script: &str) -> RunningProcess {
    test.keepers.spawn_spooled(test.script(script)).await.unwrap()
}

#[tokio::test]
async fn output_is_complete_when_program_exits_without_waiting() {
    let test = KeeperTest::new();
    for bytes in [10, 70_000, 300_000, 5_000_000] {
        for spec in impatient(&test, bytes) {
            let program = spec.program.clone();
            let mut running = test.keepers.spawn_spooled(spec).await.unwrap();
            let (text, exit) = read_all(&mut running).await;
            assert_eq!((text.len(), exit), (bytes, ProcessExit::Code(0)), "{}", program.display());
        }
    }
    test.keepers.shutdown().await;
}

#[tokio::test]
async fn output_is_complete_when_read_after_program_has_ended() {
    let test = KeeperTest::new();
    for bytes in [70_000, 5_000_000] {
        for spec in impatient(&test, bytes) {
            let mut running = test.keepers.spawn_spooled(spec).await.unwrap();
            let pid = running.pid();
            until("the program is gone", || state(pid).is_none()).await;
            let (text, exit) = read_all(&mut running).await;
            assert_eq!((text.len(), exit), (bytes, ProcessExit::Code(0)));
        }
    }
    test.keepers.shutdown().await;
}

#[tokio::test]
async fn output_is_complete_when_reader_pauses_after_the_end() {
    let test = KeeperTest::new();
    let mut running = spooled(&test, "head -c 3000000 /dev/zero | tr '\\0' x; echo end").await;
    let pid = running.pid();
    until("the program is gone", || state(pid).is_none()).await;
    tokio::time::pause();
    let mut total = 0;
    let exit = loop {
        match running.next().await {
            ProcessEvent::Stdout(chunk) => {
                total += chunk.len();
                // Longer than the timeout for output after the end.
                tokio::time::advance(std::time::Duration::from_secs(2)).await;
            }
            ProcessEvent::Exited(exit) => break exit,
            ProcessEvent::Limit(limit) => panic!("{limit:?}"),
        }
    };
    assert_eq!((total, exit), (3_000_004, ProcessExit::Code(0)));
    test.keepers.shutdown().await;
}

#[tokio::test]
async fn spooled_output_arrives_as_it_is_printed() {
    let test = KeeperTest::new();
    let mut running = spooled(&test, "echo one; while ! test -e go; do sleep 0.01; done; echo two").await;
    assert_eq!(lines(&mut running, 1).await, ["one"]);
    fs::write(test.folder().join("go"), "").unwrap();
    assert_eq!(read_all(&mut running).await, ("two\n".into(), ProcessExit::Code(0)));
    test.keepers.shutdown().await;
}

#[tokio::test]
async fn close_is_not_taken_for_the_end_when_stdout_was_opened_again() {
    let test = KeeperTest::new();
    let script = "echo one >>/dev/stdout; echo two >>/dev/stdout; while ! test -e go; do sleep 0.01; done; echo three";
    let mut running = spooled(&test, script).await;
    assert_eq!(lines(&mut running, 2).await, ["one", "two"]);
    fs::write(test.folder().join("go"), "").unwrap();
    assert_eq!(read_all(&mut running).await, ("three\n".into(), ProcessExit::Code(0)));
    test.keepers.shutdown().await;
}

#[tokio::test]
async fn program_is_stopped_when_it_closes_its_spooled_stdout_and_stays() {
    let test = KeeperTest::new();
    let mut running = spooled(&test, "echo bye; exec >&-; while :; do sleep 1000; done").await;
    let (text, exit) = read_all(&mut running).await;
    assert_eq!((text.as_str(), exit), ("bye\n", ProcessExit::Signal(15)));
    assert!(running.was_mute());
    test.keepers.shutdown().await;
}

#[tokio::test]
async fn program_is_paused_when_it_is_far_ahead_of_its_reader() {
    let test = KeeperTest::new();
    let mut running = spooled(&test, "exec head -c 200000000 /dev/zero").await;
    let pid = running.pid();
    until("the program is paused", || state(pid) == Some('T')).await;
    let mut total = 0;
    let exit = loop {
        match running.next().await {
            ProcessEvent::Stdout(chunk) => total += chunk.len(),
            ProcessEvent::Exited(exit) => break exit,
            ProcessEvent::Limit(limit) => panic!("{limit:?}"),
        }
    };
    assert_eq!((total, exit), (200_000_000, ProcessExit::Code(0)));
    // The keeper can serve another program.
    assert_eq!(read_all(&mut spooled(&test, "echo next").await).await, ("next\n".into(), ProcessExit::Code(0)));
    test.keepers.shutdown().await;
}

#[tokio::test]
async fn paused_program_ends_when_it_is_stopped() {
    let test = KeeperTest::new();
    let running = spooled(&test, "exec head -c 200000000 /dev/zero").await;
    let pid = running.pid();
    until("the program is paused", || state(pid) == Some('T')).await;
    tokio::time::timeout(TEST_TIMEOUT, running.stop()).await.unwrap();
    until("the program is gone", || state(pid).is_none()).await;
    test.keepers.shutdown().await;
}

#[tokio::test]
async fn memory_is_freed_when_output_was_read() {
    let test = KeeperTest::new();
    let mut running =
        spooled(&test, "until test -p go; do sleep 0.01; done; head -c 100000000 /dev/zero; read -r line <go").await;
    let fifo = test.folder().join("go");
    rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, rustix::fs::Mode::RWXU).unwrap();
    let mut total = 0;
    while total < 100_000_000 {
        let ProcessEvent::Stdout(chunk) = running.next().await else { panic!("the program ended") };
        total += chunk.len();
    }
    // The blocks of the file, seen through the program's end, are its memory.
    use std::os::linux::fs::MetadataExt;
    let held = fs::metadata(format!("/proc/{}/fd/1", running.pid())).unwrap().st_blocks() * 512;
    assert!(held < 4 << 20, "{held} bytes are held");
    fs::write(fifo, "\n").unwrap();
    assert_eq!(read_all(&mut running).await.1, ProcessExit::Code(0));
    test.keepers.shutdown().await;
}

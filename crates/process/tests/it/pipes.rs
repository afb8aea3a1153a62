//! Tests input and output, in amounts that would deadlock a careless reader or writer.

use std::fs;
use std::time::Duration;

use trunkline_core::limits::{LimitKind, RunLimits};
use trunkline_process::{Cut, ProcessEvent, ProcessExit};

use crate::keeper_test::{KeeperTest, TEST_TIMEOUT, lines, read_all};

#[tokio::test]
async fn case_45_large_input_is_written_while_large_output_is_read() {
    let test = KeeperTest::new();
    let mut spec = test.script("head -c 3000000 /dev/zero | tr '\\0' x; cat");
    let input: String = (0..100_000).map(|n| format!("{n:010}\n")).collect();
    spec.stdin = input.clone().into_bytes();
    let mut running = test.keepers.spawn(spec).await.unwrap();
    let (text, exit) = read_all(&mut running).await;
    assert_eq!(exit, ProcessExit::Code(0));
    assert!(text == "x".repeat(3_000_000) + &input);
    test.keepers.shutdown().await;
}

#[tokio::test]
async fn case_45_unread_input_does_not_block() {
    let test = KeeperTest::new();
    for script in ["echo done", "exec <&-; echo done", "head -c 10 >/dev/null; echo done"] {
        let mut spec = test.script(script);
        spec.stdin = vec![b'x'; 1 << 20];
        let output = test.keepers.output(spec).await.unwrap();
        assert_eq!((output.exit, &output.stdout[..]), (ProcessExit::Code(0), &b"done\n"[..]));
    }
    test.keepers.shutdown().await;
}

#[tokio::test]
async fn input_arrives_whole_whether_or_not_it_is_part_of_the_request() {
    let test = KeeperTest::new();
    for bytes in [1, 4095, 4096, 4097, 100_000] {
        let mut spec = test.script("cat");
        spec.stdin = (0..bytes).map(|n| b'a' + (n % 26) as u8).collect();
        let input = spec.stdin.clone();
        let mut running = test.keepers.spawn_spooled(spec).await.unwrap();
        let (text, exit) = read_all(&mut running).await;
        assert_eq!((text.len(), exit), (bytes, ProcessExit::Code(0)));
        assert!(text.as_bytes() == input);
    }
    test.keepers.shutdown().await;
}

#[tokio::test]
async fn case_46_stdin_is_dev_null_when_there_is_no_input() {
    let test = KeeperTest::new();
    let output = test.keepers.output(test.script("cat; readlink /proc/self/fd/0")).await.unwrap();
    assert_eq!(output.stdout, b"/dev/null\n");
    test.keepers.shutdown().await;
}

#[tokio::test]
async fn open_stdin_takes_lines_one_by_one() {
    let test = KeeperTest::new();
    let mut spec = test.script("while read -r line; do echo \"heard $line\"; done; echo bye");
    spec.stdin = b"first\n".to_vec();
    let mut running = test.keepers.spawn_open(spec).await.unwrap();
    assert_eq!(lines(&mut running, 1).await, ["heard first"]);
    for word in ["second", "third"] {
        running.write(format!("{word}\n").as_bytes());
        assert_eq!(lines(&mut running, 1).await, [format!("heard {word}")]);
    }
    assert!(running.resident() > 0);
    assert_eq!(running.finish(TEST_TIMEOUT).await, ProcessExit::Code(0), "it ends when its input ends");
    test.keepers.shutdown().await;
}

#[tokio::test]
async fn open_stdin_takes_more_than_the_pipe_holds() {
    let test = KeeperTest::new();
    let mut spec = test.script("head -c 3000000 /dev/zero | tr '\\0' x; head -c 1100000 | wc -c");
    spec.stdin = vec![b'x'; 100_000];
    let mut running = test.keepers.spawn_open(spec).await.unwrap();
    running.write(&vec![b'y'; 1_000_000]);
    let (text, exit) = read_all(&mut running).await;
    assert_eq!((text.trim_start_matches('x').trim(), exit), ("1100000", ProcessExit::Code(0)));
    running.write(b"unread");
    assert_eq!(running.next().await, ProcessEvent::Exited(ProcessExit::Code(0)));
    test.keepers.shutdown().await;
}

#[tokio::test]
async fn limits_start_again_when_they_are_replaced() {
    let test = KeeperTest::new();
    let mut running = test.keepers.spawn_open(test.script("read -r line; echo $line; read -r line")).await.unwrap();
    running.write(b"hello\n");
    assert_eq!(lines(&mut running, 1).await, ["hello"]);
    running.limit(RunLimits { startup: Duration::from_millis(50), ..RunLimits::NONE });
    let ProcessEvent::Limit(overrun) = running.next().await else { panic!("not a limit") };
    assert_eq!(overrun.limit, LimitKind::Startup, "no output since the limits were replaced");
    running.stop().await;
    test.keepers.shutdown().await;
}

#[tokio::test]
async fn case_44_last_part_of_stderr_is_kept_when_there_is_much() {
    let test = KeeperTest::new();
    let mut running = test.start("head -c 5000000 /dev/zero | tr '\\0' e >&2; echo last words >&2; echo out").await;
    assert_eq!(read_all(&mut running).await, ("out\n".into(), ProcessExit::Code(0)));
    let tail = running.stderr_tail();
    assert_eq!(tail.len(), 64 * 1024);
    assert!(tail.ends_with("eelast words\n"));
    test.keepers.shutdown().await;
}

#[tokio::test]
async fn output_is_not_buffered_in_memory() {
    let test = KeeperTest::new();
    let mut running = test.start("head -c 100000000 /dev/zero").await;
    let before = resident();
    let (mut total, mut largest) = (0, 0);
    loop {
        match running.next().await {
            ProcessEvent::Stdout(chunk) => {
                total += chunk.len();
                largest = largest.max(chunk.len());
            }
            ProcessEvent::Exited(exit) => break assert_eq!(exit, ProcessExit::Code(0)),
            ProcessEvent::Limit(limit) => panic!("{limit:?}"),
        }
    }
    assert_eq!(total, 100_000_000);
    assert!(largest <= 64 * 1024);
    // Generous, because other tests run in this process too.
    assert!(resident() < before + (64 << 20));
    test.keepers.shutdown().await;
}

#[tokio::test]
async fn program_waits_when_its_reader_is_slow() {
    let test = KeeperTest::new();
    let mut running = test.start("head -c 1000000 /dev/zero; : > written; echo").await;
    assert!(matches!(running.next().await, ProcessEvent::Stdout(_)));
    assert!(!test.folder().join("written").exists());
    read_all(&mut running).await;
    assert!(test.folder().join("written").exists());
    test.keepers.shutdown().await;
}

#[tokio::test]
async fn collected_output_is_bounded() {
    let test = KeeperTest::new();
    let output = test.keepers.output(test.script("yes; echo unreachable")).await.unwrap();
    assert_eq!(output.cut, Some(Cut::TooLong));
    assert!(!output.success());
    assert!(output.stdout.len() > 7 << 20 && output.stdout.len() <= 8 << 20);
    let output = test.keepers.output(test.script("echo out; echo err >&2; exit 4")).await.unwrap();
    assert_eq!((output.exit, output.cut), (ProcessExit::Code(4), None));
    assert_eq!((&output.stdout[..], &output.stderr[..]), (&b"out\n"[..], "err\n"));
    test.keepers.shutdown().await;
}

#[tokio::test]
async fn output_arrives_as_it_is_printed() {
    let test = KeeperTest::new();
    let mut running = test.start("echo one; while ! test -e go; do sleep 0.01; done; echo two").await;
    assert_eq!(lines(&mut running, 1).await, ["one"]);
    fs::write(test.folder().join("go"), "").unwrap();
    assert_eq!(read_all(&mut running).await, ("two\n".into(), ProcessExit::Code(0)));
    test.keepers.shutdown().await;
}

fn resident() -> usize {
    let statm = fs::read_to_string("/proc/self/statm").unwrap_or_default();
    statm.split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok()).expect("Linux has statm") * 4096
}

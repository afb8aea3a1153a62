//! Input and output, in amounts that block a careless reader or writer.

use std::fs;
use std::time::Duration;

use trunkline_core::limits::{Limit, Limits};
use trunkline_process::{Cut, Exit, Step};

use crate::stage::{PATIENCE, Stage, hear, lines};

#[tokio::test]
async fn case_45_a_megabyte_goes_in_while_more_comes_out() {
    let stage = Stage::new();
    let mut spec = stage.script("head -c 3000000 /dev/zero | tr '\\0' x; cat");
    let input: String = (0..100_000).map(|n| format!("{n:010}\n")).collect();
    spec.stdin = input.clone().into_bytes();
    let mut running = stage.keepers.spawn(spec).await.unwrap();
    let (text, exit) = hear(&mut running).await;
    assert_eq!(exit, Exit::Code(0));
    assert!(text == "x".repeat(3_000_000) + &input);
    stage.keepers.shutdown().await;
}

#[tokio::test]
async fn case_45_input_that_nobody_reads_hinders_nobody() {
    let stage = Stage::new();
    for script in ["echo done", "exec <&-; echo done", "head -c 10 >/dev/null; echo done"] {
        let mut spec = stage.script(script);
        spec.stdin = vec![b'x'; 1 << 20];
        let output = stage.keepers.output(spec).await.unwrap();
        assert_eq!((output.exit, &output.stdout[..]), (Exit::Code(0), &b"done\n"[..]));
    }
    stage.keepers.shutdown().await;
}

#[tokio::test]
async fn case_46_no_input_is_the_end_of_input() {
    let stage = Stage::new();
    let output = stage.keepers.output(stage.script("cat; readlink /proc/self/fd/0")).await.unwrap();
    assert_eq!(output.stdout, b"/dev/null\n");
    stage.keepers.shutdown().await;
}

#[tokio::test]
async fn a_program_that_is_talked_to() {
    let stage = Stage::new();
    let mut spec = stage.script("while read -r line; do echo \"heard $line\"; done; echo bye");
    spec.stdin = b"first\n".to_vec();
    let mut running = stage.keepers.spawn_open(spec).await.unwrap();
    assert_eq!(lines(&mut running, 1).await, ["heard first"]);
    for word in ["second", "third"] {
        running.write(format!("{word}\n").as_bytes());
        assert_eq!(lines(&mut running, 1).await, [format!("heard {word}")]);
    }
    assert!(running.resident() > 0);
    assert_eq!(running.finish(PATIENCE).await, Exit::Code(0), "its input ends, and so does it");
    stage.keepers.shutdown().await;
}

#[tokio::test]
async fn it_is_told_more_than_its_pipe_holds() {
    let stage = Stage::new();
    let mut spec = stage.script("head -c 3000000 /dev/zero | tr '\\0' x; head -c 1100000 | wc -c");
    spec.stdin = vec![b'x'; 100_000];
    let mut running = stage.keepers.spawn_open(spec).await.unwrap();
    running.write(&vec![b'y'; 1_000_000]);
    let (text, exit) = hear(&mut running).await;
    assert_eq!((text.trim_start_matches('x').trim(), exit), ("1100000", Exit::Code(0)));
    running.write(b"to nobody");
    assert_eq!(running.next().await, Step::Exited(Exit::Code(0)));
    stage.keepers.shutdown().await;
}

#[tokio::test]
async fn its_limits_begin_with_what_it_is_asked() {
    let stage = Stage::new();
    let mut running = stage.keepers.spawn_open(stage.script("read -r line; echo $line; read -r line")).await.unwrap();
    running.write(b"hello\n");
    assert_eq!(lines(&mut running, 1).await, ["hello"]);
    running.limit(Limits { startup: Duration::from_millis(50), ..Limits::NONE });
    let Step::Limit(overrun) = running.next().await else { panic!("it said something") };
    assert_eq!(overrun.limit, Limit::Startup, "it has not spoken since");
    running.stop().await;
    stage.keepers.shutdown().await;
}

#[tokio::test]
async fn case_44_of_a_flood_on_stderr_the_end_is_kept() {
    let stage = Stage::new();
    let mut running = stage.start("head -c 5000000 /dev/zero | tr '\\0' e >&2; echo last words >&2; echo out").await;
    assert_eq!(hear(&mut running).await, ("out\n".into(), Exit::Code(0)));
    let tail = running.stderr_tail();
    assert_eq!(tail.len(), 64 * 1024);
    assert!(tail.ends_with("eelast words\n"));
    stage.keepers.shutdown().await;
}

#[tokio::test]
async fn output_is_not_hoarded() {
    let stage = Stage::new();
    let mut running = stage.start("head -c 100000000 /dev/zero").await;
    let before = resident();
    let (mut total, mut largest) = (0, 0);
    loop {
        match running.next().await {
            Step::Stdout(chunk) => {
                total += chunk.len();
                largest = largest.max(chunk.len());
            }
            Step::Exited(exit) => break assert_eq!(exit, Exit::Code(0)),
            Step::Limit(limit) => panic!("{limit:?}"),
        }
    }
    assert_eq!(total, 100_000_000);
    assert!(largest <= 64 * 1024);
    // Other tests run in this process too.
    assert!(resident() < before + (64 << 20));
    stage.keepers.shutdown().await;
}

#[tokio::test]
async fn a_slow_reader_slows_the_program_down() {
    let stage = Stage::new();
    let mut running = stage.start("head -c 1000000 /dev/zero; : > written; echo").await;
    assert!(matches!(running.next().await, Step::Stdout(_)));
    assert!(!stage.folder().join("written").exists());
    hear(&mut running).await;
    assert!(stage.folder().join("written").exists());
    stage.keepers.shutdown().await;
}

#[tokio::test]
async fn collected_output_is_bounded() {
    let stage = Stage::new();
    let output = stage.keepers.output(stage.script("yes; echo unreachable")).await.unwrap();
    assert_eq!(output.cut, Some(Cut::TooLong));
    assert!(!output.success());
    assert!(output.stdout.len() > 7 << 20 && output.stdout.len() <= 8 << 20);
    let output = stage.keepers.output(stage.script("echo out; echo err >&2; exit 4")).await.unwrap();
    assert_eq!((output.exit, output.cut), (Exit::Code(4), None));
    assert_eq!((&output.stdout[..], &output.stderr[..]), (&b"out\n"[..], "err\n"));
    stage.keepers.shutdown().await;
}

#[tokio::test]
async fn output_comes_as_it_is_printed() {
    let stage = Stage::new();
    let mut running = stage.start("echo one; while ! test -e go; do sleep 0.01; done; echo two").await;
    assert_eq!(lines(&mut running, 1).await, ["one"]);
    fs::write(stage.folder().join("go"), "").unwrap();
    assert_eq!(hear(&mut running).await, ("two\n".into(), Exit::Code(0)));
    stage.keepers.shutdown().await;
}

fn resident() -> usize {
    let statm = fs::read_to_string("/proc/self/statm").unwrap_or_default();
    statm.split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok()).expect("Linux has statm") * 4096
}

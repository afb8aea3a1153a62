//! Tests the writer and the readers of the log together.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::sync::Arc;

use super::test_log::{TestLog, accepted, provider, started};
use super::*;

#[test]
fn full_segment_is_followed_by_another() {
    let log = TestLog::new(1);
    for number in 0..3 {
        let extent = log.write("r", &started("p"));
        assert_eq!((extent.position().segment, extent.position().offset), (number, 0));
        assert_eq!(log.runs_in(number), ["r"]);
    }
}

#[test]
fn run_is_read_from_several_segments_between_other_runs() {
    let log = TestLog::new(400);
    let first = log.write("a", &accepted()).position();
    let second = log.write("b", &accepted()).position();
    for step in 0..20 {
        log.write("a", &started(&format!("a{step}")));
        log.write("b", &started(&format!("b{step}")));
    }
    assert!(log.folder().processes().unwrap()[0].segments.len() > 3);
    for (run, position) in [("a", &first), ("b", &second)] {
        let expected: Vec<String> =
            std::iter::once("accepted".into()).chain((0..20).map(|step| format!("{run}{step}"))).collect();
        assert_eq!(log.read(run, position), expected);
    }
    assert_eq!(log.read("c", &first), Vec::<String>::new());
}

#[test]
fn reader_continues_once_more_is_written() {
    let log = TestLog::new(300);
    let position = log.write("a", &accepted()).position();
    let mut reader = RunLogReader::new(&log.folder(), "a", &position);
    assert!(matches!(reader.next_record().unwrap(), Some(LogRecord::Accepted(_))));
    for step in 0..10 {
        assert!(reader.next_record().unwrap().is_none());
        log.write("a", &started(&step.to_string()));
        assert_eq!(reader.next_record().unwrap().map(|record| provider(&record)), Some(step.to_string()));
    }
}

#[test]
fn run_is_found_from_any_position_when_its_segment_was_rewritten() {
    let log = TestLog::new(u64::MAX);
    let length = log.write("x", &started("1")).length;
    log.write("x", &started("2"));
    log.write("a", &accepted());
    for _ in 0..4 {
        assert_eq!(log.write("a", &started("3")).length, length);
    }
    log.writer.close();
    log.folder().forget(&HashSet::from(["x".to_owned()]), &HashMap::new()).unwrap();
    let position = LogPosition { process: log.writer.process().into(), segment: 0, offset: 0 };
    let expected = ["accepted", "3", "3", "3", "3"];
    for offset in 0..8 * length {
        assert_eq!(log.read("a", &LogPosition { offset, ..position.clone() }), expected, "{offset}");
    }
}

#[test]
fn failed_write_leaves_nothing_and_later_ones_succeed() {
    for stored in [0, 1, 8, 9, 20, 1000] {
        for failures in 1..4 {
            let log = TestLog::new(u64::MAX);
            log.write("a", &started("1"));
            log.writer.fail_after(0, failures, stored);
            // The first failure is that of the write, the others keep its remains from being cut.
            let refused = if failures == 3 { 2 } else { 1 };
            for _ in 0..refused {
                assert!(log.append("torn", &started("2")).is_err());
                assert_eq!(log.runs_in(0), ["a"], "{stored} bytes are no line");
            }
            assert!(log.writer.has_failed());
            assert_eq!(log.writer.failed_writes(), refused);
            log.write("b", &started("3"));
            assert_eq!(log.runs_in(0), ["a", "b"], "after {stored} bytes");
        }
    }
}

#[test]
fn full_segment_takes_the_end_of_runs_when_no_other_can_be_started() {
    let log = TestLog::new(1);
    let mut line = Vec::new();
    line::append(&mut line, "a", &accepted());
    log.writer.append(&line, Purpose::Accept, |_| ()).unwrap();
    for failing in 0..2 {
        // The new file, or the space in it.
        log.writer.fail_after(failing, 1, 0);
        assert_eq!(log.write("a", &started("p")).position().segment, 0);
        log.writer.fail_after(failing, 1, 0);
        assert!(log.writer.append(&line, Purpose::Accept, |_| ()).is_err());
        assert_eq!(log.folder().processes().unwrap()[0].segments, [0]);
    }
    assert_eq!(log.writer.append(&line, Purpose::Accept, |at| at.position().segment).unwrap(), 1);
    assert_eq!((log.runs_in(0), log.runs_in(1)), (vec!["a".to_owned(); 3], vec!["a".to_owned()]));
}

#[test]
fn log_is_checked_with_a_write_when_the_last_one_failed() {
    let log = TestLog::new(u64::MAX);
    assert!(log.writer.check().is_ok());
    log.write("a", &started("1"));
    log.writer.fail_after(0, 1, 5);
    assert!(log.append("torn", &started("2")).is_err());
    assert!(log.writer.check().is_ok());
    assert_eq!(log.runs_in(0), ["a"]);
    log.write("b", &started("3"));
    assert_eq!(log.runs_in(0), ["a", "b"]);
}

#[test]
fn extents_of_a_run_are_read_while_others_write() {
    let log = TestLog::new(500);
    let extents = Arc::new(RunExtents::default());
    let mut reader = ExtentReader::new(Arc::clone(&extents));
    assert!(reader.next_record().unwrap().is_none());
    for step in 0..30 {
        if step % 3 == 0 {
            log.write("other", &started("x"));
        }
        extents.add(log.write("a", &started(&step.to_string())));
        if step % 2 == 0 {
            assert_eq!(reader.next_record().unwrap().map(|record| provider(&record)), Some((step / 2).to_string()));
        }
    }
    let rest: Vec<String> =
        std::iter::from_fn(|| reader.next_record().unwrap()).map(|record| provider(&record)).collect();
    assert_eq!(rest, (15..30).map(|step| step.to_string()).collect::<Vec<_>>());
    // A reader that comes later reads all of it.
    let mut late = ExtentReader::new(extents);
    assert_eq!(std::iter::from_fn(|| late.next_record().unwrap()).count(), 30);
}

#[test]
fn long_lines_are_read_in_parts() {
    let log = TestLog::new(u64::MAX);
    let extents = Arc::new(RunExtents::default());
    let long = "x".repeat(200_000);
    extents.add(log.write("a", &started(&long)));
    extents.add(log.write("a", &started("short")));
    let mut reader = ExtentReader::new(extents);
    let read: Vec<String> =
        std::iter::from_fn(|| reader.next_record().unwrap()).map(|record| provider(&record)).collect();
    assert!(read == [long.as_str(), "short"]);
    assert_eq!(log.runs_in(0), ["a", "a"]);
}

#[test]
fn records_of_a_living_process_are_forgotten_once_their_segment_is_indexed() {
    let log = TestLog::new(1);
    for run in ["old", "new", "old", "old"] {
        log.write(run, &started("p"));
    }
    let old = HashSet::from(["old".to_owned()]);
    let process: Arc<str> = log.writer.process().into();
    let indexed = |segment| {
        let position = LogPosition { process: Arc::clone(&process), segment, offset: 0 };
        HashMap::from([(Arc::clone(&process), position)])
    };
    assert_eq!(log.folder().forget(&old, &HashMap::new()).unwrap(), old, "nothing is indexed");
    assert_eq!(log.folder().processes().unwrap()[0].segments, [0, 1, 2, 3]);
    assert_eq!(log.folder().forget(&old, &indexed(3)).unwrap(), old, "the last segment is being written");
    assert_eq!(log.folder().processes().unwrap()[0].segments, [1, 2, 3], "an empty one stays between others");
    assert_eq!((log.runs_in(1), log.runs_in(2), log.runs_in(3)), (vec!["new".into()], vec![], vec!["old".into()]));
    log.writer.close();
    let copy = log.folder().segment_path(&process, 9).with_extension("new");
    fs::write(&copy, "remains of a killed process").unwrap();
    assert_eq!(log.folder().forget(&old, &indexed(3)).unwrap(), HashSet::new());
    assert_eq!(log.folder().processes().unwrap()[0].segments, [1]);
    assert!(!copy.exists());
}

#[test]
fn damaged_line_is_skipped_when_intact_lines_follow() {
    let log = TestLog::new(u64::MAX);
    let ends: Vec<u64> = ["a", "b", "c"].iter().map(|run| log.write(run, &started("p")).offset).collect();
    let path = log.folder().segment_path(log.writer.process(), 0);
    let good = fs::read(&path).unwrap();
    for (damaged, left) in [(0, ["b", "c"]), (1, ["a", "c"]), (2, ["a", "b"])] {
        let mut bytes = good.clone();
        bytes[usize::try_from(ends[damaged]).unwrap() + 12] ^= 1;
        fs::write(&path, bytes).unwrap();
        assert_eq!(log.runs_in(0), left);
        let mut reader = log.reader(0);
        while reader.next().unwrap().is_some() {}
        let expected = if damaged == 2 { ends[2] } else { good.len() as u64 };
        assert_eq!(reader.offset(), expected, "only damage at the end is a write that was cut short");
    }
}

#[test]
fn compressed_segments_read_as_before_and_can_be_rewritten() {
    let log = TestLog::new(700);
    let mut positions = Vec::new();
    for at in 0..60 {
        let run = format!("run-{}", at % 7);
        let extent = log.write(&run, &if at < 7 { accepted() } else { started(&at.to_string()) });
        if at < 7 {
            positions.push((run, extent.position()));
        }
    }
    let read = || -> Vec<Vec<String>> { positions.iter().map(|(run, position)| log.read(run, position)).collect() };
    let before = read();
    let process: Arc<str> = log.writer.process().into();
    let last = log.folder().processes().unwrap()[0].segments.len() - 1;
    let indexed = LogPosition { process: Arc::clone(&process), segment: u32::try_from(last).unwrap(), offset: 0 };
    let indexed = HashMap::from([(Arc::clone(&process), indexed)]);
    assert!(log.folder().compress_old(std::time::Duration::ZERO, &indexed).unwrap() > 0);
    let compressed = |number: u32| !log.folder().segment_path(&process, number).exists();
    assert!(compressed(0) && compressed(1) && !compressed(indexed[&process].segment), "not the one being written");
    assert_eq!(read(), before);
    let left = log.folder().forget(&HashSet::from(["run-3".to_owned()]), &indexed).unwrap();
    assert!(!compressed(0) && !log.runs_in(0).contains(&"run-3".to_owned()));
    let after = read();
    assert!(before.iter().zip(&after).enumerate().all(|(run, (before, after))| run == 3 || before == after));
    assert!(after[3].len() < before[3].len() && left.len() <= 1);
}

//! Finds turns in a trace of one connection, and counts calls and writes before the end of their answers. Pure functions.

use std::collections::BTreeMap;

use super::trace::{TraceLine, TraceStep, parse};

/// Calls that write to a file.
const WRITES: [&str; 5] = ["write", "writev", "pwrite64", "pwritev", "pwritev2"];

/// Calls that send to a socket.
const SENDS: [&str; 5] = ["write", "writev", "sendto", "sendmsg", "sendfile"];

/// Calls that receive from a socket.
const RECEIVES: [&str; 4] = ["read", "readv", "recvfrom", "recvmsg"];

/// Lines of one turn in a trace, by their index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TracedTurn {
    /// Line of the request.
    request: usize,
    /// Line of the last part of the answer.
    answer: usize,
    /// Line of the next request, or the number of lines.
    end: usize,
}

/// Counts of one turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TurnCounts {
    /// System calls from the request to the end of the answer.
    pub(super) calls_before: usize,
    /// Writes to files in the same time, without those to the index.
    pub(super) writes_before: usize,
    /// Writes to all files between the end of the answer and the next request.
    pub(super) writes_after: usize,
}

/// A call that matters to a turn, with the path of a file that is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TurnStep<'a> {
    Request,
    Answer,
    Write(&'a str),
}

/// Finds the turns. The trace must show what descriptors refer to (`-yy`) and have one connection.
pub(super) fn turns(lines: &[&str]) -> Vec<TracedTurn> {
    let mut turns: Vec<TracedTurn> = Vec::new();
    let mut answered = true;
    for (line, step) in turn_steps(lines) {
        match (step, turns.last_mut()) {
            (TurnStep::Request, last) if answered => {
                if let Some(last) = last {
                    last.end = line;
                }
                turns.push(TracedTurn { request: line, answer: line, end: lines.len() });
                answered = false;
            }
            (TurnStep::Answer, Some(turn)) => (turn.answer, answered) = (line, true),
            // The rest of a request that came in pieces, or an answer whose request is not in the trace.
            (TurnStep::Request | TurnStep::Answer, _) | (TurnStep::Write(_), _) => {}
        }
    }
    turns
}

impl TracedTurn {
    /// Counts calls, and writes to files below `folder`.
    pub(super) fn counts(self, lines: &[&str], folder: &str) -> TurnCounts {
        let (before, after) = (&lines[self.request..=self.answer], &lines[self.answer + 1..self.end]);
        let is_call = |line: &&&str| {
            matches!(parse(line).map(|line| line.step), Some(TraceStep::Call { .. } | TraceStep::Unfinished { .. }))
        };
        let writes = |lines: &[&str], is_counted: fn(&str) -> bool| {
            let counts = |step: TurnStep<'_>| matches!(step, TurnStep::Write(path) if is_below(path, folder) && is_counted(path));
            turn_steps(lines).into_iter().filter(|(_, step)| counts(*step)).count()
        };
        TurnCounts {
            calls_before: before.iter().filter(is_call).count(),
            writes_before: writes(before, |path| !is_index(path)),
            writes_after: writes(after, |_| true),
        }
    }

    /// All lines of the turn, until the next one.
    pub(super) fn lines<'a>(self, lines: &[&'a str]) -> Vec<&'a str> {
        lines[self.request..self.end].to_vec()
    }
}

/// The steps of all turns with the index of the line on which their call begins, in the order in which they take effect: a
/// receipt when its call ends, anything else when its call begins.
fn turn_steps<'a>(lines: &[&'a str]) -> Vec<(usize, TurnStep<'a>)> {
    let mut steps = Vec::new();
    // First lines of interrupted calls, by thread.
    let mut unfinished: BTreeMap<u32, (usize, &str, &str)> = BTreeMap::new();
    for (index, line) in lines.iter().enumerate() {
        let Some(TraceLine { thread, step }) = parse(line) else { continue };
        match step {
            TraceStep::Call { name, arguments, result } => {
                steps.extend(
                    step_at_begin(name, arguments).or(step_at_end(name, arguments, result)).map(|it| (index, it)),
                );
            }
            TraceStep::Unfinished { name, arguments } => {
                steps.extend(step_at_begin(name, arguments).map(|it| (index, it)));
                unfinished.insert(thread, (index, name, arguments));
            }
            TraceStep::Resumed { result } => {
                if let Some((begin, name, arguments)) = unfinished.remove(&thread) {
                    steps.extend(step_at_end(name, arguments, result).map(|it| (begin, it)));
                }
            }
        }
    }
    steps
}

fn step_at_begin<'a>(name: &str, arguments: &'a str) -> Option<TurnStep<'a>> {
    let descriptor = descriptor(arguments)?;
    if is_tcp(descriptor) {
        return SENDS.contains(&name).then_some(TurnStep::Answer);
    }
    let (path, _) = descriptor.split_once('>')?;
    WRITES.contains(&name).then_some(TurnStep::Write(path))
}

fn step_at_end(name: &str, arguments: &str, result: Option<i64>) -> Option<TurnStep<'static>> {
    let received = RECEIVES.contains(&name) && result > Some(0) && is_tcp(descriptor(arguments)?);
    received.then_some(TurnStep::Request)
}

/// The text after `<` of a first argument such as `5</path>` or `5<TCP:[127.0.0.1:80->127.0.0.1:4000]>`.
fn descriptor(arguments: &str) -> Option<&str> {
    let (number, described) = arguments.split_once('<')?;
    (!number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())).then_some(described)
}

fn is_tcp(descriptor: &str) -> bool {
    descriptor.starts_with("TCP:") || descriptor.starts_with("TCPv6:")
}

fn is_below(path: &str, folder: &str) -> bool {
    path.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'))
}

/// Whether a file belongs to the index. One thread writes it for all turns, and no answer waits for it.
fn is_index(path: &str) -> bool {
    path.rsplit('/').next().is_some_and(|name| name.starts_with("trunkline.db"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two turns: four writes before the first answer, one of them elsewhere, and one to the index; one after it; none in
    /// the second.
    const TRACE: [&str; 15] = [
        r#"1 recvfrom(9<TCP:[127.0.0.1:80->127.0.0.1:4000]>, "POST"..., 8192, 0, NULL, NULL) = 154"#,
        r#"1 recvfrom(9<TCP:[127.0.0.1:80->127.0.0.1:4000]>, 0x7f, 8192, 0, NULL, NULL) = -1 EAGAIN (…)"#,
        r#"2 pwrite64(5</s/state/notes>, ""..., 4096, 0) = 4096"#,
        r#"3 pwrite64(4</s/state/trunkline.db-wal>, ""..., 4096, 0) = 4096"#,
        r#"2 write(6</s/state/runs/1/log>, ""..., 40 <unfinished ...>"#,
        r#"1 write(7<anon_inode:[eventfd]>, ""..., 8) = 8"#,
        r#"2 <... write resumed>) = 40"#,
        r#"1 write(8</s/state-of-others>, ""..., 40) = 40"#,
        r#"1 writev(9<TCP:[127.0.0.1:80->127.0.0.1:4000]>, [{}], 2) = 300"#,
        r#"3 pwrite64(4</s/state/trunkline.db-wal>, ""..., 4096, 0) = 4096"#,
        r#"1 recvfrom(9<TCP:[127.0.0.1:80->127.0.0.1:4000]>,  <unfinished ...>"#,
        r#"2 futex(0x7f, FUTEX_WAKE_PRIVATE, 1) = 0"#,
        r#"1 <... recvfrom resumed>"POST"..., 8192, 0, NULL, NULL) = 154"#,
        r#"1 sendto(9<TCP:[127.0.0.1:80->127.0.0.1:4000]>, ""..., 300, 0, NULL, 0) = 300"#,
        r#"1 recvfrom(9<TCP:[127.0.0.1:80->127.0.0.1:4000]>, "", 8192, 0, NULL, NULL) = 0"#,
    ];

    fn counts(lines: &[&str], folder: &str) -> Vec<[usize; 3]> {
        let counts = turns(lines).into_iter().map(|turn| turn.counts(lines, folder));
        counts.map(|counts| [counts.calls_before, counts.writes_before, counts.writes_after]).collect()
    }

    #[test]
    fn writes_to_files_below_the_folder_are_counted_before_and_after_the_answer() {
        assert_eq!(counts(&TRACE, "/s/state"), [[8, 2, 1], [3, 0, 0]]);
        assert_eq!(counts(&TRACE, "/elsewhere"), [[8, 0, 0], [3, 0, 0]]);
    }

    #[test]
    fn writes_between_two_parts_of_an_answer_are_before_its_end() {
        let answer = "1 sendto(9<TCP:[a->b]>, 1) = 1";
        let lines = ["1 read(9<TCP:[a->b]>, 1) = 1", answer, "1 write(5</s/log>, 1) = 1", answer];
        assert_eq!(counts(&lines, "/s"), [[4, 1, 0]]);
    }

    #[test]
    fn turn_begins_with_its_request_and_ends_before_the_next() {
        let turns: Vec<_> = turns(&TRACE).into_iter().map(|turn| turn.lines(&TRACE)).collect();
        assert_eq!(turns, [&TRACE[..10], &TRACE[10..]]);
    }

    #[test]
    fn answer_without_its_request_is_ignored() {
        assert_eq!(counts(&TRACE[8..], "/s/state"), [[3, 0, 0]]);
        assert_eq!(counts(&TRACE[13..], "/s/state"), Vec::<[usize; 3]>::new());
    }
}

//! Finds turns in a trace of one connection, and the writes to files before the end of their answers. Pure functions.

use std::collections::BTreeMap;

use super::trace::{TraceLine, TraceStep, parse};

/// Calls that write to a file.
const WRITES: [&str; 5] = ["write", "writev", "pwrite64", "pwritev", "pwritev2"];

/// Calls that send to a socket.
const SENDS: [&str; 5] = ["write", "writev", "sendto", "sendmsg", "sendfile"];

/// Calls that receive from a socket.
const RECEIVES: [&str; 4] = ["read", "readv", "recvfrom", "recvmsg"];

/// Writes to regular files.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct FileWrites {
    /// Requests in the trace.
    pub(super) turns: usize,
    /// Writes between a request and the end of its answer.
    pub(super) before_answer: usize,
    /// Writes between the end of an answer and the next request.
    pub(super) after_answer: usize,
}

/// A call that matters to a turn, with the path of a file that is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TurnStep<'a> {
    Request,
    Answer,
    Write(&'a str),
}

/// Counts writes to files below `folder`. The trace must show what descriptors refer to (`-yy`) and have one connection.
pub(super) fn file_writes(lines: &[&str], folder: &str) -> FileWrites {
    let mut writes = FileWrites::default();
    // Writes since the last request or the last part of an answer.
    let (mut since, mut answered) = (0, true);
    for (_, step) in turn_steps(lines) {
        match step {
            TurnStep::Request if answered => {
                writes.turns += 1;
                writes.after_answer += since;
                (since, answered) = (0, false);
            }
            // The rest of a request that came in pieces.
            TurnStep::Request => {}
            TurnStep::Answer => {
                writes.before_answer += since;
                (since, answered) = (0, true);
            }
            TurnStep::Write(path) => since += usize::from(is_below(path, folder)),
        }
    }
    writes.after_answer += since;
    writes
}

/// The lines of the last turn that another one follows: from its request to the line before the next request.
pub(super) fn last_turn<'a>(lines: &[&'a str]) -> Vec<&'a str> {
    let (mut requests, mut answered) = (Vec::new(), true);
    for (line, step) in turn_steps(lines) {
        match step {
            TurnStep::Request if answered => {
                requests.push(line);
                answered = false;
            }
            TurnStep::Answer => answered = true,
            TurnStep::Request | TurnStep::Write(_) => {}
        }
    }
    match requests[..] {
        [.., begin, end] => lines[begin..end].to_vec(),
        [] | [_] => Vec::new(),
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Two turns: three writes before the first answer, one of them elsewhere; one after it; none in the second.
    const TRACE: [&str; 14] = [
        r#"1 recvfrom(9<TCP:[127.0.0.1:80->127.0.0.1:4000]>, "POST"..., 8192, 0, NULL, NULL) = 154"#,
        r#"1 recvfrom(9<TCP:[127.0.0.1:80->127.0.0.1:4000]>, 0x7f, 8192, 0, NULL, NULL) = -1 EAGAIN (…)"#,
        r#"2 pwrite64(5</s/state/index>, ""..., 4096, 0) = 4096"#,
        r#"2 write(6</s/state/runs/1/log>, ""..., 40 <unfinished ...>"#,
        r#"1 write(7<anon_inode:[eventfd]>, ""..., 8) = 8"#,
        r#"2 <... write resumed>) = 40"#,
        r#"1 write(8</s/state-of-others>, ""..., 40) = 40"#,
        r#"1 writev(9<TCP:[127.0.0.1:80->127.0.0.1:4000]>, [{}], 2) = 300"#,
        r#"2 pwrite64(5</s/state/index>, ""..., 4096, 0) = 4096"#,
        r#"1 recvfrom(9<TCP:[127.0.0.1:80->127.0.0.1:4000]>,  <unfinished ...>"#,
        r#"2 futex(0x7f, FUTEX_WAKE_PRIVATE, 1) = 0"#,
        r#"1 <... recvfrom resumed>"POST"..., 8192, 0, NULL, NULL) = 154"#,
        r#"1 sendto(9<TCP:[127.0.0.1:80->127.0.0.1:4000]>, ""..., 300, 0, NULL, 0) = 300"#,
        r#"1 recvfrom(9<TCP:[127.0.0.1:80->127.0.0.1:4000]>, "", 8192, 0, NULL, NULL) = 0"#,
    ];

    #[test]
    fn writes_to_files_below_the_folder_are_counted_before_and_after_the_answer() {
        let expected = FileWrites { turns: 2, before_answer: 2, after_answer: 1 };
        assert_eq!(file_writes(&TRACE, "/s/state"), expected);
        assert_eq!(file_writes(&TRACE, "/elsewhere"), FileWrites { turns: 2, ..FileWrites::default() });
    }

    #[test]
    fn writes_between_two_parts_of_an_answer_are_before_its_end() {
        let answer = "1 sendto(9<TCP:[a->b]>, 1) = 1";
        let lines = ["1 read(9<TCP:[a->b]>, 1) = 1", answer, "1 write(5</s/log>, 1) = 1", answer];
        assert_eq!(file_writes(&lines, "/s"), FileWrites { turns: 1, before_answer: 1, after_answer: 0 });
    }

    #[test]
    fn last_turn_begins_with_its_request_and_ends_before_the_next() {
        assert_eq!(last_turn(&TRACE), TRACE[..9]);
        assert_eq!(last_turn(&TRACE[..9]), Vec::<&str>::new(), "the last turn may be incomplete");
    }
}

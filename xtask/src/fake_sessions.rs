//! Mode `sessions` of the fake agent: it speaks Claude Code's format, keeps conversations on disk, and records each start.
//!
//! Its conversations have random ids of its own. It answers with the works of all turns that it remembers, at the instant
//! that its task names, so that a caller can predict the end of the answer. A conversation that does not exist cannot be
//! resumed. The files are in the folder that `FAKE_AGENT_FOLDER` names:
//!
//! - `starts.jsonl`: one line for each start, written before anything else happens;
//! - `<conversation>`: the works of its turns, one on each line;
//! - `<work>.lock`: locked while a process answers this work.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write, stdin};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

/// Time before an instant that is spent waiting actively, because sleeping is not precise.
const SPIN_TIME: Duration = Duration::from_millis(1);

/// Answers the task, which is the JSON in the last line of the prompt: `work`, `words`, `answer_at`.
pub(crate) fn answer(line: &mut impl FnMut(&str)) {
    let folder = folder();
    let mut prompt = String::new();
    // After an error, what was read so far is the prompt.
    let _ = stdin().read_to_string(&mut prompt);
    let task: Value = prompt.lines().last().and_then(|task| serde_json::from_str(task).ok()).unwrap_or_default();
    let work = task["work"].as_str().unwrap_or("none");
    let resume = argument_after("--resume");
    let native = resume.clone().unwrap_or_else(random_uuid);
    let remembered = fs::read_to_string(folder.join(&native)).ok();
    let text = answer_text(work, remembered.as_deref().unwrap_or_default(), task["words"].as_u64().unwrap_or(1));
    let lock = File::create(folder.join(format!("{work}.lock"))).expect("the folder of the fake agent is writable");
    let alone = lock.try_lock().is_ok();
    let start = json!({
        "work": work, "resume": resume, "native": native, "answer": text, "alone": alone, "prompt": prompt,
        "pid": std::process::id(),
    });
    append(&folder.join("starts.jsonl"), &start.to_string()).expect("the folder of the fake agent is writable");
    if resume.is_some() && remembered.is_none() {
        let error = format!("No conversation found with session ID: {native}");
        line(
            &json!({"type": "result", "subtype": "error_during_execution", "is_error": true, "session_id": native,
            "errors": [error]})
            .to_string(),
        );
        eprintln!("{error}");
        std::process::exit(1);
    }
    let streams = std::env::args().any(|argument| argument == "stream-json");
    let end = UNIX_EPOCH + Duration::from_nanos(task["answer_at"].as_u64().unwrap_or(0));
    if streams {
        line(&json!({"type": "system", "subtype": "init", "session_id": native, "model": "fake"}).to_string());
        print_words(&text, &native, end, line);
    } else {
        wait_until(end);
    }
    // Like a real CLI: what it has answered, it remembers.
    append(&folder.join(&native), work).expect("the folder of the fake agent is writable");
    line(
        &json!({"type": "result", "subtype": "success", "is_error": false, "result": text, "session_id": native,
        "usage": {"input_tokens": 1, "output_tokens": 1}})
        .to_string(),
    );
}

/// Prints the text as deltas: evenly until `end`, the last one at `end`.
pub(crate) fn print_words(text: &str, native: &str, end: SystemTime, line: &mut impl FnMut(&str)) {
    let event = |event: Value| json!({"type": "stream_event", "event": event, "session_id": native}).to_string();
    line(&event(json!({"type": "message_start", "message": {"id": "msg_1", "role": "assistant"}})));
    line(&event(json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}})));
    let words: Vec<&str> = text.split_inclusive(' ').collect();
    let time = end.duration_since(SystemTime::now()).unwrap_or_default();
    let pause = time / u32::try_from(words.len()).unwrap_or(u32::MAX);
    for (left, word) in (0..words.len()).rev().zip(&words) {
        wait_until(end - pause * u32::try_from(left).unwrap_or(0));
        line(&event(json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": word}})));
    }
    line(
        &json!({"type": "assistant", "session_id": native,
        "message": {"id": "msg_1", "role": "assistant", "content": [{"type": "text", "text": text}]}})
        .to_string(),
    );
}

/// Names this work and all works of earlier turns, and adds numbered words.
fn answer_text(work: &str, remembered: &str, words: u64) -> String {
    let earlier: Vec<&str> = remembered.lines().collect();
    let numbers: Vec<String> = (1..=words).map(|number| number.to_string()).collect();
    format!("{work} after [{}] {}", earlier.join(","), numbers.join(" "))
}

/// Waits until an instant, precisely.
fn wait_until(instant: SystemTime) {
    let left = || instant.duration_since(SystemTime::now()).unwrap_or_default();
    std::thread::sleep(left().saturating_sub(SPIN_TIME));
    while !left().is_zero() {
        std::hint::spin_loop();
    }
}

/// Appends a line with one write, so that lines of several processes are not mixed.
pub(crate) fn append(path: &Path, text: &str) -> io::Result<()> {
    OpenOptions::new().create(true).append(true).open(path)?.write_all(format!("{text}\n").as_bytes())
}

pub(crate) fn argument_after(flag: &str) -> Option<String> {
    std::env::args().skip_while(|argument| argument != flag).nth(1)
}

/// A random UUID (version 4), like Claude Code's own ids.
pub(crate) fn random_uuid() -> String {
    let bits = fastrand::u128(..) & !(0xf << 76) & !(0x3 << 62) | (0x4 << 76) | (0x2 << 62);
    let digits = format!("{bits:032x}");
    format!("{}-{}-{}-{}-{}", &digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..])
}

#[expect(clippy::disallowed_methods, reason = "a separate program that is configured by its environment")]
pub(crate) fn folder() -> PathBuf {
    std::env::var_os("FAKE_AGENT_FOLDER").expect("FAKE_AGENT_FOLDER names a folder").into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answer_names_this_work_and_all_earlier_ones() {
        assert_eq!(answer_text("b", "", 2), "b after [] 1 2");
        assert_eq!(answer_text("c", "a\nb\n", 1), "c after [a,b] 1");
    }

    #[test]
    fn ids_are_random_uuids_of_version_4() {
        let (one, other) = (random_uuid(), random_uuid());
        assert_ne!(one, other);
        for id in [one, other] {
            assert_eq!(id.split('-').map(str::len).collect::<Vec<_>>(), [8, 4, 4, 4, 12], "{id}");
            assert!(id[14..].starts_with('4') && id[19..].starts_with(['8', '9', 'a', 'b']), "{id}");
        }
    }
}

//! The fake agent as an executable with the provider protocol: it answers at once.

use std::io::{Read, stdin};

const ANSWER: &str =
    r#"{"content":"ok","tokens_used":2,"model":"fake","latency":100000,"finish_reason":"stop","provider":"fake"}"#;
const LINE: &str = r#"{"content":"ok","delta":"ok","done":true,"tokens_used":2,"timestamp":"2026-01-01T00:00:00Z"}"#;

/// Answers if this process was started with a command of the protocol as its last argument; returns whether it was.
pub(crate) fn answer_command(line: &mut impl FnMut(&str)) -> bool {
    let answer = match std::env::args().next_back().as_deref() {
        Some("generate") => ANSWER,
        Some("stream") => LINE,
        Some("health") => "OK",
        Some(_) | None => return false,
    };
    // The request does not matter.
    let _ = stdin().read_to_end(&mut Vec::new());
    line(answer);
    true
}

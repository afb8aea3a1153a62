//! Modes `lab…` of the fake agent, for the lab with real clients: it speaks Claude Code's format, keeps conversations on
//! disk, and answers from what it was told, so that a client cannot show the right text by accident.
//!
//! The last of these phrases in the prompt decides, because clients put text of their own around a message:
//!
//! | phrase | answer |
//! |---|---|
//! | `code word: X` | names X |
//! | `secret word: X` | agrees to remember it |
//! | `What was the secret word` | names the X of an earlier turn, and whether it knew it from the session or the prompt |
//!
//! `lab-failing` is not logged in, `lab-slow` needs a while before it answers, `lab-endless` talks for a minute. The
//! folder of the conversations is in `FAKE_AGENT_FOLDER`.

use std::fs;
use std::io::{Read, stdin};
use std::time::{Duration, SystemTime};

use serde_json::{Value, json};

use crate::fake_sessions::{append, argument_after, folder, print_words, random_uuid};

/// Time that `lab-slow` needs: longer than the time-out of the clients, shorter than their repeats together.
const SLOW_ANSWER: Duration = Duration::from_secs(5);

const ENDLESS_ANSWER: Duration = Duration::from_secs(60);

/// Duration of a streamed answer: long enough that its deltas arrive one by one.
const USUAL_ANSWER: Duration = Duration::from_millis(150);

/// Wording that the gateway classifies as an authentication failure.
const FAILURE: &str = "Not logged in: the lighthouse keeper has no key";

/// Answers the prompt on stdin as this mode demands. A gateway whose client offers tools speaks to the process over stdio instead.
pub(crate) fn answer(mode: &str, line: &mut impl FnMut(&str)) {
    let native = argument_after("--resume").unwrap_or_else(random_uuid);
    if argument_after("--input-format").is_some() {
        return converse(mode, &native, line);
    }
    let mut prompt = String::new();
    // After an error, what was read so far is the prompt.
    let _ = stdin().read_to_string(&mut prompt);
    answer_prompt(mode, &prompt, &native, line);
}

/// Answers messages of Claude Code's stream format. The tools of the client are accepted, and never called.
fn converse(mode: &str, native: &str, line: &mut impl FnMut(&str)) {
    for message in stdin().lines().map_while(Result::ok) {
        let message: Value = serde_json::from_str(&message).unwrap_or_default();
        match (message["type"].as_str(), message["request"]["subtype"].as_str()) {
            (Some("control_request"), Some("interrupt")) => return,
            (Some("control_request"), _) => {
                let response = json!({"subtype": "success", "request_id": message["request_id"], "response": {}});
                line(&json!({"type": "control_response", "response": response}).to_string());
            }
            (Some("user"), _) => {
                let prompt = message["message"]["content"].as_str().unwrap_or_default();
                answer_prompt(mode, prompt, native, line);
            }
            _ => {}
        }
    }
}

fn answer_prompt(mode: &str, prompt: &str, native: &str, line: &mut impl FnMut(&str)) {
    let conversation = folder().join(native);
    let memory = fs::read_to_string(&conversation).unwrap_or_default();
    if mode == "lab-failing" {
        line(
            &json!({"type": "result", "subtype": "error_during_execution", "is_error": true, "session_id": native,
            "result": FAILURE})
            .to_string(),
        );
        std::process::exit(1);
    }
    if mode == "lab-slow" {
        std::thread::sleep(SLOW_ANSWER);
    }
    let (text, time) = match mode {
        "lab-endless" => ("and so on ".repeat(200), ENDLESS_ANSWER),
        _ => (answer_text(prompt, &memory), USUAL_ANSWER),
    };
    if std::env::args().any(|argument| argument == "stream-json") {
        line(&json!({"type": "system", "subtype": "init", "session_id": native, "model": "fake"}).to_string());
        print_words(&text, native, SystemTime::now() + time, line);
    } else {
        std::thread::sleep(time);
    }
    append(&conversation, prompt).expect("the folder of the fake agent is writable");
    line(
        &json!({"type": "result", "subtype": "success", "is_error": false, "result": text, "session_id": native,
        "usage": {"input_tokens": 7, "output_tokens": 11}})
        .to_string(),
    );
}

fn answer_text(prompt: &str, memory: &str) -> String {
    let [code, remember, recall] =
        ["code word: ", "secret word: ", "What was the secret word"].map(|phrase| prompt.rfind(phrase));
    let last = code.max(remember).max(recall);
    if last.is_none() {
        "Nothing was asked of the fake CLI.".to_owned()
    } else if last == code {
        let word = word_after(prompt, "code word: ").unwrap_or_default();
        format!("The code word is {word} and the fake CLI says so.")
    } else if last == remember {
        "I will remember the word.".to_owned()
    } else if let Some(word) = word_after(memory, "secret word: ") {
        format!("The word was {word}, as I know from the session.")
    } else if let Some(word) = word_after(prompt, "secret word: ") {
        format!("The word was {word}, as I know from the prompt.")
    } else {
        "I know of no word.".to_owned()
    }
}

/// The letters and digits after the last occurrence of a phrase.
fn word_after<'a>(text: &'a str, phrase: &str) -> Option<&'a str> {
    let rest = &text[text.rfind(phrase)? + phrase.len()..];
    let end = rest.find(|letter: char| !letter.is_ascii_alphanumeric()).unwrap_or(rest.len());
    Some(&rest[..end]).filter(|word| !word.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_phrase_of_the_prompt_decides() {
        let remember = "Remember the secret word: heron7.";
        let recall = "What was the secret word?";
        for (prompt, memory, expected) in [
            ("Say the code word: owl3", "", "The code word is owl3 and the fake CLI says so."),
            ("<task>\nSay the code word: owl3.\n</task>", "", "The code word is owl3 and the fake CLI says so."),
            (remember, "", "I will remember the word."),
            (recall, remember, "The word was heron7, as I know from the session."),
            (&format!("{remember}\nAssistant: yes\n{recall}"), "", "The word was heron7, as I know from the prompt."),
            (recall, "", "I know of no word."),
            ("Write a title", "", "Nothing was asked of the fake CLI."),
        ] {
            assert_eq!(answer_text(prompt, memory), expected, "{prompt}");
        }
    }
}

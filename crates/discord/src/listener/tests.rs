//! Whatever a CLI prints and however it ends, the result is well-formed. The output passes through the same steps as in a
//! run: the recipe's decoder, its conclusion, and the listener.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::LazyLock;

use proptest::prelude::*;
use serde_json::json;
use trunkline_core::event::SessionId;
use trunkline_core::parse::Ending;
use trunkline_core::provider::{Provider, built_in};
use trunkline_core::vocabulary::Normalize;
use trunkline_core::vocabulary::OutputForm;

use super::*;

#[test]
fn tool_summary_contains_the_first_line_of_its_input() {
    for (input, expected) in [
        (json!({"command": "cargo test\nand more"}), "Bash: cargo test"),
        (json!({"command": ["ls", "-l"]}), "Bash: ls -l"),
        (json!({"path": "src/`x`.rs"}), "Bash: src/x.rs"),
        (json!({"unknown": 1}), "Bash"),
        (json!(null), "Bash"),
    ] {
        assert_eq!(tool_summary("Bash", &input), expected);
    }
}

static PROVIDERS: LazyLock<BTreeMap<String, Provider>> = LazyLock::new(built_in);

/// A process that has ended.
#[derive(Clone)]
struct EndedProcess {
    stdout: Vec<u8>,
    stderr: Vec<u8>,
    ending: Ending<'static>,
    form: OutputForm,
}

impl fmt::Debug for EndedProcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |bytes: &[u8]| bytes.escape_ascii().to_string();
        write!(f, "{:?} {:?}: {} | {}", self.form, self.ending, text(&self.stdout), text(&self.stderr))
    }
}

/// The result of a process.
fn result_of(provider: &Provider, ended: &EndedProcess, before: Option<&str>) -> (EventResult, Option<Failure>) {
    let mut conversation = match before {
        Some(session) => Conversation::resume("m", SessionId(session.into())),
        None => Conversation::default(),
    };
    conversation.ask("m", "hi");
    let secrets = Secrets::default();
    let mut listener = Listener::new(conversation, &secrets, None);
    let mut decoder = provider.decoder(Normalize::None, ended.form);
    let mut events = decoder.push(&ended.stdout);
    let mut conclusion = decoder.conclude(ended.ending, &String::from_utf8_lossy(&ended.stderr), "hi");
    events.append(&mut conclusion.events);
    events.into_iter().for_each(|event| listener.handle(event));
    let failure = conclusion.failure.clone();
    listener.handle(match conclusion.result() {
        Ok(answer) => Event::Finished(answer),
        Err(failure) => Event::Failed(failure),
    });
    (listener.result(), failure)
}

fn ending() -> impl Strategy<Value = Ending<'static>> {
    prop_oneof![
        2 => Just(Ending::Code(0)),
        2 => any::<u8>().prop_map(|code| Ending::Code(i32::from(code))),
        1 => (1..32_i32).prop_map(Ending::Signal),
        1 => Just(Ending::TimedOut("a limit")),
        1 => Just(Ending::Open),
    ]
}

/// Bytes, words with escapes, and incomplete events and documents of every CLI.
fn printed() -> impl Strategy<Value = Vec<u8>> {
    let text =
        prop_oneof![Just(String::new()), Just("  ".to_owned()), "\\PC{0,12}", "[a-z\u{1b}\u{7}\\[0-9m \r\n\t]{0,20}"];
    let event = (text.clone(), text.clone(), any::<bool>(), 0..12_usize).prop_map(|(text, id, flag, kind)| {
        let value = match kind {
            0 => json!({"type": "system", "subtype": "init", "session_id": id}),
            1 => json!({"type": "result", "subtype": "success", "is_error": flag, "result": text, "session_id": id}),
            2 => {
                json!({"type": "result", "status": if flag { "error" } else { "success" }, "error": {"message": text}})
            }
            3 => json!({"session_id": id, "response": text, "stats": {}}),
            4 => json!({"session_id": id, "error": {"message": text, "code": 1}}),
            5 => json!({"type": "thread.started", "thread_id": id}),
            6 => json!({"type": "item.completed", "item": {"type": "agent_message", "text": text}}),
            7 => json!({"type": if flag { "turn.completed" } else { "turn.failed" }, "error": {"message": text}}),
            8 => json!({"type": "text", "sessionID": id, "part": {"type": "text", "text": text}}),
            9 => json!({"type": "error", "sessionID": id, "error": {"name": id, "data": {"message": text}}}),
            10 => json!({"type": "message", "role": "assistant", "content": text, "delta": flag}),
            _ => json!([{"type": "system", "subtype": "init", "session_id": id},
                        {"type": "result", "is_error": flag, "result": text, "session_id": id}]),
        };
        if flag { format!("{value:#}") } else { value.to_string() }.into_bytes()
    });
    let piece = prop_oneof![
        4 => event,
        1 => text.prop_map(String::into_bytes),
        1 => prop::collection::vec(any::<u8>(), 0..40),
    ];
    prop::collection::vec(piece, 0..5).prop_map(|pieces| pieces.join(&b'\n'))
}

fn ended() -> impl Strategy<Value = EndedProcess> {
    let form = prop_oneof![Just(OutputForm::Streamed), Just(OutputForm::Whole)];
    (printed(), printed(), ending(), form).prop_map(|(stdout, stderr, ending, form)| EndedProcess {
        stdout,
        stderr,
        ending,
        form,
    })
}

proptest! {
    #[test]
    fn r8_1_result_is_well_formed_whatever_is_printed(ended in ended(), before in prop::option::of(Just("before"))) {
        for provider in PROVIDERS.values() {
            let (result, failure) = result_of(provider, &ended, before);
            prop_assert_eq!(result.is_error, failure.is_some(), "{}: {:?}", provider.name, result);
            match &result.response_text {
                Some(text) => {
                    prop_assert!(!text.trim().is_empty(), "{}: {:?} {:?}", provider.name, result, failure);
                    prop_assert!(!text.contains('\u{1b}'), "{}: {:?}", provider.name, result);
                }
                None => prop_assert!(!result.is_error, "{}: an error without a text", provider.name),
            }
            prop_assert!(result.session_id.as_ref().is_none_or(|id| !id.0.is_empty()), "{}", provider.name);
            let written = serde_json::to_value(&result).unwrap();
            prop_assert_eq!(serde_json::from_value::<EventResult>(written).unwrap(), result);
        }
    }

    #[test]
    fn r8_2_nonzero_exit_is_an_error_with_the_text_of_stderr(
        stdout in printed(), words in "[a-z]{3,9}( [a-z]{3,9}){0,3}", code in 1..=128_i32,
    ) {
        for provider in PROVIDERS.values() {
            let ended = |stdout: Vec<u8>| {
                EndedProcess { stdout, stderr: words.clone().into_bytes(), ending: Ending::Code(code), form: OutputForm::Whole }
            };
            let (result, _) = result_of(provider, &ended(stdout.clone()), None);
            prop_assert!(result.is_error, "{}: {:?}", provider.name, result);
            let (result, _) = result_of(provider, &ended(Vec::new()), None);
            let text = result.response_text.unwrap_or_default();
            prop_assert!(text.contains(&words), "{}: {:?}", provider.name, text);
        }
    }

    #[test]
    fn r8_3_timeout_always_has_the_same_text(printed_text in "\\PC{0,20}", stderr in printed()) {
        for provider in PROVIDERS.values() {
            let ending = Ending::TimedOut("a limit");
            for form in [OutputForm::Streamed, OutputForm::Whole] {
                let ended = EndedProcess { stdout: printed_text.clone().into_bytes(), stderr: stderr.clone(), ending, form };
                prop_assert_eq!(result_of(provider, &ended, None).0, EventResult::error("Query timed out"));
            }
        }
    }
}

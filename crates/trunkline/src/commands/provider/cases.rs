//! The cases of `trunkline provider check`: a command, its stdin, and the expected outcome.

use serde_json::{Value, json};

use super::judge::{ExpectedOutcome, StdoutForm};

#[derive(Debug)]
pub(super) struct ProtocolCase {
    pub(super) name: &'static str,
    pub(super) command: &'static str,
    pub(super) stdin: Vec<u8>,
    pub(super) form: StdoutForm,
    pub(super) expect: ExpectedOutcome,
    pub(super) concurrency: Concurrency,
}

/// Number of executions of a case at the same time.
#[derive(Debug, Clone, Copy)]
pub(super) enum Concurrency {
    One,
    Two,
}

/// Asks for a short answer: real models cost money.
const PROMPT: &str = "Reply with the single word OK.";

/// More than any pipe buffers.
const LONG_PROMPT_BYTES: usize = 300_000;

/// All cases, `health` first. Requests ask for `model`, if it is given.
pub(super) fn cases(model: Option<&str>) -> Vec<ProtocolCase> {
    let request = |mut request: Value| {
        if let Some(model) = model {
            request["config"]["model"] = json!(model);
        }
        request.to_string().into_bytes()
    };
    let minimal = || request(json!({"prompt": PROMPT}));
    let full = || request(every_member());
    let awkward = || request(json!({"prompt": awkward()}));
    let cut_off = || request(json!({"prompt": PROMPT}))[..20].to_vec();
    use ExpectedOutcome::{Answer, AnswerOrRefusal, Failure};
    vec![
        ProtocolCase {
            name: "health",
            command: "health",
            stdin: Vec::new(),
            form: StdoutForm::Free,
            expect: ExpectedOutcome::Healthy,
            concurrency: Concurrency::One,
        },
        generate("generate", minimal(), Answer),
        generate("generate, every member", full(), Answer),
        generate("generate, zeros and empty lists", request(zeros()), AnswerOrRefusal),
        generate("generate, unknown members", request(unknown_members()), Answer),
        generate("generate, quotes, line breaks, unicode", awkward(), Answer),
        generate("generate, a prompt of 300 kB", request(json!({"prompt": long()})), AnswerOrRefusal),
        ProtocolCase { concurrency: Concurrency::Two, ..generate("generate, two at once", minimal(), Answer) },
        stream("stream", minimal(), Answer),
        stream("stream, every member", full(), Answer),
        stream("stream, quotes, line breaks, unicode", awkward(), Answer),
        generate("generate, broken JSON", cut_off(), Failure),
        generate("generate, empty stdin", Vec::new(), Failure),
        generate("generate, no prompt", request(json!({"max_tokens": 16})), Failure),
        stream("stream, broken JSON", cut_off(), Failure),
        stream("stream, empty stdin", Vec::new(), Failure),
        ProtocolCase {
            command: "no-such-command",
            expect: ExpectedOutcome::Misuse,
            ..generate("unknown command", minimal(), ExpectedOutcome::Misuse)
        },
    ]
}

fn generate(name: &'static str, stdin: Vec<u8>, expect: ExpectedOutcome) -> ProtocolCase {
    ProtocolCase { name, command: "generate", stdin, form: StdoutForm::Object, expect, concurrency: Concurrency::One }
}

fn stream(name: &'static str, stdin: Vec<u8>, expect: ExpectedOutcome) -> ProtocolCase {
    ProtocolCase { name, command: "stream", stdin, form: StdoutForm::Lines, expect, concurrency: Concurrency::One }
}

fn every_member() -> Value {
    json!({
        "prompt": PROMPT,
        "system_prompt": "You are being tested. Be brief.",
        "max_tokens": 64,
        "temperature": 0,
        "top_p": 1,
        "tools": [],
        "context": [{"role": "user", "content": "Hello."}, {"role": "assistant", "content": "Hello. \"OK?\"\n"}],
        "config": {"seed": 0},
        "metadata": {"task_id": "provider-check", "attempt": 0, "dry_run": false}
    })
}

/// Members that are zero or empty, instead of missing.
fn zeros() -> Value {
    json!({
        "prompt": PROMPT, "system_prompt": "", "max_tokens": 0, "temperature": 0, "top_p": 0, "tools": [], "context": [],
        "config": {}, "metadata": {"dry_run": false}
    })
}

fn unknown_members() -> Value {
    json!({"prompt": PROMPT, "a_member_of_the_future": {"list": [1, 2.5, null, {"deep": false}]}, "another": false})
}

fn awkward() -> String {
    let odd = "\"double\" 'single' `back` $HOME $(date) \\n \\ / {\"json\": [true]} \u{1b}[1m\t\r\nÄé 你好 🦀 e\u{301} \u{2028} -n %s";
    format!("Ignore the noise between the lines. {PROMPT}\n---\n{odd}\n---\n")
}

fn long() -> String {
    let mut prompt = format!("Ignore the noise. {PROMPT}\n");
    while prompt.len() < LONG_PROMPT_BYTES {
        prompt.push_str("noise \"noise\"\n");
    }
    prompt
}

//! What a provider is put through. Each case is one command line, one stdin, and what should come of it.

use serde_json::{Value, json};

use super::judge::{Expect, Form};

#[derive(Debug)]
pub(super) struct Case {
    pub(super) name: &'static str,
    pub(super) command: &'static str,
    pub(super) stdin: Vec<u8>,
    pub(super) form: Form,
    pub(super) expect: Expect,
    pub(super) at_once: AtOnce,
}

/// How many of a case run at the same time.
#[derive(Debug, Clone, Copy)]
pub(super) enum AtOnce {
    One,
    Two,
}

/// As short an answer as can be had: real models cost money.
const PROMPT: &str = "Reply with the single word OK.";

/// More than any pipe takes at once.
const LONG: usize = 300_000;

/// All cases, `health` first, asking for `model` where one is given.
pub(super) fn cases(model: Option<&str>) -> Vec<Case> {
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
    use Expect::{Answer, AnswerOrRefusal, Failure};
    vec![
        Case {
            name: "health",
            command: "health",
            stdin: Vec::new(),
            form: Form::Free,
            expect: Expect::Healthy,
            at_once: AtOnce::One,
        },
        generate("generate", minimal(), Answer),
        generate("generate, every member", full(), Answer),
        generate("generate, zeros and empty lists", request(zeros()), AnswerOrRefusal),
        generate("generate, unknown members", request(unknown_members()), Answer),
        generate("generate, quotes, line breaks, unicode", awkward(), Answer),
        generate("generate, a prompt of 300 kB", request(json!({"prompt": long()})), AnswerOrRefusal),
        Case { at_once: AtOnce::Two, ..generate("generate, two at once", minimal(), Answer) },
        stream("stream", minimal(), Answer),
        stream("stream, every member", full(), Answer),
        stream("stream, quotes, line breaks, unicode", awkward(), Answer),
        generate("generate, broken JSON", cut_off(), Failure),
        generate("generate, empty stdin", Vec::new(), Failure),
        generate("generate, no prompt", request(json!({"max_tokens": 16})), Failure),
        stream("stream, broken JSON", cut_off(), Failure),
        stream("stream, empty stdin", Vec::new(), Failure),
        Case {
            command: "no-such-command",
            expect: Expect::Misuse,
            ..generate("unknown command", minimal(), Expect::Misuse)
        },
    ]
}

fn generate(name: &'static str, stdin: Vec<u8>, expect: Expect) -> Case {
    Case { name, command: "generate", stdin, form: Form::Object, expect, at_once: AtOnce::One }
}

fn stream(name: &'static str, stdin: Vec<u8>, expect: Expect) -> Case {
    Case { name, command: "stream", stdin, form: Form::Lines, expect, at_once: AtOnce::One }
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

/// Nothing is left out because it is zero or empty.
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
    while prompt.len() < LONG {
        prompt.push_str("noise \"noise\"\n");
    }
    prompt
}

//! CLIs that exit without flushing a non-blocking stdout, as Node programs do: the answer is complete all the same.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::json;

use crate::observe::until_gone;
use crate::test_gateway::TestGateway;

/// Prints an answer of the given size in the given format through a non-blocking stdout, and exits at once.
const NODE: &str = r#"
const [form, bytes] = process.argv.slice(2);
const text = 'x'.repeat(Number(bytes));
const say = (line) => process.stdout.write(JSON.stringify(line) + '\n');
if (form === 'generate') say({content: text, tokens_used: 1, finish_reason: 'stop'});
else if (form === 'stream') {
  say({content: text, delta: text, done: false});
  say({content: text, delta: '', done: true});
} else {
  say({type: 'system', subtype: 'init', session_id: '00000000-0000-4000-8000-000000000001'});
  say({type: 'stream_event', event: {type: 'message_start', message: {id: 'a', content: []}}});
  for (let at = 0; at < text.length; at += 10000) {
    const delta = {type: 'text_delta', text: text.slice(at, at + 10000)};
    say({type: 'stream_event', event: {type: 'content_block_delta', index: 0, delta}});
  }
  say({type: 'assistant', message: {id: 'a', content: [{type: 'text', text}]}});
  say({type: 'result', subtype: 'success', is_error: false, result: text, usage: {input_tokens: 1, output_tokens: 1}});
}
process.exit(0);
"#;

/// The same in Python.
const PYTHON: &str = r#"
import json, os, sys
form, text = sys.argv[1], 'x' * int(sys.argv[2])
os.set_blocking(1, False)
def say(line):
    rest = (json.dumps(line) + '\n').encode()
    try:
        while rest:
            rest = rest[os.write(1, rest):]
    except BlockingIOError:
        os._exit(0)
if form == 'generate':
    say({'content': text, 'tokens_used': 1, 'finish_reason': 'stop'})
elif form == 'stream':
    say({'content': text, 'delta': text, 'done': False})
    say({'content': text, 'delta': '', 'done': True})
else:
    say({'type': 'system', 'subtype': 'init', 'session_id': '00000000-0000-4000-8000-000000000001'})
    for at in range(0, len(text), 10000):
        delta = {'type': 'text_delta', 'text': text[at:at + 10000]}
        say({'type': 'stream_event', 'event': {'type': 'content_block_delta', 'index': 0, 'delta': delta}})
    say({'type': 'assistant', 'message': {'id': 'a', 'content': [{'type': 'text', 'text': text}]}})
    say({'type': 'result', 'subtype': 'success', 'is_error': False, 'result': text})
os._exit(0)
"#;

/// The interpreters on this machine, each with its script.
fn interpreters() -> Vec<(PathBuf, &'static str)> {
    // Not from the search path: a shim of a version manager is a script and needs more environment than a fake CLI has.
    let find = |name: &str| {
        let folders = ["/usr/local/bin", "/usr/bin", "/bin"];
        let found = folders.iter().map(|folder| Path::new(folder).join(name)).find(|program| program.exists());
        if found.is_none() {
            eprintln!("skipped: {name} is not installed");
        }
        found
    };
    [("node", NODE), ("python3", PYTHON)].into_iter().filter_map(|(name, script)| Some((find(name)?, script))).collect()
}

/// A gateway whose CLI `qwen` and whose executable `p` answer with this many bytes.
fn gateway(interpreter: &Path, script: &str, bytes: usize) -> TestGateway {
    let gateway = TestGateway::new();
    let file = gateway.path("seen").join("script");
    fs::write(&file, script).unwrap();
    let run = |form: &str| {
        format!("cat >/dev/null; tell pid $$; exec '{}' '{}' {form} {bytes}", interpreter.display(), file.display())
    };
    gateway
        .cli("qwen", &run("agent"))
        .cli("p", &run("\"$1\""))
        .config("router.yaml", "providers:\n- name: p\n  type: cli\n  config: {path: p}\n")
        .model("m", json!({"driver": "qwen", "warm": 0}))
        .start()
}

#[test]
fn answer_is_complete_when_cli_exits_without_flushing_stdout() {
    for (interpreter, script) in interpreters() {
        for bytes in [100_000, 1_500_000] {
            let gateway = gateway(&interpreter, script, bytes);
            for model in ["m", "p"] {
                let whole = gateway.chat("hi").model(model).send().content();
                assert_eq!(whole.len(), bytes, "{model} by {}", interpreter.display());
                let streamed = gateway.chat("hi").model(model).streamed().send();
                assert!(streamed.is_done(), "{model} by {}", interpreter.display());
                assert_eq!(streamed.streamed_text().len(), bytes, "{model} by {}", interpreter.display());
            }
        }
    }
}

#[test]
fn answer_is_complete_when_client_reads_it_after_cli_has_exited() {
    for (interpreter, script) in interpreters() {
        let gateway = gateway(&interpreter, script, 1_500_000);
        let mut stream = gateway.chat("hi").streamed().open();
        stream.read_until("xxx");
        until_gone(&[gateway.wait_for_pid("pid")]);
        let reply = stream.finish();
        assert!(reply.is_done());
        assert_eq!(reply.streamed_text().len(), 1_500_000);
    }
}

//! Processes that are kept: taken when one is ready, never by two conversations, never in the way of an answer.

use std::fs;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::observe::{exists, until, until_gone};
use crate::test_gateway::TestGateway;

/// A claude that remembers all it was ever told, and says it with each answer. Cold, it was told one thing.
const REMEMBERS: &str = r#"
session=$(printf '00000000-0000-4000-8000-%012d' $$)
text_of() { text=${1#*USER TASK ---\\n}; text=${text%%\"*}; }
answer() {
    printf '{"type":"system","subtype":"init","session_id":"%s","model":"fake"}\n' "$session"
    printf '{"type":"result","subtype":"success","is_error":false,"result":"%s","session_id":"%s","usage":{"input_tokens":3,"output_tokens":2}}\n' "$1" "$session"
}
case " $* " in
*' --input-format '*) ;;
*)
    text=$(cat)
    note "$@" </dev/null
    answer "cold: ${text##*---?}"
    exit
    ;;
esac
heard=
while IFS= read -r line; do
    case $line in
    *'"initialize"'*)
        echo '{"type":"control_response","response":{"subtype":"success","request_id":"greeting","response":{}}}'
        tell "up.$(counted)" $$
        ;;
    *'"type":"user"'*)
        text_of "$line"
        case $text in
        die) exit 1 ;;
        hang) tell hanging $$; printf '{"type":"system","subtype":"status"}\n'; hang ;;
        deaf) tell deaf $$; hang ;;
        esac
        heard="$heard $text"
        answer "$$:$heard"
        ;;
    esac
done
"#;

fn claude(entry: Value) -> TestGateway {
    let mut whole = json!({"driver": "claude"});
    whole.as_object_mut().unwrap().extend(entry.as_object().unwrap().clone());
    TestGateway::new().cli("claude", REMEMBERS).model("m", whole).env("TRUNKLINE_WARM", "8").start()
}

/// How lines are doing.
fn warm(gateway: &TestGateway) -> Value {
    gateway.get("/health/providers").json()["providers"][0]["warm"].take()
}

fn ready(gateway: &TestGateway, number: u64) {
    until("a process is ready", || warm(gateway)["ready"] == number);
}

#[test]
fn each_conversation_has_a_process_of_its_own_and_keeps_it() {
    let mut gateway = claude(json!({}));
    assert_eq!(gateway.chat("first").send().content(), "cold: first");
    ready(&gateway, 1);
    let one = gateway.wait_for_pid("up.1");
    let first = gateway.chat("apples").send();
    assert_eq!(first.content(), format!("{one}: apples"));

    ready(&gateway, 1);
    let two = gateway.wait_for_pid("up.2");
    assert_eq!(gateway.chat("pears").send().content(), format!("{two}: pears"), "nothing of the other conversation");

    let session = first.header("x-trunkline-session").unwrap().to_owned();
    let on = gateway.chat("and plums").header("x-trunkline-session", &session).send();
    assert_eq!(on.content(), format!("{one}: apples and plums"));

    ready(&gateway, 1);
    let figures = warm(&gateway);
    let counted = ["hits", "resumed", "misses", "lost", "failed_boots", "held"].map(|name| figures[name].clone());
    assert_eq!(counted, [2, 1, 1, 0, 0, 2].map(Value::from), "{figures}");
    assert!(figures["resident_mib"].is_u64() && figures["mean_boot_ms"].is_u64(), "{figures}");

    gateway.signal(Signal::TERM);
    assert_eq!(gateway.wait_for_exit(), Some(0));
    until_gone(&[one, two]);
}

#[test]
fn a_history_that_goes_on_finds_the_process_that_knows_it() {
    let gateway = claude(json!({"warm": 1}));
    let one = gateway.wait_for_pid("up.1");
    ready(&gateway, 1);
    let said = gateway.chat("apples").send().content();
    let on = gateway.chat("pears").preceded_by("user", "apples").preceded_by("assistant", said).send();
    assert_eq!(on.content(), format!("{one}: apples pears"));
}

#[test]
fn a_process_that_is_gone_is_no_failure() {
    let gateway = claude(json!({"warm": 1}));
    ready(&gateway, 1);
    let reply = gateway.chat("die").send();
    assert_eq!(reply.content(), "cold: die");
    assert_eq!(reply.json()["trunkline"]["attempts"].as_array().map(Vec::len), Some(1), "{reply:?}");
    assert_eq!(warm(&gateway)["lost"], 1);
}

#[test]
fn a_process_that_does_not_answer_is_no_failure() {
    let gateway = claude(json!({"warm": 1, "startupTimeout": "8s"}));
    ready(&gateway, 1);
    let reply = gateway.chat("deaf").send();
    assert_eq!(reply.content(), "cold: deaf");
    assert_eq!(reply.json()["trunkline"]["attempts"].as_array().map(Vec::len), Some(1), "{reply:?}");
    until_gone(&[gateway.wait_for_pid("deaf")]);
    assert_eq!(warm(&gateway)["lost"], 1);
}

#[test]
fn what_has_changed_since_it_started_makes_it_stale() {
    let gateway = claude(json!({"warm": 1}));
    let old = gateway.wait_for_pid("up.1");
    ready(&gateway, 1);
    fs::write(gateway.repo().join("CLAUDE.md"), "Be kind.").unwrap();
    assert_eq!(gateway.chat("hello").send().content(), "cold: hello");
    until_gone(&[old]);
    ready(&gateway, 1);
    let new = gateway.wait_for_pid("up.2");
    assert_eq!(gateway.chat("hello").send().content(), format!("{new}: hello"));
}

#[test]
fn one_that_changes_at_its_first_start_what_it_reads_is_started_again() {
    let writes = format!(
        "[ -e \"$HOME/.claude/settings.json\" ] || {{ mkdir -p \"$HOME/.claude\"; echo '{{}}' >\"$HOME/.claude/settings.json\"; }}\n{REMEMBERS}"
    );
    let gateway = TestGateway::new().cli("claude", &writes).model("m", json!({"driver": "claude", "warm": 1}));
    let gateway = gateway.env("TRUNKLINE_WARM", "8").start();
    ready(&gateway, 1);
    let second = gateway.wait_for_pid("up.2");
    assert_eq!(gateway.chat("hello").send().content(), format!("{second}: hello"));
}

#[test]
fn other_instructions_are_another_kind() {
    let gateway = claude(json!({"warm": 1}));
    let one = gateway.wait_for_pid("up.1");
    ready(&gateway, 1);
    let ask = || gateway.chat("hello").preceded_by("system", "Rhyme.").send().content();
    assert_eq!(ask(), "cold: hello", "it was greeted without them");
    assert!(exists(one), "and waits for somebody without them");
    assert_eq!(ask(), "cold: hello", "once may be the only time");
    ready(&gateway, 2);
    let two = gateway.wait_for_pid("up.2");
    assert_eq!(ask(), format!("{two}: hello"));
}

#[test]
fn none_where_none_is_wanted() {
    let gateway = claude(json!({"warm": 0}));
    for _ in 0..2 {
        assert_eq!(gateway.chat("hello").send().content(), "cold: hello");
    }
    assert_eq!(warm(&gateway), Value::Null);
}

#[test]
fn who_hangs_up_ends_the_turn_and_its_process() {
    let gateway = claude(json!({"warm": 1}));
    ready(&gateway, 1);
    let pending = gateway.chat("hang").streamed().open();
    let pid = gateway.wait_for_pid("hanging");
    drop(pending);
    until_gone(&[pid]);
}

#[test]
fn a_process_that_does_not_know_all_is_not_asked() {
    let gateway = claude(json!({"warm": 1}));
    let one = gateway.wait_for_pid("up.1");
    ready(&gateway, 1);
    let first = gateway.chat("apples").send();
    let session = first.header("x-trunkline-session").unwrap();
    gateway.run(&["run", "-m", "m", "--session", session, "pears"]).exits(0);
    let on = gateway.chat("plums").header("x-trunkline-session", session).send();
    assert_eq!(on.content(), "cold: plums", "another process has spoken in the session since");
    until_gone(&[one]);
}

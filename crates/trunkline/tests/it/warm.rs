//! Warm processes: used if one is ready, never shared by two conversations, never the cause of a failed answer.

use std::fs;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::observe::{exists, until, until_gone};
use crate::test_gateway::TestGateway;

/// A claude that repeats all messages of its process in each answer. Started cold, it repeats its only message.
const REPEATS_ALL: &str = r#"
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
    let mut model = json!({"driver": "claude"});
    model.as_object_mut().unwrap().extend(entry.as_object().unwrap().clone());
    TestGateway::new().cli("claude", REPEATS_ALL).model("m", model).env("TRUNKLINE_WARM", "8").start()
}

/// Statistics of the warm pool.
fn pool_stats(gateway: &TestGateway) -> Value {
    gateway.get("/health/providers").json()["providers"][0]["warm"].take()
}

fn wait_until_ready(gateway: &TestGateway, count: u64) {
    until("the warm processes are ready", || pool_stats(gateway)["ready"] == count);
}

#[test]
fn each_conversation_keeps_its_own_process() {
    let mut gateway = claude(json!({}));
    assert_eq!(gateway.chat("first").send().content(), "cold: first");
    wait_until_ready(&gateway, 1);
    let one = gateway.wait_for_pid("up.1");
    let first = gateway.chat("apples").send();
    assert_eq!(first.content(), format!("{one}: apples"));

    wait_until_ready(&gateway, 1);
    let two = gateway.wait_for_pid("up.2");
    assert_eq!(gateway.chat("pears").send().content(), format!("{two}: pears"), "nothing of the other conversation");

    let session = first.header("x-trunkline-session").unwrap().to_owned();
    let on = gateway.chat("and plums").header("x-trunkline-session", &session).send();
    assert_eq!(on.content(), format!("{one}: apples and plums"));

    wait_until_ready(&gateway, 1);
    let stats = pool_stats(&gateway);
    let counted = ["hits", "resumed", "misses", "lost", "failed_boots", "held"].map(|name| stats[name].clone());
    assert_eq!(counted, [2, 1, 1, 0, 0, 2].map(Value::from), "{stats}");
    assert!(stats["resident_mib"].is_u64() && stats["mean_boot_ms"].is_u64(), "{stats}");

    gateway.signal(Signal::TERM);
    assert_eq!(gateway.wait_for_exit(), Some(0));
    until_gone(&[one, two]);
}

#[test]
fn process_of_a_conversation_is_reused_when_client_sends_its_history() {
    let gateway = claude(json!({"warm": 1}));
    let one = gateway.wait_for_pid("up.1");
    wait_until_ready(&gateway, 1);
    let answer = gateway.chat("apples").send().content();
    let on = gateway.chat("pears").preceded_by("user", "apples").preceded_by("assistant", answer).send();
    assert_eq!(on.content(), format!("{one}: apples pears"));
}

#[test]
fn turn_runs_cold_when_warm_process_has_died() {
    let gateway = claude(json!({"warm": 1}));
    wait_until_ready(&gateway, 1);
    let reply = gateway.chat("die").send();
    assert_eq!(reply.content(), "cold: die");
    assert_eq!(reply.json()["trunkline"]["attempts"].as_array().map(Vec::len), Some(1), "{reply:?}");
    assert_eq!(pool_stats(&gateway)["lost"], 1);
}

#[test]
fn turn_runs_cold_when_warm_process_does_not_answer() {
    let gateway = claude(json!({"warm": 1, "startupTimeout": "8s"}));
    wait_until_ready(&gateway, 1);
    let reply = gateway.chat("deaf").send();
    assert_eq!(reply.content(), "cold: deaf");
    assert_eq!(reply.json()["trunkline"]["attempts"].as_array().map(Vec::len), Some(1), "{reply:?}");
    until_gone(&[gateway.wait_for_pid("deaf")]);
    assert_eq!(pool_stats(&gateway)["lost"], 1);
}

#[test]
fn warm_process_is_replaced_when_its_files_change() {
    let gateway = claude(json!({"warm": 1}));
    let old = gateway.wait_for_pid("up.1");
    wait_until_ready(&gateway, 1);
    fs::write(gateway.repo().join("CLAUDE.md"), "Be kind.").unwrap();
    assert_eq!(gateway.chat("hello").send().content(), "cold: hello");
    until_gone(&[old]);
    wait_until_ready(&gateway, 1);
    let new = gateway.wait_for_pid("up.2");
    assert_eq!(gateway.chat("hello").send().content(), format!("{new}: hello"));
}

#[test]
fn warm_process_is_restarted_when_it_changes_its_own_settings_at_startup() {
    let writes = format!(
        "[ -e \"$HOME/.claude/settings.json\" ] || {{ mkdir -p \"$HOME/.claude\"; echo '{{}}' >\"$HOME/.claude/settings.json\"; }}\n{REPEATS_ALL}"
    );
    let gateway = TestGateway::new().cli("claude", &writes).model("m", json!({"driver": "claude", "warm": 1}));
    let gateway = gateway.env("TRUNKLINE_WARM", "8").start();
    wait_until_ready(&gateway, 1);
    let second = gateway.wait_for_pid("up.2");
    assert_eq!(gateway.chat("hello").send().content(), format!("{second}: hello"));
}

#[test]
fn warm_process_is_not_used_when_system_message_differs() {
    let gateway = claude(json!({"warm": 1}));
    let one = gateway.wait_for_pid("up.1");
    wait_until_ready(&gateway, 1);
    let ask = || gateway.chat("hello").preceded_by("system", "Rhyme.").send().content();
    assert_eq!(ask(), "cold: hello", "the warm process was started without the system message");
    assert!(exists(one), "the warm process stays for other turns");
    assert_eq!(ask(), "cold: hello", "no process is started ahead after one use");
    wait_until_ready(&gateway, 2);
    let two = gateway.wait_for_pid("up.2");
    assert_eq!(ask(), format!("{two}: hello"));
}

#[test]
fn no_process_is_kept_warm_when_warm_is_zero() {
    let gateway = claude(json!({"warm": 0}));
    for _ in 0..2 {
        assert_eq!(gateway.chat("hello").send().content(), "cold: hello");
    }
    assert_eq!(pool_stats(&gateway), Value::Null);
}

#[test]
fn warm_process_is_killed_when_client_disconnects() {
    let gateway = claude(json!({"warm": 1}));
    wait_until_ready(&gateway, 1);
    let pending = gateway.chat("hang").streamed().open();
    let pid = gateway.wait_for_pid("hanging");
    drop(pending);
    until_gone(&[pid]);
}

#[test]
fn warm_process_is_not_used_when_session_was_continued_elsewhere() {
    let gateway = claude(json!({"warm": 1}));
    let one = gateway.wait_for_pid("up.1");
    wait_until_ready(&gateway, 1);
    let first = gateway.chat("apples").send();
    let session = first.header("x-trunkline-session").unwrap();
    gateway.run(&["run", "-m", "m", "--session", session, "pears"]).exits(0);
    let on = gateway.chat("plums").header("x-trunkline-session", session).send();
    assert_eq!(on.content(), "cold: plums", "another process has continued the session since");
    until_gone(&[one]);
}

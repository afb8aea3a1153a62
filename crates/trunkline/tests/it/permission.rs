//! A warm agent whose permission requests are refused.

use serde_json::{Value, json};

use crate::observe::until;
use crate::test_gateway::TestGateway;

/// Requests permission for a shell command in each turn. After the refusal it continues if the prompt contains "persist";
/// otherwise it ends its turn, as Qwen Code does.
const REQUESTS_PERMISSION: &str = r#"
case " $* " in *' --acp '*) ;; *) cat >/dev/null; exit 3 ;; esac
session=00000000-0000-4000-8000-000000000001
update() { printf '{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"%s","update":%s}}\n' "$session" "$1"; }
while IFS= read -r line; do
    id=${line#*\"id\":} id=${id%%,*}
    case $line in
    *'"initialize"'*) printf '{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":1}}\n' "$id" ;;
    *'"session/new"'*) printf '{"jsonrpc":"2.0","id":%s,"result":{"sessionId":"%s"}}\n' "$id" "$session" ;;
    *'"session/prompt"'*)
        prompt=$id text=
        case $line in *persist*) text='Done without it.' ;; esac
        update '{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"I try."}}'
        update '{"sessionUpdate":"tool_call","toolCallId":"t","status":"pending","title":"Shell","rawInput":{},"_meta":{"toolName":"run_shell_command"}}'
        printf '{"jsonrpc":"2.0","id":77,"method":"session/request_permission","params":{"sessionId":"%s","options":[{"optionId":"proceed","kind":"allow_once"},{"optionId":"cancel","kind":"reject_once"}],"toolCall":{"toolCallId":"t","title":"touch x","rawInput":{"command":"touch x"}}}}\n' "$session"
        ;;
    *'"id":77'*)
        tell reply "$line"
        update '{"sessionUpdate":"tool_call_update","toolCallId":"t","status":"failed"}'
        [ -z "$text" ] || update "{\"sessionUpdate\":\"agent_message_chunk\",\"content\":{\"type\":\"text\",\"text\":\"$text\"}}"
        printf '{"jsonrpc":"2.0","id":%s,"result":{"stopReason":"end_turn"}}\n' "$prompt"
        ;;
    esac
done
"#;

fn gateway() -> TestGateway {
    let gateway = TestGateway::new()
        .cli("qwen", REQUESTS_PERMISSION)
        .model("m", json!({"driver": "qwen", "warm": 1, "permissions": "edit", "sandbox": "off"}));
    let gateway = gateway.env("TRUNKLINE_WARM", "8").start();
    wait_until_ready(&gateway);
    gateway
}

fn wait_until_ready(gateway: &TestGateway) {
    until("a warm process is ready", || gateway.get("/health/providers").json()["providers"][0]["warm"]["ready"] == 1);
}

#[test]
fn turn_continues_when_permission_is_refused() {
    let gateway = gateway();
    assert_eq!(gateway.chat("persist").send().content(), "Done without it.");
    let reply: Value = serde_json::from_str(&gateway.read_note("reply")).unwrap();
    assert_eq!(reply["result"]["outcome"], json!({"outcome": "selected", "optionId": "cancel"}));
}

#[test]
fn turn_fails_when_it_ends_with_a_refused_permission() {
    let gateway = gateway();
    let cut_short = "the turn was cut short: permission for \"touch x\" was refused";
    let error = gateway.chat("stop there").send().error(500);
    assert_eq!((&error["code"], &error["detail"]), (&json!("configuration"), &json!(cut_short)), "{error}");
    wait_until_ready(&gateway);
    let streamed = gateway.chat("stop there").streamed().send();
    assert!(!streamed.is_done() && streamed.body.contains("cut short"), "{}", streamed.body);
    assert!(!streamed.body.contains("\"finish_reason\":\"stop\""), "{}", streamed.body);
}

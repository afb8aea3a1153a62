//! A kept agent that asks for permission it does not get.

use serde_json::{Value, json};

use crate::observe::until;
use crate::test_gateway::TestGateway;

/// Asks for a shell with each turn. Refused, it goes on if the turn says so, and else ends its turn, as Qwen Code does.
const ASKS: &str = r#"
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
    let line = TestGateway::new()
        .cli("qwen", ASKS)
        .model("m", json!({"driver": "qwen", "warm": 1, "permissions": "edit", "sandbox": "off"}));
    let line = line.env("TRUNKLINE_WARM", "8").start();
    ready(&line);
    line
}

fn ready(gateway: &TestGateway) {
    until("a process is ready", || gateway.get("/health/providers").json()["providers"][0]["warm"]["ready"] == 1);
}

#[test]
fn a_refused_permission_lets_the_turn_go_on() {
    let line = gateway();
    assert_eq!(line.chat("persist").send().content(), "Done without it.");
    let reply: Value = serde_json::from_str(&line.read_note("reply")).unwrap();
    assert_eq!(reply["result"]["outcome"], json!({"outcome": "selected", "optionId": "cancel"}));
}

#[test]
fn a_turn_that_ends_with_a_refused_permission_is_no_success() {
    let line = gateway();
    let cut_short = "the turn was cut short: permission for \"touch x\" was refused";
    let error = line.chat("stop there").send().error(500);
    assert_eq!((&error["code"], &error["detail"]), (&json!("configuration"), &json!(cut_short)), "{error}");
    ready(&line);
    let streamed = line.chat("stop there").streamed().send();
    assert!(!streamed.is_done() && streamed.body.contains("cut short"), "{}", streamed.body);
    assert!(!streamed.body.contains("\"finish_reason\":\"stop\""), "{}", streamed.body);
}

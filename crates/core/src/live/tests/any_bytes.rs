//! Properties for any output of a process: no panic, the same result when it is split anywhere, and one end for each turn.

use proptest::prelude::*;
use serde_json::json;

use super::*;

const PROTOCOLS: [(LiveProtocol, &str); 3] =
    [(LiveProtocol::Claude, "claude"), (LiveProtocol::AppServer, "codex"), (LiveProtocol::Acp, "gemini")];

/// Messages that resemble those of every protocol, with parts missing or of the wrong type.
fn odd_message() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        prop::sample::select(vec![
            "greeting",
            "success",
            "error",
            "control_response",
            "control_request",
            "can_use_tool",
            "result",
            "assistant",
            "turn/completed",
            "turn/started",
            "item/agentMessage/delta",
            "session/update",
            "agent_message_chunk",
            "end_turn",
            "session/request_permission",
            "fs/read_text_file",
            "item/fileChange/requestApproval",
            "t",
            "s",
            "2.0",
        ])
        .prop_map(|word| json!(word)),
        (0_u64..6).prop_map(|n| json!(n)),
        any::<bool>().prop_map(|truth| json!(truth)),
        Just(Value::Null),
    ];
    let keys = prop::sample::select(vec![
        "type",
        "subtype",
        "request_id",
        "response",
        "request",
        "id",
        "method",
        "params",
        "result",
        "error",
        "message",
        "thread",
        "threadId",
        "turn",
        "turnId",
        "sessionId",
        "update",
        "sessionUpdate",
        "content",
        "text",
        "delta",
        "jsonrpc",
        "options",
        "kind",
        "optionId",
        "stopReason",
        "status",
        "is_error",
    ]);
    let tree = leaf.prop_recursive(4, 24, 6, move |inner| {
        prop_oneof![
            prop::collection::vec((keys.clone(), inner.clone()), 0..6).prop_map(|members| Value::Object(
                members.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
            )),
            prop::collection::vec(inner, 0..3).prop_map(Value::Array),
        ]
    });
    prop_oneof![4 => tree.prop_map(|value| value.to_string()), 1 => "[^\r\n]{0,40}"]
}

/// Returns a channel with a turn in flight.
fn busy(protocol: LiveProtocol) -> LiveChannel {
    let (mut channel, _) = LiveChannel::new(protocol, Greeting::default());
    let greeting_answers = match protocol {
        LiveProtocol::Claude => {
            vec![json!({"type": "control_response", "response": {"subtype": "success", "request_id": "greeting"}})]
        }
        LiveProtocol::AppServer => {
            vec![json!({"id": 1, "result": {}}), json!({"id": 2, "result": {"thread": {"id": "t"}}})]
        }
        LiveProtocol::Acp => vec![json!({"id": 1, "result": {}}), json!({"id": 2, "result": {"sessionId": "s"}})],
    };
    for message in greeting_answers {
        channel.hear(&to_line(&message));
    }
    channel.say("hello", None).unwrap();
    channel
}

proptest! {
    #[test]
    fn output_is_the_same_when_bytes_are_split_anywhere(
        which in 0..PROTOCOLS.len(),
        lines in prop::collection::vec(odd_message(), 0..30),
        garbage in prop::collection::vec(any::<u8>(), 0..60),
        cuts in prop::collection::vec(1_usize..200, 1..20),
    ) {
        let (protocol, provider) = PROTOCOLS[which];
        let mut bytes = lines.join("\n").into_bytes();
        bytes.extend(garbage);
        bytes.push(b'\n');
        let mut whole = busy(protocol);
        let expected = whole.hear(&bytes);
        let mut pieces = busy(protocol);
        let (mut said, mut reply, mut rest) = (Vec::new(), Vec::new(), bytes.as_slice());
        for cut in cuts.iter().cycle() {
            let (piece, after) = rest.split_at((*cut).min(rest.len()));
            let output = pieces.hear(piece);
            said.extend(output.said);
            reply.extend(output.reply);
            rest = after;
            if rest.is_empty() {
                break;
            }
        }
        prop_assert_eq!((&said, &reply), (&expected.said, &expected.reply));
        prop_assert_eq!(pieces.stage(), whole.stage());

        // The turn has at most one end, and the channel takes another turn only when it is over.
        let mut decoder = decoder(provider);
        let mut events = decoder.push(&said);
        concluded(&mut decoder, &mut events);
        prop_assert!(!events.iter().any(|event| matches!(event, Event::Finished(_) | Event::Failed(_))));
        prop_assert_eq!(pieces.say("again", None).is_some(), *whole.stage() == ChannelStage::Ready);
    }

    #[test]
    fn takes_no_turn_before_the_greeting_is_answered(
        which in 0..PROTOCOLS.len(),
        lines in prop::collection::vec("[^\r\n]{0,40}", 0..20),
    ) {
        let (mut channel, greeting) = LiveChannel::new(PROTOCOLS[which].0, Greeting::default());
        prop_assert!(!greeting.is_empty());
        let output = channel.hear(lines.join("\n").as_bytes());
        prop_assert!(output.said.is_empty(), "there is no turn yet");
        prop_assert!(channel.say("hello", None).is_none() && channel.interrupt().is_empty());
    }
}

#[test]
fn permission_requests_are_answered_by_the_permissions_of_the_model() {
    let request = json!({"jsonrpc": "2.0", "id": 7, "method": "session/request_permission", "params": {"options": [
        {"optionId": "a", "kind": "allow_once"}, {"optionId": "r", "kind": "reject_once"},
    ]}});
    for (permissions, chosen) in [(Permissions::Read, "r"), (Permissions::Edit, "r"), (Permissions::Full, "a")] {
        let (mut channel, _) = LiveChannel::new(LiveProtocol::Acp, Greeting { permissions, ..Greeting::default() });
        let reply = channel.hear(&to_line(&request)).reply;
        let reply: Value = serde_json::from_slice(&reply).unwrap();
        assert_eq!(reply["result"]["outcome"], json!({"outcome": "selected", "optionId": chosen}));
        let file =
            json!({"jsonrpc": "2.0", "id": "x", "method": "fs/read_text_file", "params": {"path": "/etc/passwd"}});
        let reply: Value = serde_json::from_slice(&channel.hear(&to_line(&file)).reply).unwrap();
        assert_eq!((&reply["id"], &reply["error"]["code"]), (&json!("x"), &json!(-32601)));
    }
}

#[test]
fn the_channel_is_broken_when_the_greeting_is_refused() {
    for (protocol, refusal) in [
        (
            LiveProtocol::Claude,
            json!({"type": "control_response", "response": {"subtype": "error", "request_id": "greeting", "error": "no"}}),
        ),
        (LiveProtocol::AppServer, json!({"id": 1, "error": {"code": -32600, "message": "no"}})),
        (LiveProtocol::Acp, json!({"jsonrpc": "2.0", "id": 1, "error": {"code": -32600, "message": "no"}})),
    ] {
        let (mut channel, _) = LiveChannel::new(protocol, Greeting::default());
        channel.hear(&to_line(&refusal));
        assert_eq!(channel.stage(), &ChannelStage::Broken("no".to_owned()));
    }
}

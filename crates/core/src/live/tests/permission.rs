//! Permission requests over ACP, and turns whose request was refused.

use serde_json::json;

use super::*;
use crate::event::Finish;
use crate::failure::Category;

/// Turn of a kept process after its prompt was sent.
struct LiveTurn {
    channel: LiveChannel,
    decoder: Decoder,
    events: Vec<Event>,
    replies: Vec<Value>,
}

impl LiveTurn {
    fn new(permissions: Permissions) -> Self {
        let (mut channel, _) = LiveChannel::new(LiveProtocol::Acp, Greeting { permissions, ..Greeting::default() });
        channel.hear(&to_line(&json!({"jsonrpc": "2.0", "id": 1, "result": {}})));
        channel.hear(&to_line(&json!({"jsonrpc": "2.0", "id": 2, "result": {"sessionId": "s"}})));
        channel.say("go", None).unwrap();
        Self { channel, decoder: decoder("qwen"), events: Vec::new(), replies: Vec::new() }
    }

    fn receive(&mut self, message: &Value) {
        let output = self.channel.hear(&to_line(message));
        self.events.extend(self.decoder.push(&output.said));
        let replies = output.reply.split(|byte| *byte == b'\n').filter(|reply| !reply.is_empty());
        self.replies.extend(replies.map(|reply| serde_json::from_slice::<Value>(reply).unwrap()));
    }

    fn update(&mut self, update: Value) {
        self.receive(
            &json!({"jsonrpc": "2.0", "method": "session/update", "params": {"sessionId": "s", "update": update}}),
        );
    }

    fn text(&mut self, text: &str) {
        self.update(json!({"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}}));
    }

    fn request_permission(&mut self, kinds: &[&str]) {
        let options: Vec<Value> =
            kinds.iter().map(|kind| json!({"optionId": format!("id-{kind}"), "kind": kind})).collect();
        let call = json!({"toolCallId": "t", "title": "touch x", "rawInput": {"command": "touch x"}});
        self.receive(&json!({"jsonrpc": "2.0", "id": 0, "method": "session/request_permission",
            "params": {"sessionId": "s", "options": options, "toolCall": call}}));
    }

    fn end(mut self, reason: &str) -> (Vec<Event>, Conclusion) {
        self.receive(&json!({"jsonrpc": "2.0", "id": 3, "result": {"stopReason": reason}}));
        assert_eq!(self.channel.stage(), &ChannelStage::Ready);
        assert!(self.decoder.ended());
        let conclusion = concluded(&mut self.decoder, &mut self.events);
        (self.events, conclusion)
    }
}

fn tools(events: &[Event]) -> Vec<&Event> {
    events.iter().filter(|event| matches!(event, Event::ToolStarted { .. } | Event::ToolFinished { .. })).collect()
}

#[test]
fn a_refusal_rejects_the_tool_and_never_cancels_the_turn() {
    for (kinds, chosen) in [
        (vec!["allow_once", "reject_once"], Some("id-reject_once")),
        (vec!["reject_always", "allow_always", "reject_once"], Some("id-reject_once")),
        (vec!["allow_once", "reject_always"], Some("id-reject_always")),
        (vec!["allow_once"], None),
        (vec![], None),
    ] {
        for permissions in [Permissions::Read, Permissions::Edit] {
            let mut turn = LiveTurn::new(permissions);
            turn.request_permission(&kinds);
            let reply = &turn.replies[0];
            match chosen {
                Some(id) => assert_eq!(reply["result"]["outcome"], json!({"outcome": "selected", "optionId": id})),
                None => assert!(reply["error"]["code"].is_i64() && reply.get("result").is_none(), "{reply}"),
            }
            assert!(!reply.to_string().contains("cancelled"), "{reply}");
        }
    }
}

#[test]
fn the_turn_continues_when_the_agent_answers_after_a_refusal() {
    let mut turn = LiveTurn::new(Permissions::Edit);
    turn.text("I try.");
    turn.request_permission(&["allow_once", "reject_once"]);
    turn.text("I cannot do that, but here is how.");
    let (events, conclusion) = turn.end("end_turn");
    assert_eq!((conclusion.failure, conclusion.content.as_str()), (None, "I cannot do that, but here is how."));
    let [Event::ToolStarted { input, .. }, Event::ToolFinished { ok: false, .. }] = tools(&events)[..] else {
        panic!("{events:?}")
    };
    assert_eq!(input, &json!({"command": "touch x"}));
}

#[test]
fn the_turn_fails_when_the_agent_ends_it_because_of_a_refusal() {
    for reason in ["end_turn", "cancelled"] {
        let mut turn = LiveTurn::new(Permissions::Edit);
        turn.text("I will use a tool.");
        turn.request_permission(&["allow_once", "reject_once"]);
        turn.update(json!({"sessionUpdate": "tool_call_update", "toolCallId": "t", "status": "failed",
            "content": [{"type": "content", "content": {"type": "text", "text": "canceled by the user"}}]}));
        turn.update(json!({"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": ""}}));
        let (events, conclusion) = turn.end(reason);
        let failure = conclusion.failure.unwrap();
        assert_eq!(failure.category, Category::Configuration);
        assert_eq!(failure.message, "the turn was cut short: permission for \"touch x\" was refused");
        assert_eq!(tools(&events).len(), 2, "the tool ends once: {events:?}");
    }
}

#[test]
fn nothing_is_refused_when_everything_is_allowed() {
    let mut turn = LiveTurn::new(Permissions::Full);
    turn.request_permission(&["reject_once", "allow_once"]);
    assert_eq!(turn.replies[0]["result"]["outcome"]["optionId"], "id-allow_once");
    let (_, conclusion) = turn.end("end_turn");
    assert_eq!(conclusion.failure, None);
}

#[test]
fn reports_when_a_turn_was_cut_short() {
    for (reason, finish, failed) in [
        ("max_tokens", Finish::Length, false),
        ("max_turn_requests", Finish::Stop, true),
        ("end_turn", Finish::Stop, false),
    ] {
        let mut turn = LiveTurn::new(Permissions::Edit);
        turn.text("So far");
        let (_, conclusion) = turn.end(reason);
        assert_eq!((conclusion.finish, conclusion.failure.is_some()), (finish, failed), "{reason}");
    }
}

#[test]
fn a_tool_keeps_its_arguments_when_it_is_announced_without_them() {
    let announced = json!({"sessionUpdate": "tool_call", "toolCallId": "t", "status": "pending", "title": "WriteFile",
        "rawInput": {}, "_meta": {"toolName": "write_file"}});
    let input = json!({"file_path": "a", "content": "b"});
    let runs =
        json!({"sessionUpdate": "tool_call_update", "toolCallId": "t", "status": "in_progress", "rawInput": input});
    let done = json!({"sessionUpdate": "tool_call_update", "toolCallId": "t", "status": "completed"});
    let partly = json!({"sessionUpdate": "tool_call", "toolCallId": "t", "status": "pending", "title": "WriteFile",
        "rawInput": {"cwd": "/"}, "_meta": {"toolName": "write_file"}});
    let mut done_with = done.clone();
    done_with["rawInput"] = input.clone();
    for updates in [
        vec![announced.clone(), runs.clone(), done.clone()],
        vec![partly, runs.clone(), runs.clone(), done.clone()],
        vec![announced, done_with],
    ] {
        let mut turn = LiveTurn::new(Permissions::Full);
        for update in &updates {
            turn.update(update.clone());
        }
        turn.text("Done.");
        let (events, _) = turn.end("end_turn");
        let [Event::ToolStarted { name, input: seen, .. }, Event::ToolFinished { ok: true, .. }] = tools(&events)[..]
        else {
            panic!("{events:?}")
        };
        assert_eq!((name.as_str(), seen), ("write_file", &input), "{updates:?}");
    }
    let mut turn = LiveTurn::new(Permissions::Full);
    turn.update(json!({"sessionUpdate": "tool_call", "toolCallId": "t", "status": "in_progress",
        "title": "Writing to a.txt", "locations": [{"path": "/repo/a.txt"}]}));
    let (events, _) = turn.end("end_turn");
    assert!(
        matches!(tools(&events)[0], Event::ToolStarted { input, .. } if *input == json!({"paths": ["/repo/a.txt"]}))
    );
}

#[test]
fn counts_thoughts_and_cached_input_once() {
    for (usage, input, output, cached) in [
        (
            json!({"inputTokens": 1200, "outputTokens": 34, "totalTokens": 1234, "thoughtTokens": 20, "cachedReadTokens": 200}),
            1200,
            34,
            200,
        ),
        (
            json!({"inputTokens": 234, "outputTokens": 36, "totalTokens": 1290, "thoughtTokens": 20, "cachedReadTokens": 1000}),
            1234,
            56,
            1000,
        ),
    ] {
        let mut turn = LiveTurn::new(Permissions::Edit);
        turn.text("Hi");
        turn.receive(&json!({"jsonrpc": "2.0", "id": 3, "result": {"stopReason": "end_turn", "usage": usage}}));
        let counted = concluded(&mut turn.decoder, &mut turn.events).usage;
        assert_eq!((counted.input_tokens, counted.output_tokens, counted.cached_tokens), (input, output, cached));
    }
    let mut turn = LiveTurn::new(Permissions::Edit);
    turn.update(json!({"sessionUpdate": "agent_thought_chunk", "content": {"type": "text", "text": "12345678"}}));
    turn.text("Hi");
    let counts = json!({"quota": {"token_count": {"input_tokens": 5, "output_tokens": 2}}});
    turn.receive(&json!({"jsonrpc": "2.0", "id": 3, "result": {"stopReason": "end_turn", "_meta": counts}}));
    let counted = concluded(&mut turn.decoder, &mut turn.events).usage;
    assert_eq!((counted.input_tokens, counted.output_tokens, counted.estimated), (5, 4, true));
}

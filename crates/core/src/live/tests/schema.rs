//! Schemas that a turn brings along.

use serde_json::json;

use super::*;

fn lines(bytes: &[u8]) -> Vec<Value> {
    let lines = bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    lines.map(|line| serde_json::from_slice(line).unwrap()).collect()
}

#[test]
fn app_server_gets_the_schema_with_the_turn_that_has_one() {
    let (mut channel, _) = LiveChannel::new(LiveProtocol::AppServer, Greeting::default());
    channel.hear(&to_line(&json!({"id": 1, "result": {}})));
    channel.hear(&to_line(&json!({"id": 2, "result": {"thread": {"id": "a"}}})));
    let schema = json!({"type": "object", "properties": {}});
    let first = channel.say_with_schema("go", None, Some(&schema.to_string())).unwrap();
    let first = &lines(&first)[0];
    assert_eq!((&first["method"], &first["params"]["outputSchema"]), (&json!("turn/start"), &schema));
    channel.hear(&to_line(&json!({"id": 3, "result": {"turn": {"id": "t"}}})));
    let ended = json!({"method": "turn/completed", "params": {"threadId": "a", "turn": {"id": "t"}}});
    channel.hear(&to_line(&ended));
    let second = channel.say("go on", None).unwrap();
    assert!(lines(&second)[0]["params"]["outputSchema"].is_null());
}

#[test]
fn app_server_gets_the_schema_after_it_has_resumed_the_session() {
    let (mut channel, _) = LiveChannel::new(LiveProtocol::AppServer, Greeting::default());
    channel.hear(&to_line(&json!({"id": 1, "result": {}})));
    channel.hear(&to_line(&json!({"id": 2, "result": {"thread": {"id": "a"}}})));
    let resume = channel.say_with_schema("go", Some("b"), Some("{}")).unwrap();
    assert_eq!(lines(&resume)[0]["method"], "thread/resume");
    let started = channel.hear(&to_line(&json!({"id": 3, "result": {"thread": {"id": "b"}}}))).reply;
    assert_eq!(lines(&started)[0]["params"]["outputSchema"], json!({}));
}

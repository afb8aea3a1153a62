//! Runs that wait for results: listed, cancelled, expired, of another client, lost with their gateway, and limited.

use rustix::process::Signal;
use serde_json::json;

use super::*;
use crate::http::send_raw;
use crate::observe::{until, until_gone};

fn delete(gateway: &TestGateway, run: &str) -> Reply {
    let address = gateway.address();
    send_raw(address, &format!("DELETE /v1/runs/{run} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n"))
        .finish()
}

#[test]
fn parked_run_is_listed_and_can_be_cancelled() {
    let gateway = gateway(json!({})).start();
    let mut dialogue = Dialogue::new(&gateway, "call weather {}");
    let calls = dialogue.calls();
    let parked = runs(&gateway, "?state=parked");
    assert_eq!(parked.len(), 1);
    assert_eq!(runs(&gateway, "")[0]["state"], "parked");
    let run = parked[0]["id"].as_str().unwrap();
    assert_eq!(delete(&gateway, run).status, 200);
    until_gone(&processes(&gateway));
    dialogue.result(&calls[0].0, "sun");
    let reply = dialogue.send();
    assert_eq!(reply.json()["trunkline"]["notes"].as_array().map(Vec::len), Some(1), "{reply:?}");
}

#[test]
fn run_says_so_when_no_results_come_in_time() {
    let gateway = gateway(json!({"parkTimeout": "300ms"})).start();
    let mut dialogue = Dialogue::new(&gateway, "call weather {}");
    let calls = dialogue.calls();
    let run = gateway.get("/v1/runs").json()["data"][0]["id"].as_str().unwrap().to_owned();
    until("the run has failed", || gateway.get(&format!("/v1/runs/{run}")).json()["state"] == "failed");
    let error = gateway.get(&format!("/v1/runs/{run}")).json()["error"].take();
    assert!(error["message"].as_str().unwrap().contains("300ms"), "{error}");
    until_gone(&processes(&gateway));
    dialogue.result(&calls[0].0, "sun");
    let reply = dialogue.send();
    let note = reply.json()["trunkline"]["notes"][0].take();
    assert!(note.as_str().unwrap().contains("new turn"), "{reply:?}");
    assert!(reply.content().contains("sun"), "the new turn has the whole conversation: {reply:?}");
}

#[test]
fn results_of_another_client_do_not_reach_the_run() {
    let gateway = gateway(json!({})).env("TRUNKLINE_API_KEYS", "key-of-ann,key-of-ben").start();
    let ask = |key: &str, messages: &[Value]| {
        let body = json!({"model": "m", "messages": messages, "tools": tools()});
        post(&gateway, "/v1/chat/completions", &format!("authorization: Bearer {key}\r\n"), &body)
    };
    let mut messages = vec![json!({"role": "user", "content": "call weather {}"})];
    let message = ask("key-of-ann", &messages).json()["choices"][0]["message"].take();
    let id = message["tool_calls"][0]["id"].clone();
    messages.extend([message, json!({"role": "tool", "tool_call_id": id, "content": "from ben"})]);
    let stolen = ask("key-of-ben", &messages);
    assert!(stolen.json()["trunkline"]["notes"].is_array(), "a new turn of ben's: {stolen:?}");
    messages[2]["content"] = json!("from ann");
    assert_eq!(ask("key-of-ann", &messages).content(), r#"["from ann"]"#);
}

#[test]
fn results_start_a_new_turn_when_the_gateway_was_restarted() {
    let mut gateway = gateway(json!({})).start();
    let mut dialogue = Dialogue::new(&gateway, "call weather {}");
    let calls = dialogue.calls();
    dialogue.result(&calls[0].0, "sun");
    let messages = dialogue.messages;
    gateway.signal(Signal::KILL);
    gateway.wait_for_exit();
    until_gone(&processes(&gateway));
    gateway.restart();
    let body = json!({"model": "m", "messages": messages, "tools": tools()});
    let reply = post(&gateway, "/v1/chat/completions", "", &body);
    assert!(reply.content().contains("sun"), "{reply:?}");
    assert!(reply.json()["trunkline"]["notes"][0].as_str().unwrap().contains("has ended"), "{reply:?}");
}

#[test]
fn parked_processes_end_with_the_gateway() {
    let mut gateway = gateway(json!({})).start();
    Dialogue::new(&gateway, "call weather {}").calls();
    gateway.signal(Signal::TERM);
    assert_eq!(gateway.wait_for_exit(), Some(0));
    until_gone(&processes(&gateway));
}

#[test]
fn number_of_parked_runs_is_limited() {
    let gateway = gateway(json!({})).args(&["--max-parked", "1"]).start();
    let mut first = Dialogue::new(&gateway, "call weather {}");
    let calls = first.calls();
    let refused = Dialogue::new(&gateway, "call weather {}").send();
    assert_eq!(refused.status, 429, "{refused:?}");
    first.result(&calls[0].0, "sun");
    assert_eq!(first.send().content(), r#"["sun"]"#);
    Dialogue::new(&gateway, "call weather {}").calls();
}

#[test]
fn slots_are_free_while_a_run_is_parked() {
    let gateway = gateway(json!({})).args(&["--max-runs", "1"]).start();
    let mut parked = Dialogue::new(&gateway, "call weather {}");
    let calls = parked.calls();
    assert_eq!(Dialogue::new(&gateway, "say hi").send().status, 200);
    parked.result(&calls[0].0, "sun");
    assert_eq!(parked.send().content(), r#"["sun"]"#);
}

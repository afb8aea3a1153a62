//! Many background responses, and a gateway that is killed.

use std::collections::HashMap;
use std::fs;

use serde_json::{Value, json};

use super::{ask, body, gateway, get, grammar, text};
use crate::observe::until;

const RESPONSES: usize = 200;

/// Notes each question that it gets, and repeats it.
const ECHO: &str = "while IFS= read -r line || [ -n \"$line\" ]; do question=$line; done; echo \"$question\" >>\"$seen/asked\"; codex_answers \"$question\"";

#[test]
fn every_background_response_is_answered_once_or_failed_when_the_gateway_is_killed() {
    let limits = ["--max-runs", "2", "--queue", "400", "--queue-per-key", "400", "--queue-timeout", "5m"];
    let mut gateway = gateway(ECHO).args(&limits).start();
    let pending: Vec<_> = (0..RESPONSES)
        .map(|number| {
            let asked = body(format!("question {number}"), json!({"background": true}));
            ask(&gateway, "POST", "/v1/responses", "", Some(&asked))
        })
        .collect();
    let queued: Vec<Value> = pending
        .into_iter()
        .map(|pending| {
            let reply = pending.finish();
            assert_eq!(reply.status, 200, "{reply:?}");
            reply.json()
        })
        .collect();
    let asked = |path: &std::path::Path| fs::read_to_string(path).unwrap_or_default();
    let notes = gateway.path("seen/asked");
    until("some are answered", || asked(&notes).lines().count() > 20);
    gateway.kill();
    gateway.restart();

    let is_over = |response: &Value| !["queued", "in_progress"].contains(&response["status"].as_str().unwrap());
    let (mut answered, mut failed) = (0, 0);
    for (number, queued) in queued.iter().enumerate() {
        until("the response is over", || is_over(&get(&gateway, queued)));
        let response = get(&gateway, queued);
        grammar::check_response(&response);
        match response["status"].as_str().unwrap() {
            "completed" => {
                assert_eq!(text(&response), format!("question {number}"));
                answered += 1;
            }
            "failed" => {
                assert_eq!(response["error"]["code"], "server_error", "{response}");
                failed += 1;
            }
            other => panic!("{other}: {response}"),
        }
    }
    assert!(answered > 10 && failed > 10, "{answered} answered, {failed} failed");
    let mut times: HashMap<String, usize> = HashMap::new();
    for question in asked(&notes).lines() {
        *times.entry(question.to_owned()).or_default() += 1;
    }
    assert!(times.values().all(|&times| times == 1), "{times:?}");
    assert!(times.len() >= answered, "{} asked, {answered} answered", times.len());
}

//! Calls and results.

use serde_json::json;

use super::*;

#[test]
fn result_goes_into_the_same_process() {
    let gateway = gateway(json!({})).start();
    let mut dialogue = Dialogue::new(&gateway, r#"call weather {"city": "Köln 🌧"}"#);
    let calls = dialogue.calls();
    let [(id, name, arguments)] = calls.as_slice() else { panic!("{calls:?}") };
    assert_eq!((name.as_str(), &arguments["city"]), ("weather", &json!("Köln 🌧")));
    dialogue.result(id, "rain");
    let reply = dialogue.send();
    assert_eq!(reply.content(), r#"["rain"]"#);
    assert_eq!(processes(&gateway).len(), 1);
}

#[test]
fn parallel_calls_come_together_and_results_in_any_order() {
    let gateway = gateway(json!({})).start();
    let mut dialogue = Dialogue::new(&gateway, r#"call weather {"city": "Rom"} and call time {"city": "Oslo"}"#);
    let calls = dialogue.calls();
    assert_eq!(calls.iter().map(|(_, name, _)| name.as_str()).collect::<Vec<_>>(), ["weather", "time"]);
    dialogue.result(&calls[1].0, "noon");
    dialogue.result(&calls[0].0, "sun");
    assert_eq!(dialogue.send().content(), r#"["sun", "noon"]"#);
}

#[test]
fn chained_calls_are_one_turn() {
    let gateway = gateway(json!({})).start();
    let mut dialogue = Dialogue::new(&gateway, r#"call weather {"n": 1} then call weather {"n": 2} then call time {}"#);
    for text in ["one", "two", "three"] {
        let calls = dialogue.calls();
        assert_eq!(calls.len(), 1);
        dialogue.result(&calls[0].0, text);
    }
    assert_eq!(dialogue.send().content(), r#"["one", "two", "three"]"#);
    assert_eq!(processes(&gateway).len(), 1);
}

#[test]
fn one_call_at_a_time_when_client_wants_no_parallel_calls() {
    let gateway = gateway(json!({})).start();
    let mut dialogue = Dialogue::new(&gateway, r#"call weather {"n": 1} and call time {"n": 2}"#);
    dialogue = dialogue.with("parallel_tool_calls", json!(false));
    for text in ["one", "two"] {
        let calls = dialogue.calls();
        assert_eq!(calls.len(), 1);
        dialogue.result(&calls[0].0, text);
    }
    assert_eq!(dialogue.send().content(), r#"["one", "two"]"#);
}

#[test]
fn missing_result_is_named_and_the_others_are_kept() {
    let gateway = gateway(json!({})).start();
    let mut dialogue = Dialogue::new(&gateway, r#"call weather {} and call time {}"#);
    let calls = dialogue.calls();
    dialogue.result(&calls[0].0, "sun");
    let error = dialogue.send().error(400);
    let message = error["message"].as_str().unwrap();
    assert!(message.contains(&calls[1].0) && message.contains("time") && !message.contains(&calls[0].0), "{message}");
    dialogue.messages.pop();
    dialogue.result(&calls[1].0, "noon");
    assert_eq!(dialogue.send().content(), r#"["sun", "noon"]"#, "the first result is kept");
}

#[test]
fn same_results_lead_to_the_same_run() {
    let gateway = gateway(json!({})).start();
    let mut dialogue = Dialogue::new(&gateway, "call weather {}");
    let calls = dialogue.calls();
    dialogue.result(&calls[0].0, "sun");
    let [first, second] = [dialogue.send(), dialogue.send()];
    assert_eq!([first.content(), second.content()], [r#"["sun"]"#, r#"["sun"]"#]);
    assert_eq!((processes(&gateway).len(), runs(&gateway, "").len()), (1, 2));
}

#[test]
fn next_turn_continues_the_process_when_the_tools_are_the_same() {
    let gateway = gateway(json!({})).env("TRUNKLINE_WARM", "8").start();
    let mut dialogue = Dialogue::new(&gateway, "call weather {}");
    let calls = dialogue.calls();
    dialogue.result(&calls[0].0, "sun");
    let reply = dialogue.send();
    let began = processes(&gateway);
    dialogue.say(&reply, "call time {}");
    let calls = dialogue.calls();
    assert_eq!(calls[0].1, "time");
    dialogue.result(&calls[0].0, "noon");
    assert_eq!(dialogue.send().content(), r#"["noon"]"#);
    let session = reply.header("x-trunkline-session").unwrap();
    assert!(runs(&gateway, "").iter().all(|run| run["session"] == session), "{:?}", runs(&gateway, ""));
    let more: Vec<u32> = processes(&gateway).into_iter().filter(|pid| !began.contains(pid)).collect();
    assert!(more.len() <= 1, "at most one process that is kept ready: {more:?}");
}

#[test]
fn names_that_no_cli_accepts_are_mapped_back() {
    let gateway = gateway(json!({})).start();
    let long = "x".repeat(64);
    for name in ["get.weather", "--dangerously", "größe", long.as_str()] {
        let listing = Dialogue::new(&gateway, "tools").with("tools", json!([tool(name)]));
        let offered: Vec<String> = serde_json::from_str(&listing.send().content()).unwrap();
        let mut dialogue = Dialogue::new(&gateway, &format!("call {} {{}}", offered[0]));
        dialogue = dialogue.with("tools", json!([tool(name)]));
        let calls = dialogue.calls();
        assert_eq!(calls[0].1, name);
        dialogue.result(&calls[0].0, "ok");
        assert_eq!(dialogue.send().content(), r#"["ok"]"#);
    }
}

#[test]
fn usage_of_the_runs_adds_up_to_that_of_the_turn() {
    let gateway = gateway(json!({})).start();
    let mut dialogue = Dialogue::new(&gateway, "call weather {}");
    let calls = dialogue.calls();
    dialogue.result(&calls[0].0, "sun");
    dialogue.send().content();
    let tokens = |name: &str| runs(&gateway, "").iter().map(|run| run["usage"][name].as_u64().unwrap()).sum::<u64>();
    assert_eq!((tokens("input_tokens"), tokens("output_tokens")), (30, 20));
}

#[test]
fn run_with_a_worktree_reports_it_at_the_end() {
    let gateway = gateway(json!({"worktree": true})).start();
    let mut dialogue = Dialogue::new(&gateway, "call weather {}");
    let calls = dialogue.calls();
    dialogue.result(&calls[0].0, "sun");
    let reply = dialogue.send();
    assert_eq!(reply.content(), r#"["sun"]"#);
    assert!(reply.json()["trunkline"]["workspace"].is_object(), "{reply:?}");
}

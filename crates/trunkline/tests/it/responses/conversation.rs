//! Conversations: `previous_response_id`, forks, and references to items.

use serde_json::{Value, json};

use super::{body, gateway, id, respond, text};
use crate::test_gateway::TestGateway;

/// Reports a new session for each conversation, and answers with a number.
const REMEMBERS: &str = r#"note "$@"; n=$(counted)
printf '{"type":"thread.started","thread_id":"01a1dc95-8353-7ee2-acbd-3e299086500%s"}\n' "$n"
codex_answers "answer $n""#;

fn previous(response: &Value) -> Value {
    json!({"previous_response_id": id(response)})
}

/// How the turn of a response got its session: the id, and whether it was resumed.
fn session(response: &Value) -> (String, bool) {
    let session = &response["trunkline"]["session"];
    (session["id"].as_str().unwrap().to_owned(), session["resumed"].as_bool().unwrap())
}

#[test]
fn session_is_continued_from_its_last_response_and_forked_from_an_older_one() {
    let mut gateway = gateway(REMEMBERS).start();
    let first = respond(&gateway, &body("one", json!({})));
    let second = respond(&gateway, &body("two", previous(&first)));
    assert_eq!(session(&second), (session(&first).0, true));
    assert_eq!(gateway.read_note("codex.stdin"), "--- USER TASK ---\ntwo", "the CLI has the rest");
    assert_eq!(second["previous_response_id"], first["id"]);

    // Also after a restart.
    gateway.kill();
    gateway.restart();
    let third = respond(&gateway, &body("three", previous(&second)));
    assert_eq!(session(&third), (session(&first).0, true));

    let fork = respond(&gateway, &body("instead", previous(&first)));
    assert!(session(&fork).0 != session(&first).0 && !session(&fork).1, "{fork}");
    let prompt = gateway.read_note("codex.stdin");
    assert_eq!(prompt, "--- USER TASK ---\n[User]\none\n\n[Assistant]\nanswer 1\n\n[User]\ninstead");
    let next = respond(&gateway, &body("more", previous(&fork)));
    assert_eq!(session(&next), (session(&fork).0, true), "the fork has a session of its own");
    let deep = respond(&gateway, &body("deep", previous(&second)));
    let prompt = gateway.read_note("codex.stdin");
    assert!(
        prompt
            .ends_with("[User]\none\n\n[Assistant]\nanswer 1\n\n[User]\ntwo\n\n[Assistant]\nanswer 2\n\n[User]\ndeep")
    );
    assert!(!session(&deep).1);
}

#[test]
fn turn_that_failed_does_not_make_its_predecessor_older() {
    let script = r#"note "$@"; n=$(counted)
printf '{"type":"thread.started","thread_id":"01a1dc95-8353-7ee2-acbd-3e299086500f"}\n'
[ "$n" = 2 ] && exit 3; codex_answers "answer $n""#;
    let gateway = gateway(script).start();
    let first = respond(&gateway, &body("one", json!({})));
    super::post(&gateway, &body("two", previous(&first))).error(500);
    let again = respond(&gateway, &body("two", previous(&first)));
    assert_eq!(session(&again), (session(&first).0, true));
}

#[test]
fn another_model_gets_the_whole_history() {
    let gateway = gateway(REMEMBERS)
        .cli("p", "note \"$@\"; answers \"$1\" 'from p'")
        .config("router.yaml", "providers:\n- {name: p, type: cli, config: {path: p}}\n")
        .start();
    let first = respond(&gateway, &body("one", json!({"instructions": "Be brief."})));
    let other = json!({"model": "p", "input": "two", "previous_response_id": id(&first)});
    let second = respond(&gateway, &other);
    let sent: Value = serde_json::from_str(&gateway.read_note("p.stdin")).unwrap();
    assert_eq!(sent["prompt"], "two");
    assert_eq!(
        sent["context"],
        json!([{"role": "user", "content": "one"}, {"role": "assistant", "content": "answer 1"}])
    );
    assert_eq!(sent.get("system_prompt"), None, "instructions are not carried over");
    let third = json!({"model": "p", "input": "three", "previous_response_id": id(&second)});
    respond(&gateway, &third);
    let sent: Value = serde_json::from_str(&gateway.read_note("p.stdin")).unwrap();
    assert_eq!(sent["context"].as_array().unwrap().len(), 4, "{sent}");
}

#[test]
fn session_is_found_by_items_and_by_references_to_items() {
    let gateway = gateway(REMEMBERS).start();
    let first = respond(&gateway, &body("one", json!({})));
    let mut items = vec![json!({"role": "user", "content": "one"})];
    items.extend(first["output"].as_array().unwrap().clone());
    items.push(json!({"role": "user", "content": "two"}));
    let second = respond(&gateway, &body(items, json!({})));
    assert_eq!(session(&second), (session(&first).0, true));

    let reference = |response: &Value| json!({"type": "item_reference", "id": response["output"][0]["id"]});
    let third = respond(
        &gateway,
        &body(
            json!([
                {"role": "user", "content": "one"}, reference(&first), {"role": "user", "content": "two"},
                reference(&second), {"role": "user", "content": [{"type": "input_text", "text": "three"}]},
            ]),
            json!({}),
        ),
    );
    assert_eq!((session(&third), text(&third).as_str()), ((session(&first).0, true), "answer 3"));
    let unknown = json!([{"type": "item_reference", "id": "msg_01a1e9c42a4976a6bf909dbc3a2f6e01_0"}]);
    assert_eq!(super::post(&gateway, &body(unknown, json!({}))).error(404)["param"], "input[0].id");
}

#[test]
fn instructions_are_of_one_turn_only() {
    let gateway: TestGateway = gateway(REMEMBERS).start();
    let first = respond(&gateway, &body("one", json!({"instructions": "Be brief."})));
    let second = respond(&gateway, &body("two", previous(&first)));
    assert_eq!((&first["instructions"], &second["instructions"]), (&json!("Be brief."), &Value::Null));
    assert_eq!(gateway.read_note("codex.stdin"), "--- USER TASK ---\ntwo");
}

#[test]
fn requests_that_continue_a_response_at_the_same_time_are_one_continuation_and_forks() {
    let script = r#"n=$(counted)
printf '{"type":"thread.started","thread_id":"01a1dc95-8353-7ee2-acbd-3e299086500%s"}\n' "$n"
case $(cat) in *branch*) tell "waits$n" 1; await go ;; esac; codex_answers "answer $n""#;
    let gateway = gateway(script).start();
    let first = respond(&gateway, &body("one", json!({})));
    let ask = || super::ask(&gateway, "POST", "/v1/responses", "", Some(&body("branch", previous(&first))));
    let branches = [ask(), ask(), ask()];
    ["waits2", "waits3", "waits4"].iter().for_each(|note| drop(gateway.wait_for_note(note)));
    gateway.leave_note("go");
    let branches = branches.map(|branch| session(&branch.finish().json()));
    let continued = branches.iter().filter(|(id, resumed)| *id == session(&first).0 && *resumed).count();
    let forked = branches.iter().filter(|(id, resumed)| *id != session(&first).0 && !resumed).count();
    assert_eq!((continued, forked), (1, 2), "{branches:?}");
}

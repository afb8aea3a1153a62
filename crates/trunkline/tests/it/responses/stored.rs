//! Stored responses: background, reading while they run, cancellation, deletion, restarts and keys.

use serde_json::{Value, json};

use super::{SLOW, ask, body, gateway, get, grammar, id, path, post, respond, text};
use crate::observe::{until, until_gone};
use crate::test_gateway::TestGateway;

/// Starts a background response.
fn background(gateway: &TestGateway, more: Value) -> Value {
    let mut asked = body("hi", json!({"background": true}));
    for (name, value) in more.as_object().unwrap() {
        asked[name] = value.clone();
    }
    let reply = post(gateway, &asked);
    assert_eq!(reply.status, 200, "{reply:?}");
    let response = reply.json();
    grammar::check_response(&response);
    assert_eq!((&response["status"], &response["background"]), (&json!("queued"), &json!(true)));
    assert_eq!(id(&response), format!("resp_{}", reply.header("x-trunkline-run").unwrap().replace('-', "")));
    response
}

fn wait_for_status(gateway: &TestGateway, response: &Value, status: &str) -> Value {
    until(&format!("the response is {status}"), || get(gateway, response)["status"] == status);
    get(gateway, response)
}

#[test]
fn background_response_can_be_followed_while_it_runs_and_read_at_its_end() {
    let gateway = gateway(SLOW).start();
    let queued = background(&gateway, json!({}));
    until("there is some text", || text(&get(&gateway, &queued)) == "one");
    let partial = get(&gateway, &queued);
    assert_eq!((&partial["status"], &partial["output"][0]["status"]), (&json!("in_progress"), &json!("in_progress")));

    let mut stream = ask(&gateway, "GET", &format!("{}?stream=true", path(&queued)), "", None);
    stream.read_until("output_text.delta");
    let left = ask(&gateway, "GET", &format!("{}?stream=true", path(&queued)), "", None);
    drop(left);
    gateway.leave_note("go");
    let live = stream.finish().frames();
    let response = grammar::check(&live);
    assert_eq!((text(&response).as_str(), &response["status"]), ("one\n\ntwo", &json!("completed")));
    assert_eq!(wait_for_status(&gateway, &queued, "completed"), response);
    let rest = gateway.get(&format!("{}?stream=true&starting_after=4", path(&queued))).frames();
    assert_eq!(rest, live[5..]);
}

#[test]
fn background_stream_survives_its_client() {
    let gateway = gateway(SLOW).start();
    let asked = body("hi", json!({"background": true, "stream": true}));
    let mut stream = ask(&gateway, "POST", "/v1/responses", "", Some(&asked));
    stream.read_until("output_text.delta");
    drop(stream);
    gateway.leave_note("go");
    let run = || gateway.get("/v1/runs").json()["data"][0].take();
    until("the run is finished", || run()["state"] == "finished");
    let id = run()["id"].as_str().unwrap().replace('-', "");
    let replay = gateway.get(&format!("/v1/responses/resp_{id}?stream=true")).frames();
    let response = grammar::check(&replay);
    assert_eq!(text(&response), "one\n\ntwo");
}

#[test]
fn response_survives_a_restart() {
    let mut gateway = gateway("codex_answers 'Hi there.'").start();
    let live = post(&gateway, &body("hello", json!({"stream": true, "metadata": {"a": "b"}}))).frames();
    let response = grammar::check(&live);
    let waiting = background(&gateway, json!({}));
    let done = wait_for_status(&gateway, &waiting, "completed");
    gateway.kill();
    gateway.restart();
    assert_eq!(get(&gateway, &response), response);
    assert_eq!(get(&gateway, &waiting), done);
    assert_eq!(gateway.get(&format!("{}?stream=true", path(&response))).frames(), live);
    assert_eq!(gateway.get(&format!("{}?stream=true&starting_after=5", path(&response))).frames(), live[6..]);
}

#[test]
fn background_responses_are_answered_or_failed_when_gateway_is_killed() {
    let mut gateway = gateway("case $(cat) in *slow*) codex_says one; hang ;; esac; codex_answers ok").start();
    let mut quick = body("quick", json!({"background": true}));
    let done: Vec<Value> = (0..4).map(|_| post(&gateway, &quick).json()).collect();
    done.iter().for_each(|response| drop(wait_for_status(&gateway, response, "completed")));
    quick["input"] = json!("slow");
    let open: Vec<Value> = (0..4).map(|_| post(&gateway, &quick).json()).collect();
    gateway.kill();
    gateway.restart();
    for response in &done {
        assert_eq!(text(&get(&gateway, response)), "ok");
    }
    for response in &open {
        let failed = wait_for_status(&gateway, response, "failed");
        assert!(failed["error"]["message"].as_str().unwrap().contains("interrupted"), "{failed}");
        let replay = gateway.get(&format!("{}?stream=true", path(response))).frames();
        assert_eq!(grammar::check(&replay), failed);
    }
    assert_eq!(gateway.get("/v1/runs?limit=100").json()["data"].as_array().unwrap().len(), 8, "none is doubled");
}

#[test]
fn background_response_can_be_cancelled() {
    let gateway = gateway(SLOW).start();
    let queued = background(&gateway, json!({}));
    let pid = gateway.wait_for_pid("pid");
    let cancel = || ask(&gateway, "POST", &format!("{}/cancel", path(&queued)), "", None).finish();
    let cancelled = cancel();
    until_gone(&[pid]);
    assert_eq!((cancelled.status, &cancelled.json()["status"]), (200, &json!("cancelled")), "{cancelled:?}");
    assert_eq!(cancel().json(), cancelled.json(), "cancelling again changes nothing");
    assert_eq!(get(&gateway, &queued), cancelled.json());
    let replay = gateway.get(&format!("{}?stream=true", path(&queued))).frames();
    assert_eq!(grammar::check(&replay), cancelled.json());
}

#[test]
fn finished_response_is_returned_when_it_is_cancelled() {
    let gateway = gateway("codex_answers ok").start();
    let response = respond(&gateway, &body("hi", json!({})));
    assert_eq!(ask(&gateway, "POST", &format!("{}/cancel", path(&response)), "", None).finish().json(), response);
}

#[test]
fn deleted_response_is_gone_and_cannot_be_continued() {
    let mut gateway = gateway("codex_answers ok").start();
    let [kept, response] = [0, 1].map(|_| respond(&gateway, &body("hi", json!({}))));
    let deleted = ask(&gateway, "DELETE", &path(&response), "", None).finish();
    assert_eq!(deleted.json(), json!({"id": id(&response), "object": "response", "deleted": true}));
    for _ in 0..2 {
        gateway.get(&path(&response)).error(404);
        gateway.get(&format!("{}/input_items", path(&response))).error(404);
        ask(&gateway, "DELETE", &path(&response), "", None).finish().error(404);
        let next = post(&gateway, &body("more", json!({"previous_response_id": id(&response)})));
        let error = next.error(400);
        assert_eq!(
            (&error["param"], &error["code"]),
            (&json!("previous_response_id"), &json!("previous_response_not_found"))
        );
        assert_eq!(gateway.get("/v1/runs").json()["data"].as_array().unwrap().len(), 1);
        gateway.kill();
        gateway.restart();
    }
    assert_eq!(get(&gateway, &kept), kept);
}

#[test]
fn running_response_is_cancelled_when_it_is_deleted() {
    let gateway = gateway(SLOW).start();
    let queued = background(&gateway, json!({}));
    let pid = gateway.wait_for_pid("pid");
    assert_eq!(ask(&gateway, "DELETE", &path(&queued), "", None).finish().json()["deleted"], true);
    until_gone(&[pid]);
    gateway.get(&path(&queued)).error(404);
}

#[test]
fn input_items_are_listed_in_pages() {
    let gateway = gateway("codex_answers ok").start();
    let items = json!([
        {"role": "user", "content": "one"},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "1"}], "id": "msg_own"},
        {"role": "user", "content": [{"type": "input_text", "text": "two"}]},
    ]);
    let response = respond(&gateway, &body(items, json!({})));
    let list = |query: &str| gateway.get(&format!("{}/input_items{query}", path(&response)));
    let all = list("?order=asc").json();
    let data = all["data"].as_array().unwrap();
    assert_eq!((&all["object"], &all["has_more"], data.len()), (&json!("list"), &json!(false), 3));
    assert_eq!(data[0]["content"], json!([{"type": "input_text", "text": "one"}]));
    assert_eq!((&data[1]["id"], &data[1]["role"]), (&json!("msg_own"), &json!("assistant")));
    assert!(data.iter().all(|item| item["type"] == "message" && item["status"] == "completed"), "{all}");
    assert_eq!((&all["first_id"], &all["last_id"]), (&data[0]["id"], &data[2]["id"]));
    let page = list("?limit=2").json();
    assert_eq!((&page["data"], &page["has_more"]), (&json!([data[2], data[1]]), &json!(true)), "the last one first");
    let after = page["last_id"].as_str().unwrap();
    assert_eq!(list(&format!("?limit=2&after={after}")).json()["data"], json!([data[0]]));
    list("?limit=0").error(400);
    list("?order=sideways").error(400);
}

#[test]
fn response_that_is_not_stored_cannot_be_read() {
    let gateway = gateway("codex_answers ok").start();
    for stream in [false, true] {
        let reply = post(&gateway, &body("hi", json!({"store": false, "stream": stream})));
        assert_eq!(reply.status, 200, "{reply:?}");
        let run = reply.header("x-trunkline-run").unwrap().replace('-', "");
        gateway.get(&format!("/v1/responses/resp_{run}")).error(404);
        let next = post(&gateway, &body("more", json!({"previous_response_id": format!("resp_{run}")})));
        assert_eq!(next.error(404)["param"], "previous_response_id");
    }
    let chat = gateway.chat("hi").send().header("x-trunkline-run").unwrap().replace('-', "");
    gateway.get(&format!("/v1/responses/resp_{chat}")).error(404);
}

#[test]
fn case_36_response_is_not_found_when_api_key_differs() {
    let gateway = gateway("codex_answers ok").env("TRUNKLINE_API_KEYS", "first-key-1,other-key-2").start();
    let (first, other) = ("authorization: Bearer first-key-1\r\n", "authorization: Bearer other-key-2\r\n");
    let response = ask(&gateway, "POST", "/v1/responses", first, Some(&body("hi", json!({})))).finish().json();
    let path = path(&response);
    for (method, path) in [
        ("GET", path.clone()),
        ("GET", format!("{path}?stream=true")),
        ("GET", format!("{path}/input_items")),
        ("POST", format!("{path}/cancel")),
        ("DELETE", path.clone()),
    ] {
        let error = ask(&gateway, method, &path, other, None).finish().error(404);
        assert_eq!(error["code"], "response_not_found", "{method} {path}");
        gateway.get("/v1/responses/x").error(401);
    }
    let item = json!([{"type": "item_reference", "id": response["output"][0]["id"]}]);
    for asked in [body("more", json!({"previous_response_id": id(&response)})), body(item, json!({}))] {
        ask(&gateway, "POST", "/v1/responses", other, Some(&asked)).finish().error(404);
    }
    assert_eq!(ask(&gateway, "GET", &path, first, None).finish().json(), response, "nothing was changed");
    let deleted = ask(&gateway, "DELETE", &path, first, None).finish();
    assert_eq!(deleted.json()["deleted"], true);
    let asked = body("more", json!({"previous_response_id": id(&response)}));
    ask(&gateway, "POST", "/v1/responses", other, Some(&asked)).finish().error(404);
}

//! Requests that are refused: a clear 400 in OpenAI's shape, and nothing runs.

use serde_json::{Value, json};

use super::{SLOW, ask, body, gateway, id, post};

#[test]
fn invalid_request_is_a_400_that_names_the_member() {
    let gateway = gateway("tell ran 1; codex_answers ok").start();
    let mut cases = vec![
        (json!({"input": "hi"}), "model"),
        (json!({"model": "m"}), "input"),
        (json!({"model": 7, "input": "hi"}), "model"),
        (json!({"model": "nobody", "input": "hi"}), "model"),
        (body(7, json!({})), "input"),
        (body(json!({"role": "user"}), json!({})), "input"),
        (body(json!(["hi"]), json!({})), "input[0]"),
        (body(json!([]), json!({})), "input"),
        (body("", json!({})), "input"),
        (body(json!([{"role": "assistant", "content": "hi"}]), json!({})), "input"),
        (body(json!([{"type": "surprise"}]), json!({})), "input[0].type"),
        (body(json!([{"role": "user", "content": 7}]), json!({})), "input[0].content"),
        (body(json!([{"role": "user", "content": [7]}]), json!({})), "input[0].content[0]"),
        (body(json!([{"role": "user", "content": "a\u{0}b"}]), json!({})), "input[0].content"),
        (body(vec![json!({"role": "user", "content": "hi"}); 10_000], json!({})), "input"),
    ];
    for (more, param) in [
        (json!({"background": true, "store": false}), "background"),
        (json!({"background": "yes"}), "background"),
        (json!({"store": "no"}), "store"),
        (json!({"stream": 1}), "stream"),
        (json!({"instructions": ["x"]}), "instructions"),
        (json!({"metadata": ["x"]}), "metadata"),
        (json!({"metadata": {"a": 1}}), "metadata.a"),
        (
            json!({"metadata": (0..17).map(|n| (n.to_string(), json!("x"))).collect::<serde_json::Map<_, _>>()}),
            "metadata",
        ),
        (json!({"reasoning": "high"}), "reasoning"),
        (json!({"text": {"format": {"type": "xml"}}}), "text.format.type"),
        (json!({"text": {"format": {"type": "json_schema", "schema": {}}}}), "text.format.name"),
        (json!({"truncation": "maybe"}), "truncation"),
        (json!({"max_output_tokens": 0}), "max_output_tokens"),
        (json!({"max_output_tokens": -1}), "max_output_tokens"),
        (json!({"tools": {}}), "tools"),
        (json!({"tools": [7]}), "tools[0]"),
        (json!({"tools": [{"type": "function"}]}), "tools[0].name"),
        (json!({"include": "x"}), "include"),
        (json!({"conversation": "conv_1"}), "conversation"),
        (json!({"prompt": {"id": "p"}}), "prompt"),
        (json!({"trunkline": {"colour": "red"}}), "trunkline.colour"),
        (json!({"previous_response_id": 7}), "previous_response_id"),
    ] {
        cases.push((body("hi", more), param));
    }
    for (asked, param) in cases {
        let reply = post(&gateway, &asked);
        let shown: String = asked.to_string().chars().take(200).collect();
        assert_eq!(reply.status, 400, "{shown}: {reply:?}");
        let error = reply.error(400);
        assert_eq!(error["param"], param, "{shown}: {error}");
        assert!(error["type"] == "invalid_request_error" && error["code"].is_string(), "{error}");
        assert!(error["message"].as_str().unwrap().len() < 500, "{error}");
    }
    for bytes in ["", "[]", "{", "\"hi\"", "{\"model\": \"m\", \"input\": \"hi\"} x"] {
        let head = format!("content-type: application/json\r\ncontent-length: {}\r\n\r\n{bytes}", bytes.len());
        let address = gateway.address();
        let request = format!("POST /v1/responses HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n{head}");
        crate::http::send_raw(address, &request).finish().error(400);
    }
    assert!(!gateway.path("seen/ran").exists(), "nothing ran");
}

#[test]
fn huge_image_is_refused() {
    let gateway = gateway("codex_answers ok").start();
    let image = format!("data:image/png;base64,{}", "A".repeat(29 * 1024 * 1024));
    let items = json!([{"role": "user", "content": [{"type": "input_image", "image_url": image}]}]);
    assert_eq!(post(&gateway, &body(items, json!({}))).error(400)["param"], "input[0].content[0].image_url");
    let small = json!({"type": "input_image", "image_url": "data:image/png;base64,iVBORw0KGgo="});
    let items = json!([{"role": "user", "content": vec![small; 17]}]);
    assert_eq!(post(&gateway, &body(items, json!({}))).error(400)["param"], "input");
}

#[test]
fn unknown_response_is_a_404() {
    let gateway = gateway("codex_answers ok").start();
    for id in ["resp_01a1e9c42a4976a6bf909dbc3a2f6e01", "resp_x", "x", "..%2f..%2fetc", "resp_..%2f..%2fetc%2fpasswd"] {
        let path = format!("/v1/responses/{id}");
        for (method, path) in [
            ("GET", path.clone()),
            ("GET", format!("{path}?stream=true")),
            ("GET", format!("{path}/input_items")),
            ("POST", format!("{path}/cancel")),
            ("DELETE", path),
        ] {
            assert_eq!(
                ask(&gateway, method, &path, "", None).finish().error(404)["code"],
                "response_not_found",
                "{path}"
            );
        }
        let reply = post(&gateway, &body("hi", json!({"previous_response_id": id})));
        assert_eq!(reply.error(404)["param"], "previous_response_id");
    }
    assert_eq!(ask(&gateway, "PUT", "/v1/responses", "", None).finish().error(405)["code"], "method_not_allowed");
}

#[test]
fn response_in_progress_cannot_be_continued_and_its_queries_are_checked() {
    let gateway = gateway(SLOW).start();
    let queued: Value = post(&gateway, &body("hi", json!({"background": true}))).json();
    gateway.wait_for_pid("pid");
    let next = post(&gateway, &body("more", json!({"previous_response_id": id(&queued)})));
    assert_eq!(next.error(400)["code"], "previous_response_in_progress");
    for query in
        ["?starting_after=1", "?stream=maybe", "?stream=true&starting_after=-1", "?stream=true&starting_after=x"]
    {
        gateway.get(&format!("/v1/responses/{}{query}", id(&queued))).error(400);
    }
}

//! OpenAI-compatible HTTP upstreams as providers, one of them another trunkline.

use std::net::TcpListener;
use std::sync::Arc;

use serde_json::{Value, json};

use crate::fake_llm::{FakeLlm, Script, refusal, stream, whole};
use crate::observe::until;
use crate::test_gateway::TestGateway;

/// A gateway with the service as provider `up`, and further providers from `more`.
fn gateway(service: &FakeLlm, more: &str) -> TestGateway {
    let file = format!(
        "providers:\n- name: up\n  type: api\n  priority: 9\n  config: {{base_url: '{}/', model: gpt-x, api_key_env: UP_KEY}}\n  \
         models: {{fast: gpt-mini}}\n{more}\nrouting: {{backoff: 1ms, max_retries: 1}}\n",
        service.url
    );
    TestGateway::new()
        .env("UP_KEY", "hunter2-hunter2")
        .cli("p", "cat >/dev/null; answers \"$1\" 'from p'")
        .config("router.yaml", &file)
        .start()
}

/// A second provider, for fallback.
const FALLBACK: &str = "- {name: p, type: cli, config: {path: p}}";

#[test]
fn upstream_gets_all_options_and_answers_whole_and_streamed() {
    let service = FakeLlm::new([
        whole(json!({"role": "assistant", "content": "Hello"}), "length"),
        stream(
            &[
                json!({"role": "assistant"}),
                json!({"reasoning_content": "hm"}),
                json!({"content": "Hel"}),
                json!({"content": "lo"}),
            ],
            "stop",
        ),
    ]);
    let gateway = gateway(&service, "");
    let reply = gateway
        .chat("hi")
        .model("up")
        .preceded_by("system", "Be terse.")
        .image("data:image/png;base64,iVBORw0KGgo=")
        .with("temperature", 0)
        .with("max_tokens", 5)
        .with("response_format", json!({"type": "json_object"}))
        .with("seed", 7)
        .send();
    assert_eq!((reply.content().as_str(), reply.header("x-trunkline-provider")), ("Hello", Some("up")));
    let body = reply.json();
    assert_eq!(body["choices"][0]["finish_reason"], "length");
    let usage = json!({"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10,
        "prompt_tokens_details": {"cached_tokens": 2}});
    assert_eq!((&body["usage"], &body["trunkline"]["usage_estimated"]), (&usage, &Value::Null));
    let (head, sent) = service.seen().remove(0);
    assert!(head.starts_with("POST /v1/chat/completions HTTP/1.1"), "{head}");
    assert!(head.to_lowercase().contains("authorization: bearer hunter2-hunter2"), "{head}");
    let expected = json!({
        "model": "gpt-x", "stream": false, "temperature": 0, "max_tokens": 5, "seed": 7,
        "response_format": {"type": "json_object"},
        "messages": [
            {"role": "system", "content": "Be terse."},
            {"role": "user", "content": [
                {"type": "text", "text": "hi"},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}},
            ]},
        ],
    });
    let mut sent = sent;
    sent.as_object_mut().unwrap().entry("stream").or_insert(json!(false));
    assert_eq!(sent, expected);

    let streamed =
        gateway.chat("hi").model("auto:fast").streamed().with("stream_options", json!({"include_usage": true})).send();
    assert_eq!((streamed.streamed_text().as_str(), streamed.is_done()), ("Hello", true));
    assert!(streamed.body.contains("\"reasoning_content\":\"hm\""), "{}", streamed.body);
    assert_eq!(streamed.frames().last().unwrap()["usage"]["total_tokens"], 10);
    let sent = &service.seen()[1].1;
    assert_eq!((&sent["model"], &sent["stream"]), (&json!("gpt-mini"), &json!(true)));
}

#[test]
fn tool_calls_are_passed_in_both_directions() {
    let call = json!({"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": "{\"city\":\"Rome\"}"}});
    let piece = |id: Option<&str>, name: Option<&str>, arguments: &str| {
        let mut call = json!({"index": 0, "function": {"arguments": arguments}});
        if let (Some(id), Some(name)) = (id, name) {
            call["id"] = json!(id);
            call["type"] = json!("function");
            call["function"]["name"] = json!(name);
        }
        json!({"tool_calls": [call]})
    };
    let service = FakeLlm::new([
        whole(json!({"role": "assistant", "content": null, "tool_calls": [call]}), "tool_calls"),
        stream(
            &[
                piece(Some("call_1"), Some("weather"), ""),
                piece(None, None, "{\"city\":"),
                piece(None, None, "\"Rome\"}"),
            ],
            "tool_calls",
        ),
        whole(json!({"role": "assistant", "content": "Sunny."}), "stop"),
    ]);
    let gateway = gateway(&service, "");
    let tools = json!([{"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}]);
    let ask = || gateway.chat("Rome?").model("up").with("tools", tools.clone()).with("tool_choice", "auto");
    let choice = ask().send().json()["choices"][0].clone();
    assert_eq!((&choice["message"]["tool_calls"], &choice["message"]["content"]), (&json!([call]), &Value::Null));
    assert_eq!(choice["finish_reason"], "tool_calls");
    assert_eq!((&service.seen()[0].1["tools"], &service.seen()[0].1["tool_choice"]), (&tools, &json!("auto")));

    let frames = ask().streamed().send().frames();
    let calls: Vec<&Value> = frames
        .iter()
        .map(|frame| &frame["choices"][0]["delta"]["tool_calls"][0])
        .filter(|call| call.is_object())
        .collect();
    assert_eq!((&calls[0]["id"], &calls[0]["function"]["name"]), (&json!("call_1"), &json!("weather")));
    let arguments: String = calls.iter().map(|call| call["function"]["arguments"].as_str().unwrap()).collect();
    assert_eq!(arguments, "{\"city\":\"Rome\"}");
    assert!(frames.iter().any(|frame| frame["choices"][0]["finish_reason"] == "tool_calls"));

    let history = json!([
        {"role": "user", "content": "Rome?"},
        {"role": "assistant", "content": null, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": "24 C"},
    ]);
    let body = json!({"model": "up", "messages": history});
    let text = body.to_string();
    let request = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: {}\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{text}",
        gateway.address(),
        text.len()
    );
    assert_eq!(crate::http::send_raw(gateway.address(), &request).finish().content(), "Sunny.");
    assert_eq!(service.seen()[2].1["messages"], history);
}

#[test]
fn error_has_category_and_message_of_the_upstream() {
    for (status, headers, error, category, our_status, wait) in [
        (
            401,
            "",
            json!({"message": "Incorrect API key provided: hunter2-hunter2", "type": "invalid_request_error", "code": "invalid_api_key"}),
            "authentication",
            500,
            None,
        ),
        (
            404,
            "",
            json!({"message": "The model `gpt-x` does not exist", "code": "model_not_found"}),
            "not_found",
            500,
            None,
        ),
        (400, "", json!({"message": "temperature must be at most 2"}), "validation", 500, None),
        (
            429,
            "",
            json!({"message": "You exceeded your current quota", "code": "insufficient_quota"}),
            "quota",
            429,
            None,
        ),
        (429, "retry-after: 7200\r\n", json!({"message": "slow down"}), "rate_limit", 429, Some("120")),
        (500, "", json!({"message": "The server had an error"}), "server", 500, None),
    ] {
        let service = FakeLlm::new([refusal(status, headers, error.clone()), refusal(status, headers, error.clone())]);
        let gateway = gateway(&service, "");
        let reply = gateway.chat("hi").model("up").send();
        let shown = reply.error(our_status);
        assert_eq!(shown["code"], category);
        let message = error["message"].as_str().unwrap().replace("hunter2-hunter2", "***");
        assert!(shown["detail"].as_str().unwrap().contains(&message), "{shown}");
        assert_eq!(reply.header("retry-after"), wait, "{category}");
        assert!(!reply.body.contains("hunter2") && !gateway.log().contains("hunter2"), "{}", reply.body);
    }
}

#[test]
fn router_falls_back_when_upstream_is_down_or_breaks_off() {
    let closed = {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        format!("http://{}/v1", listener.local_addr().unwrap())
    };
    let down = gateway(&FakeLlm { url: closed, seen: Arc::default() }, FALLBACK);
    let reply = down.chat("hi").model("auto").send();
    assert_eq!(reply.content(), "from p");
    let categories: Vec<Value> =
        reply.json()["trunkline"]["attempts"].as_array().unwrap().iter().map(|a| a["category"].clone()).collect();
    assert_eq!(categories, [json!("network"), json!("network"), Value::Null]);

    let half = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Hal\"}}]}\n\n".to_owned();
    let broken = || Script::Says(200, "content-type: text/event-stream\r\n", half.clone());
    let service = FakeLlm::new([broken(), broken(), broken()]);
    let gateway = gateway(&service, FALLBACK);
    let streamed = gateway.chat("hi").model("auto").streamed().send();
    assert!(!streamed.is_done() && streamed.body.contains("\"code\":\"network\""), "{}", streamed.body);
    assert_eq!(
        gateway.chat("hi").model("auto").send().content(),
        "from p",
        "fallback is possible: nothing was sent to the client yet"
    );
}

#[test]
fn upstream_request_is_cancelled_when_client_disconnects() {
    let half = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Hal\"}}]}\n\n".to_owned();
    let service = FakeLlm::new([Script::Hangs(half, "gone")]);
    let gateway = gateway(&service, "");
    let mut stream = gateway.chat("hi").model("up").streamed().open();
    stream.read_until("Hal");
    drop(stream);
    until("the service sees the disconnect", || service.seen().iter().any(|(head, _)| head == "gone"));
}

#[test]
fn request_fails_before_anything_is_sent_when_key_is_not_set() {
    let service = FakeLlm::new([]);
    let file = format!(
        "providers: [{{name: up, type: api, config: {{base_url: '{}', model: m, api_key_env: NO_SUCH_KEY}}}}]\n",
        service.url
    );
    let gateway = TestGateway::new().config("router.yaml", &file).start();
    assert!(gateway.log().contains("NO_SUCH_KEY"), "{}", gateway.log());
    let error = gateway.chat("hi").model("up").send().error(500);
    assert_eq!(error["code"], "configuration");
    assert!(error["detail"].as_str().unwrap().contains("NO_SUCH_KEY"), "{error}");
    let health = gateway.get("/health/providers").json();
    assert_eq!((&health["status"], &health["providers"][0]["available"]), (&json!("down"), &json!(false)));
    assert!(service.seen().is_empty());
}

#[test]
fn another_trunkline_can_be_an_upstream() {
    let inner = TestGateway::new()
        .cli("codex", "cat >/dev/null; codex_answers inner")
        .model("m", json!({"driver": "codex"}))
        .start();
    let service = FakeLlm { url: format!("http://{}/v1", inner.address()), seen: Arc::default() };
    let gateway = gateway(&service, "");
    assert_eq!(gateway.chat("hi").model("up/m").send().content(), "inner");
    assert_eq!(gateway.chat("hi").model("up/m").streamed().send().streamed_text(), "inner");
    let health = gateway.get("/health/providers").json();
    assert_eq!(
        (&health["providers"][0]["healthy"], &health["providers"][0]["version"]),
        (&json!(true), &json!("2 models"))
    );
    let error = gateway.chat("hi").model("up/missing").send().error(500);
    assert_eq!(error["code"], "not_found");
}

#[test]
fn log_probabilities_names_and_old_functions_are_passed_in_both_directions() {
    let logprobs = json!({"content": [{"token": "Hi", "logprob": -0.25, "bytes": [72, 105], "top_logprobs": []}], "refusal": null});
    let answer = json!({"choices": [{"index": 0, "finish_reason": "stop", "logprobs": logprobs,
        "message": {"role": "assistant", "content": "Hi"}}]});
    let chunk =
        json!({"choices": [{"index": 0, "delta": {"content": "Hi"}, "logprobs": logprobs, "finish_reason": "stop"}]});
    let call = json!({"name": "weather", "arguments": "{}"});
    let service = FakeLlm::new([
        Script::Says(200, "content-type: application/json\r\n", answer.to_string()),
        Script::Says(200, "content-type: text/event-stream\r\n", format!("data: {chunk}\n\ndata: [DONE]\n\n")),
        whole(json!({"role": "assistant", "content": null, "function_call": call}), "function_call"),
        stream(
            &[
                json!({"function_call": {"name": "weather", "arguments": ""}}),
                json!({"function_call": {"arguments": "{}"}}),
            ],
            "function_call",
        ),
    ]);
    let gateway = gateway(&service, "");
    let named = json!({"role": "user", "name": "bob", "content": "hi"});
    let ask = || {
        let request = gateway.chat("").model("up").with_messages(vec![named.clone()]).with("logprobs", true);
        request.with("top_logprobs", 2).with("store", false).with("n", 1)
    };
    let key = |request: crate::http::RequestBuilder| request.header("idempotency-key", "one");
    let first = key(ask()).send();
    assert_eq!((first.content().as_str(), &first.json()["choices"][0]["logprobs"]), ("Hi", &logprobs));
    assert_eq!(key(ask()).send().json()["choices"], first.json()["choices"], "also when it is replayed");
    let frames = ask().streamed().send().frames();
    let streamed: Vec<&Value> =
        frames.iter().map(|frame| &frame["choices"][0]["logprobs"]).filter(|logprobs| !logprobs.is_null()).collect();
    assert_eq!(streamed, [&logprobs]);
    let sent = service.seen()[0].1.clone();
    assert_eq!((&sent["logprobs"], &sent["top_logprobs"], &sent["store"]), (&json!(true), &json!(2), &json!(false)));
    assert_eq!(sent["messages"], json!([named]));

    let functions = json!([{"name": "weather", "parameters": {"type": "object"}}]);
    let ask = || gateway.chat("Rome?").model("up").with("functions", functions.clone()).with("function_call", "auto");
    let choice = ask().send().json()["choices"][0].clone();
    assert_eq!((&choice["message"]["function_call"], &choice["finish_reason"]), (&call, &json!("function_call")));
    let sent = service.seen()[2].1.clone();
    assert_eq!((&sent["functions"], &sent["function_call"], sent.get("tools")), (&functions, &json!("auto"), None));
    let frames = ask().streamed().send().frames();
    let arguments: String =
        frames.iter().filter_map(|frame| frame["choices"][0]["delta"]["function_call"]["arguments"].as_str()).collect();
    assert_eq!(arguments, "{}");
    assert!(frames.iter().any(|frame| frame["choices"][0]["finish_reason"] == "function_call"), "{frames:?}");
}

#[test]
fn several_choices_are_passed_in_both_directions() {
    let choice = |index: u64, content: &str| {
        json!({"index": index, "finish_reason": "stop",
        "message": {"role": "assistant", "content": content}})
    };
    let answer = json!({"choices": [choice(0, "heads"), choice(1, "tails")],
        "usage": {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}});
    let piece = |index: u64, delta: Value, finish: Option<&str>| {
        format!("data: {}\n\n", json!({"choices": [{"index": index, "delta": delta, "finish_reason": finish}]}))
    };
    let interleaved = [
        piece(0, json!({"role": "assistant", "content": "he"}), None),
        piece(1, json!({"role": "assistant", "content": "tai"}), None),
        piece(0, json!({"content": "ads"}), None),
        piece(0, json!({}), Some("stop")),
        piece(1, json!({"content": "ls"}), None),
        piece(1, json!({}), Some("length")),
        "data: [DONE]\n\n".to_owned(),
    ];
    let service = FakeLlm::new([
        Script::Says(200, "content-type: application/json\r\n", answer.to_string()),
        Script::Says(200, "content-type: text/event-stream\r\n", interleaved.concat()),
    ]);
    let gateway = gateway(&service, "");
    let ask = || gateway.chat("toss").model("up").with("n", 2);
    let whole = ask().header("idempotency-key", "one").send().json();
    let texts = |whole: &Value| {
        let choices = whole["choices"].as_array().unwrap().iter();
        let choices = choices.map(|choice| (choice["index"].as_u64(), choice["message"]["content"].clone()));
        choices.collect::<Vec<_>>()
    };
    assert_eq!(texts(&whole), [(Some(0), json!("heads")), (Some(1), json!("tails"))]);
    assert_eq!(whole["usage"]["completion_tokens"], 4);
    let replayed = ask().header("idempotency-key", "one").send().json();
    assert_eq!(replayed["choices"], whole["choices"], "also when it is replayed");

    let reply = ask().streamed().send();
    let frames = reply.frames();
    let of_choice = |index: u64| {
        let choices = frames.iter().flat_map(|frame| frame["choices"].as_array().unwrap());
        choices.filter(move |choice| choice["index"] == index)
    };
    for (index, content, finish) in [(0, "heads", "stop"), (1, "tails", "length")] {
        let text: String = of_choice(index).filter_map(|choice| choice["delta"]["content"].as_str()).collect();
        let ends: Vec<&str> = of_choice(index).filter_map(|choice| choice["finish_reason"].as_str()).collect();
        let roles = of_choice(index).filter(|choice| choice["delta"]["role"] == "assistant").count();
        assert_eq!((text.as_str(), ends, roles), (content, vec![finish], 1), "{frames:?}");
    }
    assert!(service.seen().iter().all(|(_, sent)| sent["n"] == 2));
}

#[test]
fn router_skips_providers_that_give_one_answer_when_several_are_asked_for() {
    let service = FakeLlm::new([whole(json!({"role": "assistant", "content": "from up"}), "stop")]);
    let gateway = gateway(&service, "- {name: p, type: cli, priority: 10, config: {path: p}}");
    assert_eq!(gateway.chat("hi").model("auto").send().content(), "from p", "the first provider otherwise");
    assert_eq!(gateway.chat("hi").model("auto").with("n", 2).send().content(), "from up");
    assert_eq!(gateway.chat("hi").model("p").with("n", 2).send().error(400)["param"], "n");
    assert_eq!(service.seen().len(), 1);
}

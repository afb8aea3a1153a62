//! The chat page and its endpoints over real sockets.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::mpsc::Sender;
use trunkline_core::event::{Event, SessionId};
use trunkline_core::failure::{Category, Failure};
use trunkline_core::turn::Turn;
use trunkline_server::auth::Keys;
use trunkline_server::{HttpLimits, ServerConfig};

use crate::support::{Reply, TestServer, finished, get, request, soon, text, until};

const JSON: &str = "Content-Type: application/json\r\n";
const ME: &str = "Cookie: trunkline_chat=0a50f5b3-5bfb-49c6-b27e-b98fb2571b4f\r\n";
const BROWSER: &str = "User-Agent: Mozilla/5.0\r\n";
const YOU: &str = "Cookie: trunkline_chat=1b50f5b3-5bfb-49c6-b27e-b98fb2571b4f\r\n";

fn say(who: &str, message: &str) -> String {
    request("POST", "/chat", &format!("{JSON}{who}"), &json!({"message": message}).to_string())
}

fn post(target: &str, who: &str) -> String {
    request("POST", target, &format!("{JSON}{who}"), "{}")
}

async fn play(run: &Sender<Event>, events: impl IntoIterator<Item = Event>) {
    for event in events {
        soon(run.send(event)).await.unwrap();
    }
}

async fn shown(server: &TestServer, who: &str) -> Value {
    server.ask(&request("GET", "/chat", who, "")).await.json()
}

/// Names and data of the frames.
fn frames(reply: &Reply) -> Vec<(String, Value)> {
    assert_eq!((reply.status, reply.header("content-type")), (200, Some("text/event-stream")), "{reply:?}");
    let frame = |frame: &str| {
        let (name, data) = frame.strip_prefix("event: ")?.split_once("\ndata: ")?;
        Some((name.to_owned(), serde_json::from_str(data).unwrap()))
    };
    reply.body.split_terminator("\n\n").map(|text| frame(text).unwrap_or_else(|| panic!("{text}"))).collect()
}

fn kinds(shown: &Value) -> Vec<&str> {
    shown["items"].as_array().unwrap().iter().map(|item| item["type"].as_str().unwrap()).collect()
}

fn told(turn: &Turn) -> Vec<&str> {
    turn.messages.iter().map(|message| message.text.as_str()).collect()
}

#[tokio::test]
async fn page_has_its_content_security_policy() {
    let server = TestServer::start(ServerConfig { keys: Keys::new(["k"]), ..ServerConfig::default() }).await;
    let page = server.ask(&get("/")).await;
    assert_eq!((page.status, page.header("content-type")), (200, Some("text/html; charset=utf-8")));
    let policy = page.header("content-security-policy").unwrap();
    let rules: Vec<&str> = policy.split("; ").collect();
    for rule in ["default-src 'none'", "connect-src 'self'", "frame-ancestors 'none'", "base-uri 'none'"] {
        assert!(rules.contains(&rule), "{rule}: {policy}");
    }
    assert!(!policy.contains("unsafe") && policy.matches("'sha256-").count() == 3, "{policy}");
    for (name, value) in
        [("x-content-type-options", "nosniff"), ("referrer-policy", "no-referrer"), ("cache-control", "no-cache")]
    {
        assert_eq!(page.header(name), Some(value));
    }
    let head = server.ask(&request("HEAD", "/", "", "")).await;
    assert_eq!((head.status, head.body.as_str(), head.header("etag")), (200, "", page.header("etag")));
    let known = format!("If-None-Match: {}\r\n", page.header("etag").unwrap());
    let again = server.ask(&request("GET", "/", &known, "")).await;
    assert_eq!((again.status, again.body.as_str()), (304, ""));
    assert_eq!(again.header("content-security-policy"), Some(policy));
}

#[tokio::test]
async fn cookie_is_set_once() {
    let server = TestServer::start(ServerConfig::default()).await;
    for target in ["/", "/chat"] {
        let given = server.ask(&request("GET", target, BROWSER, "")).await.header("set-cookie").unwrap().to_owned();
        assert!(given.starts_with("trunkline_chat=") && given.ends_with("; HttpOnly; SameSite=Strict"), "{given}");
        assert_eq!(server.ask(&request("GET", target, ME, "")).await.header("set-cookie"), None);
        let forged = server.ask(&request("GET", target, "Cookie: trunkline_chat=../../x\r\n", "")).await;
        assert!(forged.header("set-cookie").is_some());
    }
    play(&server.script(), [finished("hi")]).await;
    assert!(server.ask(&say(BROWSER, "hello")).await.header("set-cookie").is_some());
    assert!(
        server.ask(&get("/")).await.header("set-cookie").is_some(),
        "the page is for a browser, whatever asks for it"
    );
}

#[tokio::test]
async fn clients_share_one_conversation_when_they_keep_no_cookies() {
    let server = TestServer::start(ServerConfig::default()).await;
    for (message, answer) in [("hello", "hi"), ("and now?", "still here")] {
        play(&server.script(), [finished(answer)]).await;
        let reply = server.ask(&say("User-Agent: curl/8.5.0\r\n", message)).await;
        assert_eq!((reply.status, reply.header("set-cookie")), (200, None));
    }
    assert_eq!(told(&server.turns()[1]), ["hello", "hi", "and now?"]);
    let shared = server.ask(&get("/chat")).await;
    assert_eq!((kinds(&shared.json()).len(), shared.header("set-cookie")), (6, None));
    // A browser has its own conversation from its first request on, with a cookie or without.
    for browser in [BROWSER, "Sec-Fetch-Mode: cors\r\n", "Origin: http://localhost\r\n", ME] {
        assert_eq!(shown(&server, browser).await["items"], json!([]), "{browser}");
    }
    play(&server.script(), [finished("yours")]).await;
    server.ask(&say(BROWSER, "mine alone")).await;
    assert_eq!(told(&server.turns()[2]), ["mine alone"]);
    assert_eq!(server.ask(&post("/clear", BROWSER)).await.status, 200);
    assert_eq!(kinds(&shown(&server, "").await).len(), 6, "a browser clears nothing but its own");
    assert_eq!(server.ask(&post("/clear", "")).await.status, 200);
    assert_eq!(shown(&server, "").await["items"], json!([]));
}

#[tokio::test]
async fn shared_conversation_is_separate_for_each_key() {
    let server = TestServer::start(ServerConfig { keys: Keys::new(["one", "two"]), ..ServerConfig::default() }).await;
    let with = |key: &str| format!("Authorization: Bearer {key}\r\n");
    play(&server.script(), [finished("hi")]).await;
    server.ask(&say(&with("one"), "hello")).await;
    assert_eq!(kinds(&shown(&server, &with("one")).await).len(), 3);
    assert_eq!(kinds(&shown(&server, &with("two")).await).len(), 0);
}

#[tokio::test]
async fn each_error_of_the_page_has_its_status_and_code() {
    let server = TestServer::with_limits(HttpLimits { body: 1000, ..HttpLimits::default() }).await;
    let chat = |headers: &str, body: &str| request("POST", "/chat", headers, body);
    let long = json!({"message": "x".repeat(1000)}).to_string();
    for (request, status, code) in [
        (chat(JSON, "{"), 400, "invalid_json"),
        (chat(JSON, ""), 400, "invalid_json"),
        (chat(JSON, "[]"), 400, "invalid_value"),
        (chat(JSON, "{}"), 400, "invalid_value"),
        (chat(JSON, r#"{"message": 7}"#), 400, "invalid_value"),
        (chat(JSON, r#"{"message": ""}"#), 400, "invalid_value"),
        (chat(JSON, r#"{"message": " \n"}"#), 400, "invalid_value"),
        (chat(JSON, r#"{"message": "hi", "model": 7}"#), 400, "invalid_value"),
        (chat(JSON, r#"{"message": "hi", "model": "script"}"#), 400, "model_not_found"),
        (chat(JSON, &long), 413, "request_too_large"),
        (chat("Content-Type: text/plain\r\n", r#"{"message": "hi"}"#), 415, "unsupported_media_type"),
        (chat("", r#"{"message": "hi"}"#), 415, "unsupported_media_type"),
        (request("POST", "/clear", "Content-Type: text/plain\r\n", "{}"), 415, "unsupported_media_type"),
        (request("POST", "/stop", "", "{}"), 415, "unsupported_media_type"),
        (chat(&format!("{JSON}Origin: http://evil.example\r\n"), "{}"), 403, "forbidden_origin"),
        (request("POST", "/clear", "Origin: null\r\n", ""), 403, "forbidden_origin"),
        (request("DELETE", "/chat", "", ""), 405, "method_not_allowed"),
        (get("/clear"), 405, "method_not_allowed"),
    ] {
        let reply = server.ask(&request).await;
        assert_eq!((reply.status, reply.json()["error"]["code"].as_str()), (status, Some(code)), "{request} {reply:?}");
    }
    let unknown = server.ask(&chat(&format!("{JSON}{ME}"), r#"{"message": "hi", "model": "script"}"#)).await;
    assert_eq!(unknown.json()["error"]["detail"], "did you mean: scripted?");
    assert_eq!(shown(&server, ME).await, json!({"items": [], "running": false}), "it was never asked");
}

#[tokio::test]
async fn answer_is_streamed_as_it_comes() {
    let server = TestServer::start(ServerConfig::default()).await;
    let run = server.script();
    let mut client = server.connect().await;
    client.send(say(ME, "hello").as_bytes()).await;
    play(&run, [Event::Started { session: Some(SessionId("s-1".into())), model: None }, text("Let me see.")]).await;
    client.until("event: text\ndata: {\"content\":\"Let me see.\"}\n\n").await;
    let input = json!({"path": "foo.py"});
    play(&run, [Event::ToolStarted { id: "t".into(), name: "read_file".into(), input: input.clone() }]).await;
    client.until("event: tool\n").await;
    assert_eq!(shown(&server, ME).await["running"], true);
    play(&run, [Event::ToolFinished { id: "t".into(), output: "x".into(), ok: true }, text("x"), finished("x")]).await;
    let reply = client.reply().await;
    let usage = json!({"input_tokens": 0, "output_tokens": 0, "cached_tokens": 0, "estimated": false});
    let expected = [
        ("text", json!({"content": "Let me see."})),
        ("tool", json!({"name": "read_file", "input": input, "args": input, "id": "t"})),
        ("tool_result", json!({"id": "t", "name": "read_file", "output": "x", "ok": true})),
        ("text", json!({"content": "x"})),
        ("done", json!({"model": "scripted", "usage": usage, "session": "s-1"})),
    ];
    assert_eq!(frames(&reply), expected.map(|(name, data)| (name.to_owned(), data)));
    let chat = shown(&server, ME).await;
    assert_eq!((kinds(&chat), &chat["running"]), (vec!["user", "text", "tool", "text", "done"], &false.into()));

    play(&server.script(), [finished("again")]).await;
    server.ask(&say(ME, "and now?")).await;
    let turn = &server.turns()[1];
    assert_eq!((told(turn), &turn.session), (vec!["hello", "x", "and now?"], &Some(SessionId("s-1".into()))));
    assert_eq!(shown(&server, YOU).await["items"], json!([]), "two browsers never mix");
}

#[tokio::test]
async fn failure_is_shown_and_saved() {
    let server = TestServer::start(ServerConfig::default()).await;
    let failure = || Event::Failed(Failure::new(Category::Quota, "no credit").hint("pay"));
    let error = json!({"message": "no credit", "code": "quota", "hint": "pay"});
    for events in [vec![failure()], vec![text("a"), failure()]] {
        server.ask(&post("/clear", ME)).await;
        let before = events.len() - 1;
        play(&server.script(), events).await;
        let frames = frames(&server.ask(&say(ME, "hello")).await);
        assert_eq!(frames[before..], [("error".into(), error.clone()), ("done".into(), json!({}))]);
        let chat = shown(&server, ME).await;
        assert_eq!(chat["items"].as_array().unwrap().last().unwrap()["message"], "no credit");
    }
}

#[tokio::test]
async fn message_is_refused_while_an_answer_is_running() {
    let server = TestServer::start(ServerConfig::default()).await;
    let (mine, yours) = (server.script(), server.script());
    let mut client = server.connect().await;
    client.send(say(ME, "hello").as_bytes()).await;
    play(&mine, [text("a")]).await;
    client.until("event: text").await;
    let second = server.ask(&say(ME, "me too")).await;
    let error = &second.json()["error"];
    assert_eq!((second.status, error["code"].as_str()), (409, Some("answer_running")));
    assert!(error["hint"].as_str().unwrap().contains("POST /stop"), "{error}");
    play(&yours, [finished("b")]).await;
    assert_eq!(frames(&server.ask(&say(YOU, "hello")).await).len(), 2, "others are not concerned");
    play(&mine, [finished("a")]).await;
    client.reply().await;
    play(&server.script(), [finished("b")]).await;
    server.ask(&say(ME, "me too")).await;
    assert_eq!(kinds(&shown(&server, ME).await), ["user", "text", "done", "user", "text", "done"]);
}

/// Ways to end an answer early, and what is saved of it.
#[tokio::test]
async fn answer_can_be_ended_early() {
    let server = TestServer::start(ServerConfig::default()).await;
    for (how, kept) in [
        (Some("/stop"), vec!["user", "text", "interrupted"]),
        (Some("/stop/"), vec!["user", "text", "interrupted"]),
        (Some("/clear"), vec![]),
        (None, vec!["user", "text", "interrupted"]),
    ] {
        server.ask(&post("/clear", ME)).await;
        let run = server.script();
        let mut client = server.connect().await;
        client.send(say(ME, "hello").as_bytes()).await;
        play(&run, [text("half")]).await;
        client.until("half").await;
        if let Some(target) = how {
            let stopped = server.ask(&request("POST", target, ME, "")).await;
            assert_eq!((stopped.status, stopped.json()), (200, json!({"status": "ok"})));
            let chat = shown(&server, ME).await;
            assert_eq!((kinds(&chat), &chat["running"]), (kept.clone(), &false.into()), "{how:?}");
            assert_eq!(frames(&client.reply().await).last().unwrap().1, json!({"interrupted": true}));
        } else {
            drop(client);
        }
        soon(run.closed()).await;
        soon(async { while shown(&server, ME).await["running"] == true {} }).await;
        assert_eq!(kinds(&shown(&server, ME).await), kept, "{how:?}");
    }
    play(&server.script(), [finished("b")]).await;
    server.ask(&say(ME, "go on")).await;
    assert_eq!(told(server.turns().last().unwrap()), ["hello", "half", "go on"]);
    for target in ["/stop", "/clear"] {
        assert_eq!(server.ask(&post(target, YOU)).await.status, 200, "nothing to do is fine");
    }
}

#[tokio::test]
async fn stream_has_keep_alive_comments_and_an_error_at_shutdown() {
    let limits =
        HttpLimits { keep_alive: Duration::from_millis(20), drain: Duration::from_millis(50), ..HttpLimits::default() };
    let mut server = TestServer::with_limits(limits).await;
    let run = server.script();
    let mut client = server.connect().await;
    client.send(say(ME, "hello").as_bytes()).await;
    client.until(": keep-alive\n\n").await;
    server.stop.gently.cancel();
    let body = client.reply().await.body;
    assert!(body.contains("event: error\ndata: {\"message\":\"the server is shutting down\""), "{body}");
    assert!(body.ends_with("event: done\ndata: {}\n\n"), "{body}");
    server.ended().await;
    assert!(run.is_closed());
}

fn stored(folder: &Path) -> Vec<String> {
    let files = std::fs::read_dir(folder).into_iter().flatten();
    // A file may be removed after it was listed.
    files.filter_map(|file| std::fs::read_to_string(file.unwrap().path()).ok()).collect()
}

#[tokio::test]
async fn conversation_is_restored_after_a_restart() {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path().join("state/chats");
    let config = || ServerConfig { chats: Some(folder.clone()), ..ServerConfig::default() };
    let mut first = TestServer::start(config()).await;
    play(&first.script(), [finished("hi")]).await;
    first.ask(&say(ME, "hello")).await;
    let before = shown(&first, ME).await;
    first.stop.gently.cancel();
    first.ended().await;
    assert_eq!(stored(&folder).len(), 1, "everything is written by the end");
    let second = TestServer::start(config()).await;
    assert_eq!(shown(&second, ME).await, before);
    play(&second.script(), [finished("still here")]).await;
    second.ask(&say(ME, "and now?")).await;
    assert_eq!(told(&second.turns()[0]), ["hello", "hi", "and now?"]);
    second.ask(&post("/clear", ME)).await;
    until(|| stored(&folder).is_empty()).await;
}

#[tokio::test]
async fn conversation_belongs_to_its_key() {
    let server = TestServer::start(ServerConfig { keys: Keys::new(["one", "two"]), ..ServerConfig::default() }).await;
    let with = |key: &str| format!("Authorization: Bearer {key}\r\n{ME}");
    for (request, status) in [
        (get("/"), 200),
        (request("GET", "/chat", ME, ""), 401),
        (say(ME, "hello"), 401),
        (post("/clear", ME), 401),
        (post("/stop", ME), 401),
        (get("/v1/models"), 401),
    ] {
        assert_eq!(server.ask(&request).await.status, status, "{request}");
    }
    play(&server.script(), [finished("hi")]).await;
    server.ask(&say(&with("one"), "hello")).await;
    assert_eq!(kinds(&shown(&server, &with("one")).await).len(), 3);
    assert_eq!(kinds(&shown(&server, &with("two")).await).len(), 0);
    server.ask(&post("/clear", &with("two"))).await;
    assert_eq!(kinds(&shown(&server, &with("one")).await).len(), 3);
}

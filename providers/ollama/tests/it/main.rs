//! Tests of the provider executable against a fake Ollama server.

#![cfg(test)] // redundant for an integration test, but clippy's `allow-unwrap-in-tests` needs it

mod fake_ollama;

use std::io::{BufRead, BufReader, Read};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::channel;

use serde_json::{Value, json};
use trunkline_core::failure::{Category, classify};

use fake_ollama::{FakeOllama, begin_stream, finish, send_chunk, start};

/// Ollama's complete reply, or the last line of a stream.
fn final_reply(text: &str) -> Value {
    json!({"model": "llama3.2:latest", "created_at": "2025-01-07T10:30:00.1Z", "response": text, "done": true,
        "done_reason": "stop", "context": [1, 2], "total_duration": 4_364_650_667_u64, "prompt_eval_count": 32,
        "eval_count": 9})
}

/// A line of a stream before the last one.
fn partial_reply(text: &str) -> Value {
    json!({"model": "llama3.2:latest", "created_at": "2025-01-07T10:30:00Z", "response": text, "done": false})
}

#[test]
fn generate_prints_one_object() {
    let fake = FakeOllama::responding("200 OK", final_reply("2 + 2 = 4.").to_string());
    let ran = fake.run("generate", &json!({"prompt": "What is 2+2?"}));
    let mut answer = ran.object();
    let latency = answer["latency"].take();
    assert!(latency.as_u64().is_some_and(|nanoseconds| nanoseconds > 1000), "{latency}");
    let expected = json!({"content": "2 + 2 = 4.", "tokens_used": 41, "input_tokens": 32, "output_tokens": 9,
        "model": "llama3.2:latest", "latency": null, "finish_reason": "stop", "error": "", "provider": "ollama"});
    assert_eq!((answer, ran.code), (expected, Some(0)));
    let request = fake.request();
    assert_eq!(request.line, "POST /api/generate HTTP/1.1");
    assert_eq!(request.body, json!({"model": "llama3.2:latest", "prompt": "What is 2+2?", "stream": false}));
}

#[test]
fn all_members_of_the_request_are_translated() {
    let request = json!({
        "prompt": "and 3+3?", "system_prompt": "Be brief.", "max_tokens": 0, "temperature": 0, "top_p": 0.5, "tools": [],
        "context": [{"role": "user", "content": "2+2?"}, {"role": "assistant", "content": "4 \"four\""}],
        "config": {"model": "qwen3:8b", "num_ctx": 8192, "seed": 0, "temperature": 1, "think": false, "keep_alive": "5m",
            "format": "json", "low_vram": false},
        "metadata": {"task_id": "t"}, "unknown_member": {"x": [1]}
    });
    let fake = FakeOllama::responding("200 OK", final_reply("6").to_string());
    assert_eq!(fake.run("generate", &request).code, Some(0));
    let expected = json!({
        "model": "qwen3:8b", "stream": false, "system": "Be brief.", "think": false, "keep_alive": "5m", "format": "json",
        "prompt": "[User]\n2+2?\n\n[Assistant]\n4 \"four\"\n\n[User]\nand 3+3?",
        "options": {"num_ctx": 8192, "seed": 0, "low_vram": false, "num_predict": 0, "temperature": 0, "top_p": 0.5}
    });
    assert_eq!(fake.request().body, expected);
}

#[test]
fn model_comes_from_environment_when_request_names_none() {
    let table = [(json!({"prompt": "x"}), "mistral"), (json!({"prompt": "x", "config": {"model": "phi"}}), "phi")];
    for (request, model) in table {
        let fake = FakeOllama::responding("200 OK", final_reply("x").to_string());
        let env = [("OLLAMA_HOST", fake.host.as_str()), ("OLLAMA_MODEL", "mistral")];
        finish(start(&["generate"], &env, request.to_string().as_bytes()));
        assert_eq!(fake.request().body["model"], model);
    }
}

#[test]
fn finish_reason_follows_done_reason() {
    for (reason, expected) in [("stop", "stop"), ("length", "length"), ("load", "stop")] {
        let mut reply = final_reply("x");
        reply["done_reason"] = json!(reason);
        let fake = FakeOllama::responding("200 OK", reply.to_string());
        assert_eq!(fake.run("generate", &json!({"prompt": "x"})).object()["finish_reason"], expected);
    }
}

#[test]
fn stream_lines_have_the_answer_so_far_and_the_delta() {
    let fake =
        FakeOllama::streaming(&[partial_reply("2"), partial_reply(" + 2"), partial_reply(" = 4."), final_reply("")]);
    let ran = fake.run("stream", &json!({"prompt": "What is 2+2?", "system_prompt": ""}));
    let lines = ran.lines();
    let seen: Vec<Value> = lines.iter().map(|line| json!([line["content"], line["delta"], line["done"]])).collect();
    let expected =
        json!([["2", "2", false], ["2 + 2", " + 2", false], ["2 + 2 = 4.", " = 4.", false], ["2 + 2 = 4.", "", true]]);
    assert_eq!((json!(seen), ran.code), (expected, Some(0)));
    assert!(lines.iter().all(|line| line["error"] == ""), "{ran:?}");
    let times = lines.iter().map(|line| line["timestamp"].as_str().unwrap());
    assert!(times.into_iter().all(|time| time.contains('T') && time.ends_with('Z')), "{ran:?}");
    let last = &lines[3];
    assert_eq!((&last["tokens_used"], &last["finish_reason"]), (&json!(41), &json!("stop")));
    assert!(lines[0].get("tokens_used").is_none(), "{ran:?}");
    let request = fake.request().body;
    assert_eq!(request, json!({"model": "llama3.2:latest", "prompt": "What is 2+2?", "stream": true}));
}

#[test]
fn thinking_is_not_part_of_the_answer() {
    let think = |text: &str| {
        let mut line = partial_reply("");
        line["thinking"] = json!(text);
        line
    };
    let fake = FakeOllama::streaming(&[think("Hmm, "), think("easy."), partial_reply("4"), final_reply("")]);
    let ran = fake.run("stream", &json!({"prompt": "2+2?"}));
    assert_eq!(ran.lines().pop().unwrap()["content"], "4");
    assert!(!ran.stdout.contains("easy"), "{ran:?}");
    let mut reply = final_reply("4");
    reply["thinking"] = json!("Hmm, easy.");
    let fake = FakeOllama::responding("200 OK", reply.to_string());
    assert_eq!(fake.run("generate", &json!({"prompt": "2+2?"})).object()["content"], "4");
}

#[test]
fn lines_are_printed_at_once_even_when_a_character_is_split_over_two_chunks() {
    let rest = format!("{}\n{}\n", partial_reply(" 你好 🦀"), final_reply(""));
    let (early, late) = rest.as_bytes().split_at(rest.find('好').unwrap() + 1);
    let (early, late) =
        (format!("{}\n", partial_reply("Hé")).into_bytes().into_iter().chain(early.to_vec()), late.to_vec());
    let early: Vec<u8> = early.collect();
    let (resume, wait) = channel::<()>();
    let fake = FakeOllama::new(move |stream| {
        begin_stream(stream);
        send_chunk(stream, &early);
        wait.recv().unwrap();
        send_chunk(stream, &late);
        send_chunk(stream, b"");
    });
    let mut child = fake.start("stream", &json!({"prompt": "x"}));
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    let mut first = String::new();
    stdout.read_line(&mut first).unwrap();
    assert_eq!(serde_json::from_str::<Value>(&first).unwrap()["delta"], "Hé");
    resume.send(()).unwrap();
    let mut others = String::new();
    stdout.read_to_string(&mut others).unwrap();
    let others: Vec<Value> = others.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((&others[0]["delta"], &others[1]["content"]), (&json!(" 你好 🦀"), &json!("Hé 你好 🦀")));
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn http_errors_keep_the_message_of_ollama() {
    let table = [
        ("404 Not Found", r#"{"error":"model 'phi' not found"}"#, Category::NotFound),
        ("400 Bad Request", r#"{"error":"\"phi\" does not support thinking"}"#, Category::Validation),
        ("500 Internal Server Error", r#"{"error":"llama runner process has terminated"}"#, Category::Server),
        ("503 Service Unavailable", r#"{"error":"server busy, please try again"}"#, Category::Server),
        ("429 Too Many Requests", "slow down", Category::RateLimit),
        ("401 Unauthorized", r#"{"error":"unauthorized"}"#, Category::Authentication),
    ];
    for (status, body, category) in table {
        for command in ["generate", "stream"] {
            let fake = FakeOllama::responding(status, body);
            let error = fake.run(command, &json!({"prompt": "x", "config": {"model": "phi"}})).error(1);
            let message =
                serde_json::from_str::<Value>(body).map_or(body.to_owned(), |v| v["error"].as_str().unwrap().into());
            assert!(error.starts_with(&format!("{status}: {message}")), "{error}");
            assert_eq!(classify(&error, &[]), category, "{error}");
            assert_eq!(error.ends_with("try: ollama pull phi"), status.starts_with("404"), "{error}");
        }
    }
}

#[test]
fn content_so_far_is_kept_when_a_stream_fails() {
    let fake = FakeOllama::streaming(&[
        partial_reply("2 +"),
        json!({"error": "an error was encountered while running the model"}),
    ]);
    let ran = fake.run("stream", &json!({"prompt": "x"}));
    assert!(ran.error(1).contains("an error was encountered while running the model"), "{ran:?}");
    let lines = ran.lines();
    assert_eq!((lines.len(), &lines[1]["content"], &lines[1]["delta"]), (2, &json!("2 +"), &json!("")));
}

#[test]
fn stream_fails_when_it_is_cut_off() {
    let between_lines = FakeOllama::streaming(&[partial_reply("2"), partial_reply(" +")]);
    let without_last_chunk = FakeOllama::new(|stream| {
        begin_stream(stream);
        send_chunk(stream, format!("{}\n", partial_reply("2")).as_bytes());
    });
    for fake in [between_lines, without_last_chunk] {
        let ran = fake.run("stream", &json!({"prompt": "x"}));
        assert_eq!(classify(&ran.error(1), &[]), Category::Network, "{ran:?}");
        assert_eq!(ran.lines()[0]["content"], "2");
    }
}

#[test]
fn generate_fails_when_response_is_cut_off_or_not_json() {
    let fake = FakeOllama::new(|stream| {
        use std::io::Write;
        write!(stream, "HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n{{\"response\":").unwrap();
    });
    let error = fake.run("generate", &json!({"prompt": "x"})).error(1);
    assert_eq!(classify(&error, &[]), Category::Network, "{error}");
    let error =
        FakeOllama::responding("200 OK", "<html>hello</html>").run("generate", &json!({"prompt": "x"})).error(1);
    assert!(error.contains("is not Ollama"), "{error}");
}

#[test]
fn network_error_has_a_hint_when_ollama_is_not_running() {
    // The client end of a connection: its port is in use, so no other test gets it, but nothing listens on it.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let closed = client.local_addr().unwrap().to_string();
    for command in ["generate", "stream"] {
        let error = finish(start(&[command], &[("OLLAMA_HOST", &closed)], br#"{"prompt":"x"}"#)).error(1);
        assert!(error.contains("ECONNREFUSED") && error.contains("ollama serve"), "{error}");
        assert_eq!(classify(&error, &[]), Category::Network);
    }
    let health = finish(start(&["health"], &[("OLLAMA_HOST", &closed)], b""));
    assert_eq!(health.code, Some(1));
    assert!(health.stdout.starts_with("Error: connection refused") && health.stderr == health.stdout, "{health:?}");
}

#[test]
fn health_requests_the_version_and_reports_errors() {
    let fake = FakeOllama::responding("200 OK", r#"{"version":"0.12.0"}"#);
    let ran = finish(start(&["health"], &[("OLLAMA_HOST", &fake.host)], b""));
    assert_eq!((ran.code, ran.stdout.as_str(), ran.stderr.as_str()), (Some(0), "OK\n", ""));
    assert_eq!(fake.request().line, "GET /api/version HTTP/1.1");
    let fake = FakeOllama::responding("502 Bad Gateway", "no");
    let ran = finish(start(&["health"], &[("OLLAMA_HOST", &fake.host)], b""));
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(1), "Error: 502 Bad Gateway: no\n"));
    let fake = FakeOllama::responding("200 OK", "<title>Log in</title>");
    let ran = finish(start(&["health"], &[("OLLAMA_HOST", &fake.host)], b""));
    assert!(ran.code == Some(1) && ran.stdout.contains("is not Ollama"), "{ran:?}");
}

#[test]
fn invalid_requests_are_rejected_with_the_reason() {
    let table = [
        ("", "stdin is empty"),
        (" \n", "stdin is empty"),
        ("{\"prompt\":", "EOF while parsing"),
        ("{}", "missing field `prompt`"),
        ("{\"prompt\":7}", "expected a string"),
        ("{\"prompt\":\"\"}", "prompt is empty"),
        ("[1]", "invalid"),
        ("{\"prompt\":\"x\",\"config\":{\"model\":7}}", "config.model is 7"),
        ("{\"prompt\":\"x\"} {\"prompt\":\"y\"}", "trailing characters"),
    ];
    for (stdin, expected) in table {
        for command in ["generate", "stream"] {
            let error = finish(start(&[command], &[], stdin.as_bytes())).error(1);
            assert!(error.contains(expected), "{stdin:?}: {error}");
            assert_eq!(classify(&error, &[]), Category::Validation, "{error}");
        }
    }
}

#[test]
fn usage_is_printed_when_command_is_unknown() {
    for arguments in [&[][..], &["frobnicate"], &["generate", "now"], &[""]] {
        let ran = finish(start(arguments, &[], b""));
        assert!(ran.error(2).contains("usage: ollama-provider generate|stream|health"), "{ran:?}");
    }
    assert_eq!(finish(start(&["--help"], &[], b"")).code, Some(0));
}

#[test]
fn configuration_error_when_host_is_unusable() {
    let error = finish(start(&["generate"], &[("OLLAMA_HOST", "https://box.lan")], br#"{"prompt":"x"}"#)).error(1);
    assert_eq!(classify(&error, &[]), Category::Configuration, "{error}");
}

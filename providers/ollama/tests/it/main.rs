//! The real provider against a fake Ollama.

#![cfg(test)] // all of this is; it says so once more for clippy's `allow-unwrap-in-tests`

mod fake;

use std::io::{BufRead, BufReader, Read};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::channel;

use serde_json::{Value, json};
use trunkline_core::failure::{Category, classify};

use fake::{Fake, begin_stream, finish, send_chunk, start};

/// What Ollama sends at the end, or as a whole.
fn whole(text: &str) -> Value {
    json!({"model": "llama3.2:latest", "created_at": "2025-01-07T10:30:00.1Z", "response": text, "done": true,
        "done_reason": "stop", "context": [1, 2], "total_duration": 4_364_650_667_u64, "prompt_eval_count": 32,
        "eval_count": 9})
}

fn piece(text: &str) -> Value {
    json!({"model": "llama3.2:latest", "created_at": "2025-01-07T10:30:00Z", "response": text, "done": false})
}

#[test]
fn generate_answers_with_one_object() {
    let fake = Fake::answering("200 OK", whole("2 + 2 = 4.").to_string());
    let ran = fake.run("generate", &json!({"prompt": "What is 2+2?"}));
    let mut answer = ran.object();
    let latency = answer["latency"].take();
    assert!(latency.as_u64().is_some_and(|nanoseconds| nanoseconds > 1000), "{latency}");
    let expected = json!({"content": "2 + 2 = 4.", "tokens_used": 41, "input_tokens": 32, "output_tokens": 9,
        "model": "llama3.2:latest", "latency": null, "finish_reason": "stop", "error": "", "provider": "ollama"});
    assert_eq!((answer, ran.code), (expected, Some(0)));
    let asked = fake.asked();
    assert_eq!(asked.line, "POST /api/generate HTTP/1.1");
    assert_eq!(asked.body, json!({"model": "llama3.2:latest", "prompt": "What is 2+2?", "stream": false}));
}

#[test]
fn every_member_of_the_request_has_its_place() {
    let request = json!({
        "prompt": "and 3+3?", "system_prompt": "Be brief.", "max_tokens": 0, "temperature": 0, "top_p": 0.5, "tools": [],
        "context": [{"role": "user", "content": "2+2?"}, {"role": "assistant", "content": "4 \"four\""}],
        "config": {"model": "qwen3:8b", "num_ctx": 8192, "seed": 0, "temperature": 1, "think": false, "keep_alive": "5m",
            "format": "json", "low_vram": false},
        "metadata": {"task_id": "t"}, "a_member_of_the_future": {"x": [1]}
    });
    let fake = Fake::answering("200 OK", whole("6").to_string());
    assert_eq!(fake.run("generate", &request).code, Some(0));
    let expected = json!({
        "model": "qwen3:8b", "stream": false, "system": "Be brief.", "think": false, "keep_alive": "5m", "format": "json",
        "prompt": "[User]\n2+2?\n\n[Assistant]\n4 \"four\"\n\n[User]\nand 3+3?",
        "options": {"num_ctx": 8192, "seed": 0, "low_vram": false, "num_predict": 0, "temperature": 0, "top_p": 0.5}
    });
    assert_eq!(fake.asked().body, expected);
}

#[test]
fn the_environment_names_the_model_that_the_request_does_not() {
    let table = [(json!({"prompt": "x"}), "mistral"), (json!({"prompt": "x", "config": {"model": "phi"}}), "phi")];
    for (request, model) in table {
        let fake = Fake::answering("200 OK", whole("x").to_string());
        let env = [("OLLAMA_HOST", fake.host.as_str()), ("OLLAMA_MODEL", "mistral")];
        finish(start(&["generate"], &env, request.to_string().as_bytes()));
        assert_eq!(fake.asked().body["model"], model);
    }
}

#[test]
fn why_the_model_ended_is_told() {
    for (reason, expected) in [("stop", "stop"), ("length", "length"), ("load", "stop")] {
        let mut reply = whole("x");
        reply["done_reason"] = json!(reason);
        let fake = Fake::answering("200 OK", reply.to_string());
        assert_eq!(fake.run("generate", &json!({"prompt": "x"})).object()["finish_reason"], expected);
    }
}

#[test]
fn stream_tells_the_answer_so_far_and_what_is_new() {
    let fake = Fake::streaming(&[piece("2"), piece(" + 2"), piece(" = 4."), whole("")]);
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
    let asked = fake.asked().body;
    assert_eq!(asked, json!({"model": "llama3.2:latest", "prompt": "What is 2+2?", "stream": true}));
}

#[test]
fn thinking_stays_out_of_the_answer() {
    let think = |text: &str| {
        let mut line = piece("");
        line["thinking"] = json!(text);
        line
    };
    let fake = Fake::streaming(&[think("Hmm, "), think("easy."), piece("4"), whole("")]);
    let ran = fake.run("stream", &json!({"prompt": "2+2?"}));
    assert_eq!(ran.lines().pop().unwrap()["content"], "4");
    assert!(!ran.stdout.contains("easy"), "{ran:?}");
    let mut reply = whole("4");
    reply["thinking"] = json!("Hmm, easy.");
    let fake = Fake::answering("200 OK", reply.to_string());
    assert_eq!(fake.run("generate", &json!({"prompt": "2+2?"})).object()["content"], "4");
}

#[test]
fn a_line_is_out_before_the_next_one_is_in_and_characters_may_be_split() {
    let rest = format!("{}\n{}\n", piece(" 你好 🦀"), whole(""));
    let (early, late) = rest.as_bytes().split_at(rest.find('好').unwrap() + 1);
    let (early, late) = (format!("{}\n", piece("Hé")).into_bytes().into_iter().chain(early.to_vec()), late.to_vec());
    let early: Vec<u8> = early.collect();
    let (go_on, wait) = channel::<()>();
    let fake = Fake::new(move |stream| {
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
    go_on.send(()).unwrap();
    let mut others = String::new();
    stdout.read_to_string(&mut others).unwrap();
    let others: Vec<Value> = others.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((&others[0]["delta"], &others[1]["content"]), (&json!(" 你好 🦀"), &json!("Hé 你好 🦀")));
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn ollamas_errors_are_passed_on_in_its_own_words() {
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
            let fake = Fake::answering(status, body);
            let error = fake.run(command, &json!({"prompt": "x", "config": {"model": "phi"}})).error(1);
            let words =
                serde_json::from_str::<Value>(body).map_or(body.to_owned(), |v| v["error"].as_str().unwrap().into());
            assert!(error.starts_with(&format!("{status}: {words}")), "{error}");
            assert_eq!(classify(&error, &[]), category, "{error}");
            assert_eq!(error.ends_with("try: ollama pull phi"), status.starts_with("404"), "{error}");
        }
    }
}

#[test]
fn an_error_in_the_middle_of_a_stream_keeps_what_was_said() {
    let fake = Fake::streaming(&[piece("2 +"), json!({"error": "an error was encountered while running the model"})]);
    let ran = fake.run("stream", &json!({"prompt": "x"}));
    assert!(ran.error(1).contains("an error was encountered while running the model"), "{ran:?}");
    let lines = ran.lines();
    assert_eq!((lines.len(), &lines[1]["content"], &lines[1]["delta"]), (2, &json!("2 +"), &json!("")));
}

#[test]
fn a_stream_that_is_cut_off_is_a_failure() {
    let whole_lines = Fake::streaming(&[piece("2"), piece(" +")]);
    let torn = Fake::new(|stream| {
        begin_stream(stream);
        send_chunk(stream, format!("{}\n", piece("2")).as_bytes());
    });
    for fake in [whole_lines, torn] {
        let ran = fake.run("stream", &json!({"prompt": "x"}));
        assert_eq!(classify(&ran.error(1), &[]), Category::Network, "{ran:?}");
        assert_eq!(ran.lines()[0]["content"], "2");
    }
}

#[test]
fn an_answer_that_is_cut_off_is_a_failure() {
    let fake = Fake::new(|stream| {
        use std::io::Write;
        write!(stream, "HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n{{\"response\":").unwrap();
    });
    let error = fake.run("generate", &json!({"prompt": "x"})).error(1);
    assert_eq!(classify(&error, &[]), Category::Network, "{error}");
    let error = Fake::answering("200 OK", "<html>hello</html>").run("generate", &json!({"prompt": "x"})).error(1);
    assert!(error.contains("is not Ollama"), "{error}");
}

#[test]
fn nobody_there_is_a_network_failure_with_a_hint() {
    // The calling end of a connection: its port is taken, so that no other test gets it, and nobody listens there.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let caller = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let free = caller.local_addr().unwrap().to_string();
    for command in ["generate", "stream"] {
        let error = finish(start(&[command], &[("OLLAMA_HOST", &free)], br#"{"prompt":"x"}"#)).error(1);
        assert!(error.contains("ECONNREFUSED") && error.contains("ollama serve"), "{error}");
        assert_eq!(classify(&error, &[]), Category::Network);
    }
    let sick = finish(start(&["health"], &[("OLLAMA_HOST", &free)], b""));
    assert_eq!(sick.code, Some(1));
    assert!(sick.stdout.starts_with("Error: connection refused") && sick.stderr == sick.stdout, "{sick:?}");
}

#[test]
fn health_asks_for_nothing_but_a_sign_of_life() {
    let fake = Fake::answering("200 OK", r#"{"version":"0.12.0"}"#);
    let ran = finish(start(&["health"], &[("OLLAMA_HOST", &fake.host)], b""));
    assert_eq!((ran.code, ran.stdout.as_str(), ran.stderr.as_str()), (Some(0), "OK\n", ""));
    assert_eq!(fake.asked().line, "GET /api/version HTTP/1.1");
    let fake = Fake::answering("502 Bad Gateway", "no");
    let ran = finish(start(&["health"], &[("OLLAMA_HOST", &fake.host)], b""));
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(1), "Error: 502 Bad Gateway: no\n"));
    let fake = Fake::answering("200 OK", "<title>Log in</title>");
    let ran = finish(start(&["health"], &[("OLLAMA_HOST", &fake.host)], b""));
    assert!(ran.code == Some(1) && ran.stdout.contains("is not Ollama"), "{ran:?}");
}

#[test]
fn requests_that_make_no_sense() {
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
    for (stdin, said) in table {
        for command in ["generate", "stream"] {
            let error = finish(start(&[command], &[], stdin.as_bytes())).error(1);
            assert!(error.contains(said), "{stdin:?}: {error}");
            assert_eq!(classify(&error, &[]), Category::Validation, "{error}");
        }
    }
}

#[test]
fn commands_that_do_not_exist() {
    for arguments in [&[][..], &["frobnicate"], &["generate", "now"], &[""]] {
        let ran = finish(start(arguments, &[], b""));
        assert!(ran.error(2).contains("usage: ollama-provider generate|stream|health"), "{ran:?}");
    }
    assert_eq!(finish(start(&["--help"], &[], b"")).code, Some(0));
}

#[test]
fn a_host_that_cannot_be_used_is_said() {
    let error = finish(start(&["generate"], &[("OLLAMA_HOST", "https://box.lan")], br#"{"prompt":"x"}"#)).error(1);
    assert_eq!(classify(&error, &[]), Category::Configuration, "{error}");
}

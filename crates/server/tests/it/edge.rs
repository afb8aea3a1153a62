//! Misbehaving connections, and shutdown.

use std::time::Duration;

use tokio::net::TcpStream;
use trunkline_server::{HttpLimits, ServerConfig};

use crate::support::{TestServer, ask_scripted, finished, get, request, soon, text, until};

/// Short timeout for tests of timeouts.
const SHORT: Duration = Duration::from_millis(100);

#[tokio::test]
async fn case_06_connection_is_closed_when_no_request_comes() {
    let server = TestServer::with_limits(HttpLimits { header_read: SHORT, ..HttpLimits::default() }).await;
    for sent in ["", "GET /health HTTP/1.1\r\nHost: loc", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"] {
        let mut client = server.connect().await;
        client.send(sent.as_bytes()).await;
        let answer = client.rest().await;
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 4"), "{sent:?}: {answer}");
    }
}

#[tokio::test]
async fn case_06_stalled_body_is_a_408() {
    let server = TestServer::with_limits(HttpLimits { body_idle: SHORT, ..HttpLimits::default() }).await;
    let half = ask_scripted("").replace("\"hi\"", "");
    let half = half.replacen("Content-Length: ", "Content-Length: 9", 1);
    let reply = server.ask(&half).await;
    assert_eq!((reply.status, reply.json()["error"]["code"].as_str()), (408, Some("request_timeout")), "{reply:?}");
}

#[tokio::test]
async fn case_07_too_large_body_is_refused_while_it_is_sent() {
    let server = TestServer::with_limits(HttpLimits { body: 100_000, ..HttpLimits::default() }).await;
    let head = "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n";
    for length in ["Content-Length: 50000000\r\n\r\n", "Transfer-Encoding: chunked\r\n\r\n2faf080\r\n"] {
        let mut client = server.connect().await;
        client.send(format!("{head}{length}").as_bytes()).await;
        let megabyte = vec![b'x'; 1_000_000];
        for _ in 0..50 {
            client.send(&megabyte).await;
        }
        let reply = client.reply().await;
        assert_eq!((reply.status, reply.header("connection")), (413, Some("close")));
    }
}

#[tokio::test]
async fn case_11_ambiguous_requests_are_refused() {
    let server = TestServer::start(ServerConfig::default()).await;
    let post = |headers: &str, body: &str| {
        format!(
            "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n{headers}\r\n{body}"
        )
    };
    for (request, status) in [
        (post("Content-Length: 2\r\nContent-Length: 3\r\n", "{}"), 400),
        (post("Content-Length: 2\r\nTransfer-Encoding: chunked\r\n", "2\r\n{}\r\n0\r\n\r\n"), 400),
        (post("X-Nul: a\0b\r\n", ""), 400),
        (post("X: a\r\n folded\r\n", ""), 400),
        ("nonsense\r\n\r\n".to_owned(), 400),
    ] {
        let reply = server.ask(&request).await;
        assert_eq!(reply.status, status, "{request:.120} {reply:?}");
    }
    assert!(server.turns().is_empty());
}

#[tokio::test]
async fn case_15_too_many_headers_and_too_large_ones_are_a_431() {
    let server = TestServer::start(ServerConfig::default()).await;
    let many: String = (0..101).map(|n| format!("x-{n}: 1\r\n")).collect();
    for headers in [many, format!("x: {}\r\n", "y".repeat(100_000)), format!("x: {}\r\n", "y".repeat(70_000))] {
        assert_eq!(server.ask(&request("GET", "/health", &headers, "")).await.status, 431, "{headers:.40}");
    }
}

#[tokio::test]
async fn case_05_slow_heads_time_out_while_others_are_served() {
    let limits = HttpLimits { header_read: 5 * SHORT, connections: 300, ..HttpLimits::default() };
    let server = TestServer::with_limits(limits).await;
    let mut slow = Vec::new();
    for _ in 0..250 {
        let mut client = server.connect().await;
        client.send(b"GET /health HTTP/1.1\r\nHost: loc").await;
        slow.push(client);
    }
    assert_eq!(server.ask(&get("/health")).await.status, 200);
    for mut client in slow {
        let answer = client.rest().await;
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 408"), "{answer}");
    }
}

#[tokio::test]
async fn a_connection_serves_several_requests() {
    let server = TestServer::start(ServerConfig::default()).await;
    let mut client = server.connect().await;
    for _ in 0..3 {
        client.send(get("/health").replace("Connection: close\r\n", "").as_bytes()).await;
        client.until("\"waiting\":0}").await;
        client.forget();
    }
}

#[tokio::test]
async fn case_05_connections_are_limited() {
    let server = TestServer::with_limits(HttpLimits { connections: 1, ..HttpLimits::default() }).await;
    let run = server.script();
    let mut first = server.connect().await;
    first.send(ask_scripted(r#","stream":true"#).as_bytes()).await;
    run.send(text("a")).await.unwrap();
    first.until("\"a\"").await;
    let mut second = server.connect().await;
    // An accepted connection would be closed only after the head timeout, which is longer than this.
    let closed = tokio::time::timeout(Duration::from_secs(5), second.rest()).await;
    assert_eq!(closed.expect("closed at once"), "");
    run.send(finished("a")).await.unwrap();
    assert!(first.reply().await.body.ends_with("[DONE]\n\n"));
    // A connection is accepted again once the first one is closed.
    soon(async {
        loop {
            let mut third = server.connect().await;
            third.send(get("/health").as_bytes()).await;
            if third.rest().await.contains("200 OK") {
                break;
            }
        }
    })
    .await;
}

#[tokio::test]
async fn open_answers_finish_during_shutdown() {
    let mut server = TestServer::start(ServerConfig::default()).await;
    let run = server.script();
    let idle = server.connect().await;
    let mut client = server.connect().await;
    client.send(ask_scripted(r#","stream":true"#).as_bytes()).await;
    run.send(text("a")).await.unwrap();
    client.until("\"a\"").await;
    server.stop.gently.cancel();
    // A new connection gets 503 and is closed.
    let mut silent = server.connect().await;
    silent.send(b"GET /hea").await;
    assert_eq!(server.ask(&get("/health")).await.json()["status"], "draining");
    for late in [ask_scripted(""), get("/v1/models")] {
        let reply = server.ask(&late).await;
        assert_eq!((reply.status, reply.header("retry-after")), (503, Some("1")), "{reply:?}");
    }
    run.send(finished("a")).await.unwrap();
    assert!(client.reply().await.body.ends_with("[DONE]\n\n"));
    server.ended().await;
    assert!(TcpStream::connect(server.address).await.is_err());
    drop((idle, silent));
}

#[tokio::test]
async fn open_streams_end_with_an_error_when_the_drain_is_over() {
    let mut server = TestServer::with_limits(HttpLimits { drain: SHORT, ..HttpLimits::default() }).await;
    let (run, other) = (server.script(), server.script());
    let mut client = server.connect().await;
    client.send(ask_scripted(r#","stream":true"#).as_bytes()).await;
    run.send(text("a")).await.unwrap();
    client.until("\"a\"").await;
    let mut waiting = server.connect().await;
    waiting.send(ask_scripted("").as_bytes()).await;
    until(|| server.turns().len() == 2).await;
    server.stop.gently.cancel();
    let reply = client.reply().await;
    assert!(reply.body.contains("\"code\":\"shutting_down\"") && !reply.body.contains("[DONE]"), "{reply:?}");
    let reply = waiting.reply().await;
    assert_eq!((reply.status, reply.header("retry-after")), (503, Some("1")));
    server.ended().await;
    assert!(run.is_closed() && other.is_closed());
}

#[tokio::test]
async fn second_signal_ends_everything_at_once() {
    let mut server = TestServer::start(ServerConfig::default()).await;
    let run = server.script();
    let mut client = server.connect().await;
    client.send(ask_scripted(r#","stream":true"#).as_bytes()).await;
    run.send(text("a")).await.unwrap();
    client.until("\"a\"").await;
    server.stop.gently.cancel();
    server.stop.now.cancel();
    server.ended().await;
    assert!(run.is_closed());
}

#[tokio::test]
async fn request_with_two_framings_is_a_400_and_the_connection_is_closed() {
    let server = TestServer::start(ServerConfig::default()).await;
    let chunked = "2\r\n{}\r\n0\r\n\r\n";
    let smuggled = "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n";
    for headers in [
        "Content-Length: 2\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 2\r\n",
        "Content-Length: 2\r\nContent-Length: 3\r\n",
        "Transfer-Encoding: chunked, identity\r\n",
        "Transfer-Encoding: gzip, chunked\r\n",
        "Transfer-Encoding: chunked, chunked\r\n",
        "Transfer-Encoding: identity\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n",
        "Transfer-Encoding: xchunked\r\n",
        "Transfer-Encoding : chunked\r\n",
        "Content-Length: 2\r\n folded\r\n",
    ] {
        // Also as the second request of a connection.
        for before in ["", smuggled] {
            for target in ["/v1/chat/completions", "/health", "/nowhere"] {
                let mut client = server.connect().await;
                let head =
                    format!("{before}POST {target} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n");
                client.send(format!("{head}{headers}\r\n{chunked}{smuggled}").as_bytes()).await;
                let answers = client.rest().await;
                let statuses: Vec<&str> =
                    answers.split("HTTP/1.1 ").skip(1).filter_map(|answer| answer.get(..3)).collect();
                let expected = if before.is_empty() { vec!["400"] } else { vec!["200", "400"] };
                assert_eq!(statuses, expected, "{headers:?} {target}: {answers}");
            }
        }
    }
    // One framing is accepted, and bytes after a chunked request are not read as another request.
    let mut client = server.connect().await;
    let whole = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n{chunked}{smuggled}"
    );
    client.send(whole.as_bytes()).await;
    let answer = client.rest().await;
    assert!(answer.contains("`model` is missing") && answer.matches("HTTP/1.1 ").count() == 1, "{answer}");
}

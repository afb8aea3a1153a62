//! Minimal HTTP client for measurements: one keep-alive connection, one request at a time.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::sync::Mutex;
use tokio::task::JoinSet;

use super::bare::timed;
use super::samples::Samples;

const CHAT: &str = "/v1/chat/completions";

/// Sends `total` requests, `in_flight` of them concurrently on a connection each, and reads whole answers.
pub(crate) async fn requests(
    address: SocketAddr,
    model: &'static str,
    in_flight: usize,
    total: usize,
) -> Result<Samples> {
    let pool = Arc::new(Mutex::new(connections(address, in_flight).await?));
    timed(in_flight, total, move || {
        let pool = Arc::clone(&pool);
        async move {
            let mut client = pool.lock().await.pop().context("more workers than connections")?;
            client.chat(model).await?;
            pool.lock().await.push(client);
            Ok(())
        }
    })
    .await
}

/// Sends `count` requests to each of several models, one at a time and in turns, so that other work on the machine affects
/// all of them alike. Returns the seconds of each model's requests.
pub(crate) async fn alternating(models: &[(SocketAddr, &str)], count: usize) -> Result<Vec<Samples>> {
    let mut clients = Vec::new();
    for (address, _) in models {
        clients.push(BenchClient::connect(*address).await?);
    }
    let mut samples = vec![Samples::default(); models.len()];
    for round in 0..count {
        for position in 0..models.len() {
            // Another model is the first in each round.
            let index = (position + round) % models.len();
            let began = Instant::now();
            clients[index].chat(models[index].1).await?;
            samples[index].push(began.elapsed().as_secs_f64());
        }
    }
    Ok(samples)
}

/// Starts `count` streamed turns at the same time; returns the seconds to the first token of each.
pub(crate) async fn first_tokens(address: SocketAddr, model: &'static str, count: usize) -> Result<Samples> {
    let mut turns = JoinSet::new();
    for mut client in connections(address, count).await? {
        turns.spawn(async move { client.turn(model, "hi", None).await });
    }
    let mut samples = Samples::default();
    while let Some(turn) = turns.join_next().await {
        samples.push(turn??.first);
    }
    Ok(samples)
}

async fn connections(address: SocketAddr, count: usize) -> Result<Vec<BenchClient>> {
    let mut clients = Vec::new();
    for _ in 0..count {
        clients.push(BenchClient::connect(address).await?);
    }
    Ok(clients)
}

pub(crate) struct BenchClient {
    stream: BufReader<TcpStream>,
    address: SocketAddr,
}

/// Times of a streamed turn.
pub(crate) struct StreamedTurn {
    /// Seconds to the first token, and to the end.
    first: f64,
    total: f64,
    pub(crate) session: Option<String>,
}

impl StreamedTurn {
    /// Seconds to the first token, and to the end.
    pub(crate) fn times(&self) -> (f64, f64) {
        (self.first, self.total)
    }
}

impl BenchClient {
    pub(crate) async fn connect(address: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream: BufReader::new(stream), address })
    }

    pub(crate) async fn get(&mut self, path: &str) -> Result<u16> {
        let head = format!("GET {path} HTTP/1.1\r\nHost: {}\r\n\r\n", self.address);
        self.stream.write_all(head.as_bytes()).await?;
        let (status, length) = self.head().await?;
        self.skip(length).await?;
        Ok(status)
    }

    /// Runs one chat completion and discards the answer.
    pub(crate) async fn chat(&mut self, model: &str) -> Result<()> {
        self.ask(CHAT, &chat_body(model, false)).await
    }

    /// Posts a body, and discards the whole answer.
    pub(crate) async fn ask(&mut self, path: &str, body: &str) -> Result<()> {
        self.send(path, "", body).await?;
        let (status, length) = self.head().await?;
        self.skip(length).await?;
        if status != 200 {
            bail!("status {status} of {path}");
        }
        Ok(())
    }

    /// Runs one chat completion, and returns the answer.
    pub(crate) async fn complete(&mut self, body: &Value) -> Result<Value> {
        self.send(CHAT, "", &body.to_string()).await?;
        let (status, length) = self.head().await?;
        let mut answer = vec![0; length];
        self.stream.read_exact(&mut answer).await?;
        if status != 200 {
            bail!("status {status}: {}", String::from_utf8_lossy(&answer));
        }
        Ok(serde_json::from_slice(&answer)?)
    }

    /// Posts a body that asks for a stream; [`BenchClient::line`] returns its lines.
    pub(crate) async fn open(&mut self, path: &str, body: &str) -> Result<()> {
        self.send(path, "", body).await?;
        let (status, _) = self.head().await?;
        if status != 200 {
            bail!("status {status} of {path}");
        }
        Ok(())
    }

    /// Starts a streamed completion; [`BenchClient::line`] returns its lines.
    pub(crate) async fn stream(&mut self, model: &str) -> Result<()> {
        self.open(CHAT, &chat_body(model, true)).await
    }

    /// Runs one streamed completion to its end.
    pub(crate) async fn turn(&mut self, model: &str, prompt: &str, session: Option<&str>) -> Result<StreamedTurn> {
        let body = json!({"model": model, "stream": true, "messages": [{"role": "user", "content": prompt}]});
        let header = session.map(|session| format!("x-trunkline-session: {session}\r\n")).unwrap_or_default();
        let began = Instant::now();
        self.send(CHAT, &header, &body.to_string()).await?;
        let (status, _) = self.head().await?;
        if status != 200 {
            bail!("status {status}");
        }
        let (mut first, mut session) = (None, None);
        while let Some(line) = self.line().await? {
            let Some(data) = line.strip_prefix("data: ") else { continue };
            if data.trim() == "[DONE]" {
                break;
            }
            let now = began.elapsed().as_secs_f64();
            let frame: Value = serde_json::from_str(data)?;
            if frame["choices"][0]["delta"]["content"].as_str().is_some_and(|text| !text.is_empty()) {
                first.get_or_insert(now);
            }
            if let Some(name) = frame["trunkline"]["session_id"].as_str() {
                session = Some(name.to_owned());
            }
        }
        let first = first.context("an answer without text")?;
        Ok(StreamedTurn { first, total: began.elapsed().as_secs_f64(), session })
    }

    /// Starts to follow the events of a run; returns after the first event.
    pub(crate) async fn follow(&mut self, run: &str) -> Result<()> {
        let head = format!("GET /v1/runs/{run}/events HTTP/1.1\r\nHost: {}\r\n\r\n", self.address);
        self.stream.write_all(head.as_bytes()).await?;
        let (status, _) = self.head().await?;
        if status != 200 {
            bail!("status {status}");
        }
        while !self.line().await?.context("the stream ended")?.starts_with("data: ") {}
        Ok(())
    }

    pub(crate) async fn line(&mut self) -> Result<Option<String>> {
        let mut line = String::new();
        let read = self.stream.read_line(&mut line).await?;
        Ok((read > 0).then_some(line))
    }

    async fn send(&mut self, path: &str, headers: &str, body: &str) -> Result<()> {
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\n{headers}Content-Length: {}\r\n\r\n{body}",
            self.address,
            body.len()
        );
        Ok(self.stream.write_all(head.as_bytes()).await?)
    }

    async fn head(&mut self) -> Result<(u16, usize)> {
        let first = self.line().await?.context("the gateway closed the connection")?;
        let status = first.split(' ').nth(1).context("no status")?.parse()?;
        let mut length = 0;
        loop {
            let line = self.line().await?.context("the response head is incomplete")?.to_lowercase();
            if line == "\r\n" {
                return Ok((status, length));
            }
            if let Some(value) = line.strip_prefix("content-length:") {
                length = value.trim().parse()?;
            }
        }
    }

    async fn skip(&mut self, length: usize) -> Result<()> {
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body).await?;
        Ok(())
    }
}

fn chat_body(model: &str, stream: bool) -> String {
    format!(r#"{{"model":"{model}","stream":{stream},"messages":[{{"role":"user","content":"hi"}}]}}"#)
}

/// Seconds since the timestamp in `<…>` of a line.
pub(crate) fn age(line: &str) -> Option<f64> {
    let (_, rest) = line.split_once('<')?;
    let printed: u128 = rest.split_once('>')?.0.parse().ok()?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?.as_nanos();
    Some(now.saturating_sub(printed) as f64 / 1e9)
}

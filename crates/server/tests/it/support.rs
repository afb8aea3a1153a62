//! A server for one test, a client that sends raw bytes, and a scripted engine.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;
use trunkline_core::event::{Answer, Event, Finish, Usage};
use trunkline_core::turn::Turn;
use trunkline_engine::{Depth, Explanation, HealthReport, StartError, Status};
use trunkline_server::{Door, HttpLimits, RunEvents, ServerConfig, ServerShutdown, serve};

/// Timeout of everything that a test waits for.
const TEST_TIMEOUT: Duration = Duration::from_secs(20);

pub(crate) async fn soon<T>(what: impl Future<Output = T>) -> T {
    timeout(TEST_TIMEOUT, what).await.expect("it did not happen in time")
}

/// Polls until another task has made the condition true.
pub(crate) async fn until(happened: impl Fn() -> bool) {
    soon(async {
        while !happened() {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

/// An engine with scripted runs: `scripted` takes the next script, `panic` panics, other models are unknown.
#[derive(Default)]
pub(crate) struct Scripts {
    waiting: Mutex<VecDeque<mpsc::Receiver<Event>>>,
    turns: Mutex<Vec<Turn>>,
}

pub(crate) struct Script(mpsc::Receiver<Event>);

impl Door for Scripts {
    type Run = Script;
    type Feed = trunkline_engine::Follow;

    fn models(&self) -> Vec<String> {
        vec!["scripted".into(), "panic".into(), "org/name:tag".into()]
    }

    async fn start(&self, turn: Turn) -> Result<Script, StartError> {
        let model = turn.model.clone();
        self.turns.lock().unwrap().push(turn);
        match model.as_str() {
            "scripted" => Ok(Script(self.waiting.lock().unwrap().pop_front().unwrap())),
            "panic" => panic!("as asked"),
            _ => Err(StartError::UnknownModel { near: vec!["scripted".into()], models: self.models(), cli: None }),
        }
    }

    fn explain(&self, model: &str) -> Option<Explanation> {
        (model == "org/name:tag").then(|| Explanation {
            model: model.to_owned(),
            alias: None,
            candidates: Vec::new(),
            max_retries: 2,
            retry_on: Vec::new(),
            fallback_on: Vec::new(),
        })
    }

    async fn health(&self, depth: Depth) -> HealthReport {
        let status = if depth == Depth::Probe { Status::Ok } else { Status::Down };
        HealthReport { status, age_ms: 0, providers: Vec::new() }
    }
}

impl RunEvents for Script {
    fn id(&self) -> &str {
        "run-1"
    }

    fn provider(&self) -> &str {
        "fake"
    }

    fn attempts(&self) -> usize {
        1
    }

    async fn next(&mut self) -> Option<Event> {
        self.0.recv().await
    }
}

pub(crate) fn text(delta: &str) -> Event {
    Event::Text { delta: delta.into() }
}

pub(crate) fn finished(content: &str) -> Event {
    Event::Finished(Answer::new(content, Usage::default(), Finish::Stop))
}

pub(crate) struct TestServer {
    pub(crate) address: SocketAddr,
    pub(crate) stop: ServerShutdown,
    scripts: Arc<Scripts>,
    serving: JoinSet<()>,
}

impl TestServer {
    pub(crate) async fn start(config: ServerConfig) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, scripts) = (ServerShutdown::default(), Arc::new(Scripts::default()));
        let mut serving = JoinSet::new();
        serving.spawn(serve(listener, config, Arc::clone(&scripts), stop.clone()));
        Self { address, stop, scripts, serving }
    }

    pub(crate) async fn with_limits(limits: HttpLimits) -> Self {
        Self::start(ServerConfig { limits, ..ServerConfig::default() }).await
    }

    /// Returns the sender of the events of the next run of `scripted`.
    pub(crate) fn script(&self) -> mpsc::Sender<Event> {
        let (sender, receiver) = mpsc::channel(64);
        self.scripts.waiting.lock().unwrap().push_back(receiver);
        sender
    }

    pub(crate) fn turns(&self) -> Vec<Turn> {
        self.scripts.turns.lock().unwrap().clone()
    }

    pub(crate) async fn connect(&self) -> Client {
        Client { socket: soon(TcpStream::connect(self.address)).await.unwrap(), read: Vec::new() }
    }

    /// Sends one request on a new connection.
    pub(crate) async fn ask(&self, request: &str) -> Reply {
        let mut client = self.connect().await;
        client.send(request.as_bytes()).await;
        client.reply().await
    }

    /// Waits until `serve` has returned.
    pub(crate) async fn ended(&mut self) {
        soon(self.serving.join_next()).await.unwrap().unwrap();
    }
}

/// A raw request that closes the connection after it.
pub(crate) fn request(method: &str, target: &str, headers: &str, body: &str) -> String {
    let length = if body.is_empty() { String::new() } else { format!("Content-Length: {}\r\n", body.len()) };
    format!("{method} {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{length}{headers}\r\n{body}")
}

pub(crate) fn get(target: &str) -> String {
    request("GET", target, "", "")
}

pub(crate) fn chat(body: &str) -> String {
    request("POST", "/v1/chat/completions", "Content-Type: application/json\r\n", body)
}

pub(crate) fn ask_scripted(members: &str) -> String {
    chat(&format!(r#"{{"model":"scripted","messages":[{{"role":"user","content":"hi"}}]{members}}}"#))
}

pub(crate) struct Client {
    socket: TcpStream,
    read: Vec<u8>,
}

impl Client {
    /// Sends bytes. An error is ignored, because the server may have stopped reading.
    pub(crate) async fn send(&mut self, bytes: &[u8]) {
        let _ = soon(self.socket.write_all(bytes)).await;
    }

    /// Reads until `needle` has come, and returns everything read.
    pub(crate) async fn until(&mut self, needle: &str) -> String {
        loop {
            let so_far = String::from_utf8_lossy(&self.read).into_owned();
            if so_far.contains(needle) {
                return so_far;
            }
            self.more().await;
        }
    }

    /// Reads the next bytes.
    pub(crate) async fn more(&mut self) {
        assert!(soon(self.socket.read_buf(&mut self.read)).await.unwrap() > 0, "closed");
    }

    pub(crate) fn forget(&mut self) {
        self.read.clear();
    }

    /// Reads until the server closes the connection.
    pub(crate) async fn rest(&mut self) -> String {
        while soon(self.socket.read_buf(&mut self.read)).await.is_ok_and(|count| count > 0) {}
        String::from_utf8(std::mem::take(&mut self.read)).unwrap()
    }

    pub(crate) async fn reply(&mut self) -> Reply {
        Reply::parse(&self.rest().await)
    }
}

#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    head: String,
    pub(crate) body: String,
}

impl Reply {
    fn parse(raw: &str) -> Self {
        let (head, body) = raw.split_once("\r\n\r\n").unwrap_or_else(|| panic!("not a response: {raw:?}"));
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let mut reply = Self { status, head: head.to_owned(), body: body.to_owned() };
        if reply.header("transfer-encoding") == Some("chunked") {
            reply.body = unchunk(body);
        }
        reply
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().filter_map(|line| line.split_once(": ")).find(|(key, _)| *key == name).map(|(_, value)| value)
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

fn unchunk(mut body: &str) -> String {
    let mut whole = String::new();
    loop {
        let (length, rest) = body.split_once("\r\n").expect("a body that ends with an empty chunk");
        let length = usize::from_str_radix(length, 16).unwrap();
        if length == 0 {
            return whole;
        }
        whole.push_str(&rest[..length]);
        body = &rest[length + 2..];
    }
}

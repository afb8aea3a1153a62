//! Clients of a round: some read to the end, some disconnect, some read slowly, some send the same request twice.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread::{JoinHandle, sleep};
use std::time::{Duration, Instant};

use fastrand::Rng;
use serde_json::{Value, json};

use super::world::TortureWorld;

/// Limit for a request; after it, the client counts as hung.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(45);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ClientBehavior {
    /// Reads the stream to its end.
    Reads,
    /// Requests an answer that is not streamed.
    Whole,
    /// Disconnects after some bytes.
    Disconnects,
    /// Reads a few bytes at a time.
    ReadsSlowly,
    /// Sends the same request with the same idempotency key on two connections.
    SendsTwice,
}

/// Request of a client, and what it received.
#[derive(Debug, Default)]
pub(super) struct ClientRecord {
    /// Name of the file that the agent writes before it prints anything.
    pub(super) work: String,
    /// Ids of the runs, one for each connection.
    pub(super) runs: Vec<String>,
    /// Numbers of the words that arrived, for each connection.
    pub(super) words: Vec<Vec<u32>>,
    pub(super) expected_words: u32,
    /// The answer was not streamed.
    pub(super) whole: bool,
    pub(super) status: u16,
    pub(super) end: ClientEnd,
}

/// End of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum ClientEnd {
    /// The connection ended before the answer was complete.
    #[default]
    Cut,
    Answered,
    Refused,
    Failed,
    /// The client disconnected.
    Left,
    /// The request timed out.
    Hung,
}

pub(super) struct TortureLoad {
    clients: Vec<JoinHandle<ClientRecord>>,
}

impl TortureLoad {
    pub(super) fn start(world: &TortureWorld, round: u32, requests: usize, rng: &mut Rng) -> Self {
        let clients = (0..requests).map(|number| {
            let mut rng = rng.fork();
            let (address, work) = (world.address, format!("w{round}-{number}"));
            std::thread::spawn(move || client(address, work, &mut rng))
        });
        Self { clients: clients.collect() }
    }

    /// Waits for all clients.
    pub(super) fn join(self) -> Vec<ClientRecord> {
        self.clients.into_iter().map(|client| client.join().unwrap_or_default()).collect()
    }
}

fn client(address: SocketAddr, work: String, rng: &mut Rng) -> ClientRecord {
    let behaviors = [
        ClientBehavior::Reads,
        ClientBehavior::Reads,
        ClientBehavior::Whole,
        ClientBehavior::Disconnects,
        ClientBehavior::ReadsSlowly,
        ClientBehavior::SendsTwice,
    ];
    let behavior = behaviors[rng.usize(..behaviors.len())];
    let words = rng.u32(1..60);
    let task = json!({
        "work": work, "words": words, "pause_ms": rng.u64(0..25),
        "daemon": rng.u8(..4) == 0, "stubborn": rng.u8(..6) == 0, "crash": rng.u8(..8) == 0,
    });
    let model = if rng.u8(..4) == 0 { "detached" } else { "work" };
    let stream = behavior != ClientBehavior::Whole;
    let body = json!({"model": model, "stream": stream, "messages": [{"role": "user", "content": task.to_string()}]});
    let mut record =
        ClientRecord { work: work.clone(), expected_words: words, whole: !stream, ..ClientRecord::default() };
    sleep(Duration::from_millis(rng.u64(..300)));
    let key = if behavior == ClientBehavior::SendsTwice { Some(work.as_str()) } else { None };
    let first = TortureConnection::open(address, &body, key);
    let second = key.map(|key| TortureConnection::open(address, &body, Some(key)));
    for connection in [Some(first), second].into_iter().flatten().flatten() {
        connection.read(behavior, rng, &mut record);
    }
    record
}

struct TortureConnection(TcpStream);

impl TortureConnection {
    /// Sends the request; `None` if the gateway does not accept connections at the moment.
    fn open(address: SocketAddr, body: &Value, key: Option<&str>) -> Option<Self> {
        let body = body.to_string();
        let key = key.map(|key| format!("idempotency-key: {key}\r\n")).unwrap_or_default();
        let mut stream = TcpStream::connect(address).ok()?;
        stream.set_read_timeout(Some(Duration::from_millis(200))).ok()?;
        let head = format!(
            "POST /v1/chat/completions HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\ncontent-type: application/json\r\n\
             {key}content-length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body.as_bytes())).ok()?;
        Some(Self(stream))
    }

    fn read(mut self, behavior: ClientBehavior, rng: &mut Rng, record: &mut ClientRecord) {
        let max_bytes = if behavior == ClientBehavior::Disconnects { rng.usize(1..4000) } else { usize::MAX };
        let deadline = Instant::now() + REQUEST_TIMEOUT;
        let (mut bytes, mut piece) = (Vec::new(), [0; 4096]);
        let size = if behavior == ClientBehavior::ReadsSlowly { 64 } else { piece.len() };
        record.end = loop {
            if bytes.len() >= max_bytes {
                break ClientEnd::Left;
            }
            if Instant::now() >= deadline {
                break ClientEnd::Hung;
            }
            if behavior == ClientBehavior::ReadsSlowly {
                sleep(Duration::from_millis(2));
            }
            match self.0.read(&mut piece[..size]) {
                Ok(0) => break ClientEnd::Cut,
                Ok(read) => bytes.extend_from_slice(&piece[..read]),
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
                Err(_) => break ClientEnd::Cut,
            }
        };
        drop(self.0);
        let text = String::from_utf8_lossy(&bytes);
        record.status = text.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
        let run = text.lines().find_map(|line| line.strip_prefix("x-trunkline-run: "));
        record.runs.extend(run.map(|run| run.trim().to_owned()));
        if record.end == ClientEnd::Cut {
            record.end = classify(record.status, &text);
        }
        record.words.push(words(&text, &record.work));
    }
}

/// Classifies a reply that was read until the connection ended.
fn classify(status: u16, text: &str) -> ClientEnd {
    match status {
        0 => ClientEnd::Cut,
        200 if text.contains("data: [DONE]") || text.contains("\"finish_reason\":\"stop\"") => ClientEnd::Answered,
        200 if text.contains("\"error\"") => ClientEnd::Failed,
        200 => ClientEnd::Cut,
        _ if text.contains("\"CLI failed: ") => ClientEnd::Failed,
        _ => ClientEnd::Refused,
    }
}

/// Numbers of the words `<work:number>` in a text, in order.
pub(super) fn words(text: &str, work: &str) -> Vec<u32> {
    let prefix = format!("<{work}:");
    text.split(&prefix).skip(1).filter_map(|rest| rest.split_once('>')?.0.parse().ok()).collect()
}

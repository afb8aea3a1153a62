//! Clients: those that read to the end, those that hang up, those that hardly read, those that ask twice.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread::{JoinHandle, sleep};
use std::time::{Duration, Instant};

use fastrand::Rng;
use serde_json::{Value, json};

use super::world::World;

/// A request that takes longer has hung.
const PATIENCE: Duration = Duration::from_secs(45);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Manner {
    /// Reads the stream to its end.
    Reads,
    /// One answer in one piece.
    Whole,
    /// Leaves after some bytes.
    HangsUp,
    /// A few bytes at a time.
    Dawdles,
    /// The same request with the same key, on two connections.
    AsksTwice,
}

/// What a client asked for, and what it got.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// The name of the work, which is a file that the agent writes before it says anything.
    pub(super) work: String,
    /// The names of the runs it was told of: two only if it asked twice.
    pub(super) runs: Vec<String>,
    /// The numbers of the words it was shown, on each connection.
    pub(super) words: Vec<Vec<u32>>,
    /// How many there were to be.
    pub(super) wanted: u32,
    /// It asked for one answer in one piece.
    pub(super) whole: bool,
    pub(super) status: u16,
    pub(super) end: End,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum End {
    /// The connection ended without one.
    #[default]
    Cut,
    Answered,
    Refused,
    Failed,
    /// The client left.
    Left,
    /// It waited in vain.
    Hung,
}

pub(super) struct Load {
    clients: Vec<JoinHandle<Seen>>,
}

impl Load {
    pub(super) fn start(world: &World, round: u32, requests: usize, rng: &mut Rng) -> Self {
        let clients = (0..requests).map(|number| {
            let mut rng = rng.fork();
            let (address, work) = (world.address, format!("w{round}-{number}"));
            std::thread::spawn(move || client(address, work, &mut rng))
        });
        Self { clients: clients.collect() }
    }

    pub(super) fn end(self) -> Vec<Seen> {
        self.clients.into_iter().map(|client| client.join().unwrap_or_default()).collect()
    }
}

fn client(address: SocketAddr, work: String, rng: &mut Rng) -> Seen {
    let manners = [Manner::Reads, Manner::Reads, Manner::Whole, Manner::HangsUp, Manner::Dawdles, Manner::AsksTwice];
    let manner = manners[rng.usize(..manners.len())];
    let words = rng.u32(1..60);
    let task = json!({
        "work": work, "words": words, "pause_ms": rng.u64(0..25),
        "daemon": rng.u8(..4) == 0, "stubborn": rng.u8(..6) == 0, "crash": rng.u8(..8) == 0,
    });
    let model = if rng.u8(..4) == 0 { "detached" } else { "work" };
    let stream = manner != Manner::Whole;
    let body = json!({"model": model, "stream": stream, "messages": [{"role": "user", "content": task.to_string()}]});
    let mut seen = Seen { work: work.clone(), wanted: words, whole: !stream, ..Seen::default() };
    sleep(Duration::from_millis(rng.u64(..300)));
    let key = if manner == Manner::AsksTwice { Some(work.as_str()) } else { None };
    let first = Connection::open(address, &body, key);
    let second = key.map(|key| Connection::open(address, &body, Some(key)));
    for connection in [Some(first), second].into_iter().flatten().flatten() {
        connection.read(manner, rng, &mut seen);
    }
    seen
}

struct Connection(TcpStream);

impl Connection {
    /// None if there is nobody to talk to just now.
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

    fn read(mut self, manner: Manner, rng: &mut Rng, seen: &mut Seen) {
        let enough = if manner == Manner::HangsUp { rng.usize(1..4000) } else { usize::MAX };
        let until = Instant::now() + PATIENCE;
        let (mut bytes, mut piece) = (Vec::new(), [0; 4096]);
        let size = if manner == Manner::Dawdles { 64 } else { piece.len() };
        seen.end = loop {
            if bytes.len() >= enough {
                break End::Left;
            }
            if Instant::now() >= until {
                break End::Hung;
            }
            if manner == Manner::Dawdles {
                sleep(Duration::from_millis(2));
            }
            match self.0.read(&mut piece[..size]) {
                Ok(0) => break End::Cut,
                Ok(read) => bytes.extend_from_slice(&piece[..read]),
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
                Err(_) => break End::Cut,
            }
        };
        drop(self.0);
        let text = String::from_utf8_lossy(&bytes);
        seen.status = text.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
        let run = text.lines().find_map(|line| line.strip_prefix("x-trunkline-run: "));
        seen.runs.extend(run.map(|run| run.trim().to_owned()));
        if seen.end == End::Cut {
            seen.end = ending(seen.status, &text);
        }
        seen.words.push(words(&text, &seen.work));
    }
}

/// How a reply ended that was read until there was no more.
fn ending(status: u16, text: &str) -> End {
    match status {
        0 => End::Cut,
        200 if text.contains("data: [DONE]") || text.contains("\"finish_reason\":\"stop\"") => End::Answered,
        200 if text.contains("\"error\"") => End::Failed,
        200 => End::Cut,
        _ if text.contains("\"CLI failed: ") => End::Failed,
        _ => End::Refused,
    }
}

/// The numbers of the words `<work:number>`, in the order in which they came.
pub(super) fn words(text: &str, work: &str) -> Vec<u32> {
    let mark = format!("<{work}:");
    text.split(&mark).skip(1).filter_map(|rest| rest.split_once('>')?.0.parse().ok()).collect()
}

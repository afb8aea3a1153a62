//! The client of a round: sends one turn, in one of the forms of an answer, and notes when it has read the last byte.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use super::plan::AnswerForm;
use super::received::{Received, ReceivedEnd};
use crate::conformance::http::{HttpMessage, messages};

/// Limit for the next byte of a reply.
const READ_TIMEOUT: Duration = Duration::from_secs(20);

/// Interval between two readings of a row.
const POLL_INTERVAL: Duration = Duration::from_micros(500);

/// A turn that can be sent several times, with the same bytes.
#[derive(Debug, Clone)]
pub(super) struct TurnRequest {
    /// Name by which the fake agent, the row and the answer can be recognised.
    pub(super) work: String,
    pub(super) form: AnswerForm,
    pub(super) key: Option<String>,
    /// Session that the request names.
    pub(super) session: Option<String>,
    /// Earlier messages.
    pub(super) history: Vec<Value>,
    /// Task of the fake agent.
    pub(super) task: String,
    /// Time at which the fake agent ends its answer.
    pub(super) answer_at: Instant,
}

impl TurnRequest {
    pub(super) fn new(work: &str, form: AnswerForm, delay: Duration, words: u32) -> Self {
        let answer_at = SystemTime::now() + delay;
        let nanos = answer_at.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos());
        let task = json!({"work": work, "words": words, "answer_at": u64::try_from(nanos).unwrap_or(0)});
        Self {
            work: work.to_owned(),
            form,
            key: None,
            session: None,
            history: Vec::new(),
            task: task.to_string(),
            answer_at: Instant::now() + delay,
        }
    }

    /// A whole answer that comes as soon as possible.
    pub(super) fn at_once(work: &str) -> Self {
        Self::new(work, AnswerForm::Whole, Duration::ZERO, 3)
    }

    /// The message of this turn, as a client repeats it in its history.
    pub(super) fn message(&self) -> Value {
        json!({"role": "user", "content": self.task})
    }

    /// Sends the turn and reads until the last byte, or until the connection ends.
    pub(super) fn send(&self, address: SocketAddr) -> Received {
        let request = self.request(address);
        match self.form {
            AnswerForm::Whole => exchange(address, &request, is_json).received(Received::whole),
            AnswerForm::Stream => exchange(address, &request, is_done).received(Received::stream),
            AnswerForm::Accepted => exchange(address, &request, is_json).received(Received::accepted),
            AnswerForm::Events => follow(address, exchange(address, &request, is_json).received(Received::accepted)),
            AnswerForm::Row => poll(address, exchange(address, &request, is_json).received(Received::accepted)),
        }
    }

    fn request(&self, address: SocketAddr) -> String {
        let messages: Vec<Value> = self.history.iter().cloned().chain([self.message()]).collect();
        let stream = self.form == AnswerForm::Stream;
        let body = json!({"model": "fake", "stream": stream, "messages": messages}).to_string();
        let header = |name: &str, value: &Option<String>| {
            value.as_ref().map(|value| format!("{name}: {value}\r\n")).unwrap_or_default()
        };
        let prefer = match self.form {
            AnswerForm::Events | AnswerForm::Row | AnswerForm::Accepted => "prefer: respond-async\r\n",
            AnswerForm::Whole | AnswerForm::Stream => "",
        };
        format!(
            "POST /v1/chat/completions HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\
             content-type: application/json\r\n{}{}{prefer}content-length: {}\r\n\r\n{body}",
            header("idempotency-key", &self.key),
            header("x-trunkline-session", &self.session),
            body.len()
        )
    }
}

/// Reads the events of an accepted run to the end.
fn follow(address: SocketAddr, accepted: Received) -> Received {
    let Some(run) = accepted.run.clone() else { return accepted };
    let events = exchange(address, &get_request(address, &format!("/v1/runs/{run}/events")), is_end_of_log);
    Received { run: Some(run), accepted: true, ..events.received(Received::events) }
}

/// Reads the row of an accepted run until the run has ended.
fn poll(address: SocketAddr, accepted: Received) -> Received {
    let Some(run) = accepted.run.clone() else { return accepted };
    let deadline = Instant::now() + READ_TIMEOUT;
    loop {
        let row = exchange(address, &get_request(address, &format!("/v1/runs/{run}")), is_json);
        let received = Received { run: Some(run.clone()), accepted: true, ..row.received(Received::row) };
        let waits = received.end == ReceivedEnd::Waiting;
        if !waits || Instant::now() >= deadline {
            return if waits { Received { end: ReceivedEnd::Hung, ..received } } else { received };
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}

/// Sends a GET and reads the JSON of the reply.
pub(super) fn get(address: SocketAddr, path: &str) -> Exchange {
    exchange(address, &get_request(address, path), is_json)
}

/// Reads the log of a run to its last event.
pub(super) fn get_events(address: SocketAddr, run: &str) -> Exchange {
    exchange(address, &get_request(address, &format!("/v1/runs/{run}/events")), is_end_of_log)
}

fn get_request(address: SocketAddr, path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n")
}

/// A reply, as far as it was received.
#[derive(Debug, Default)]
pub(super) struct Exchange {
    pub(super) reply: HttpMessage,
    /// Time of the last byte. `None` if the reply is incomplete.
    pub(super) last_byte: Option<Instant>,
    /// No byte came for a long time.
    pub(super) hung: bool,
    connection: Option<TcpStream>,
}

impl Exchange {
    /// Interprets the reply, complete or not.
    fn received(self, read: impl FnOnce(&HttpMessage) -> Received) -> Received {
        let received = read(&self.reply);
        let end = match (self.hung, self.last_byte) {
            (true, _) => ReceivedEnd::Hung,
            (false, None) => ReceivedEnd::Cut,
            (false, Some(_)) => received.end,
        };
        let accepted = received.accepted && self.last_byte.is_some();
        Received { end, accepted, last_byte: self.last_byte, connection: self.connection, ..received }
    }
}

/// Sends a request and reads until `is_complete`, or until the connection ends. The end of the connection comes later than
/// the last byte, so a complete reply does not wait for it.
fn exchange(address: SocketAddr, request: &str, is_complete: impl Fn(&HttpMessage) -> bool) -> Exchange {
    let mut exchange = Exchange::default();
    let connect = || {
        let mut connection = TcpStream::connect(address)?;
        connection.set_nodelay(true)?;
        connection.set_read_timeout(Some(READ_TIMEOUT))?;
        connection.write_all(request.as_bytes())?;
        std::io::Result::Ok(connection)
    };
    // The gateway may be dead.
    let Ok(mut connection) = connect() else { return exchange };
    let (mut bytes, mut piece) = (Vec::new(), [0; 16 * 1024]);
    loop {
        match connection.read(&mut piece) {
            Ok(0) => break,
            Ok(read) => bytes.extend_from_slice(&piece[..read]),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                exchange.hung = true;
                break;
            }
            Err(_) => break,
        }
        let now = Instant::now();
        exchange.reply = messages(&bytes, |_| true).into_iter().next().unwrap_or_default();
        if is_complete(&exchange.reply) {
            exchange.last_byte = Some(now);
            break;
        }
    }
    exchange.connection = Some(connection);
    exchange
}

/// Whether the body is JSON: JSON that is cut off is not.
fn is_json(reply: &HttpMessage) -> bool {
    serde_json::from_slice::<Value>(&reply.body).is_ok()
}

/// Whether a stream has ended with `[DONE]`, or the reply is an error instead of a stream.
fn is_done(reply: &HttpMessage) -> bool {
    reply.body.ends_with(b"data: [DONE]\n\n") || is_json(reply)
}

/// Whether the last event of a run has arrived, or the reply is an error.
fn is_end_of_log(reply: &HttpMessage) -> bool {
    let is_end = |frame: &Value| matches!(frame["event"]["type"].as_str(), Some("finished" | "failed"));
    // A log without events is a 204.
    reply.status() == 204
        || is_json(reply)
        || (reply.body.ends_with(b"\n\n") && reply.frames().last().is_some_and(is_end))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(body: &str) -> HttpMessage {
        HttpMessage { head: "HTTP/1.1 200 OK".into(), body: body.into() }
    }

    #[test]
    fn reply_is_complete_only_with_its_last_byte() {
        for (body, complete) in [("", false), ("{\"a\": [1", false), ("{\"a\": [1]}", true)] {
            assert_eq!(is_json(&reply(body)), complete, "{body}");
        }
        let error = "{\"error\": {}}";
        for (body, done) in
            [("data: {}\n\n", false), ("data: [DONE]\n", false), ("data: [DONE]\n\n", true), (error, true)]
        {
            assert_eq!(is_done(&reply(body)), done, "{body}");
        }
        let finished = "id: 1\ndata: {\"event\":{\"type\":\"finished\"}}";
        for (body, end) in [
            ("data: {\"event\":{\"type\":\"text\"}}\n\n", false),
            (finished, false),
            (&format!("{finished}\n\n"), true),
            (error, true),
        ] {
            assert_eq!(is_end_of_log(&reply(body)), end, "{body}");
        }
    }

    #[test]
    fn repeated_request_has_the_same_bytes() {
        let request = TurnRequest { key: Some("k".into()), ..TurnRequest::at_once("w") };
        let address = ([127, 0, 0, 1], 80).into();
        assert_eq!(request.request(address), request.clone().request(address));
        assert!(request.request(address).contains("\r\nidempotency-key: k\r\n"));
        assert!(!request.request(address).contains("prefer"));
    }
}

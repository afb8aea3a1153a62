//! Parts of a turn that a client has received.

use std::net::TcpStream;
use std::time::Instant;

use serde_json::Value;

use crate::conformance::http::HttpMessage;

/// State of an answer when the client stopped reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum ReceivedEnd {
    /// The connection ended before the answer was complete.
    #[default]
    Cut,
    /// The answer is complete.
    Complete,
    /// The reply is complete and says that there is no answer.
    Failed,
    /// The reply is complete and says that the run is in progress.
    Waiting,
    /// No byte came for a long time.
    Hung,
}

#[derive(Debug, Default)]
pub(super) struct Received {
    pub(super) end: ReceivedEnd,
    pub(super) status: u16,
    /// The client has read a 202: the run was promised.
    pub(super) accepted: bool,
    pub(super) run: Option<String>,
    /// The gateway's id of the session.
    pub(super) session: Option<String>,
    /// Session data in the reply: `resumed`, `native` and so on.
    pub(super) resumption: Value,
    /// The text of the answer, if the reply has one.
    pub(super) text: Option<String>,
    /// The reply says that it repeats an earlier one.
    pub(super) replayed: bool,
    /// The body of an error.
    pub(super) error: String,
    pub(super) last_byte: Option<Instant>,
    /// The connection, as long as the client keeps it open.
    pub(super) connection: Option<TcpStream>,
}

impl Received {
    pub(super) fn is_complete(&self) -> bool {
        self.end == ReceivedEnd::Complete
    }

    pub(super) fn whole(reply: &HttpMessage) -> Self {
        let body = reply.json();
        let answered = reply.status() == 200;
        let head = Self::head(reply);
        Self {
            end: if answered { ReceivedEnd::Complete } else { ReceivedEnd::Failed },
            text: string(&body["choices"][0]["message"]["content"]).filter(|_| answered),
            session: string(&body["trunkline"]["session_id"]).or(head.session),
            resumption: body["trunkline"]["session"].clone(),
            ..head
        }
    }

    pub(super) fn stream(reply: &HttpMessage) -> Self {
        if reply.status() != 200 {
            return Self { end: ReceivedEnd::Failed, ..Self::head(reply) };
        }
        let frames = reply.frames();
        let text = frames.iter().filter_map(|frame| frame["choices"][0]["delta"]["content"].as_str()).collect();
        let trace = frames.iter().rev().find(|frame| frame["trunkline"].is_object());
        let trace = trace.map(|frame| frame["trunkline"].clone()).unwrap_or_default();
        let failed = frames.iter().any(|frame| frame["error"].is_object());
        let head = Self::head(reply);
        Self {
            end: if failed { ReceivedEnd::Failed } else { ReceivedEnd::Complete },
            text: Some(text).filter(|_| !failed),
            session: string(&trace["session_id"]).or(head.session),
            resumption: trace["session"].clone(),
            ..head
        }
    }

    /// A 202. Whether the answer follows is not known yet.
    pub(super) fn accepted(reply: &HttpMessage) -> Self {
        let accepted = reply.status() == 202;
        Self {
            end: if accepted { ReceivedEnd::Waiting } else { ReceivedEnd::Failed },
            accepted,
            run: string(&reply.json()["id"]).filter(|_| accepted),
            ..Self::head(reply)
        }
    }

    /// The events of a run.
    pub(super) fn events(reply: &HttpMessage) -> Self {
        let frames = reply.frames();
        let resumption = frames.iter().rev().map(|frame| &frame["by"]["session"]).find(|session| session.is_object());
        let last = frames.last().map(|frame| frame["event"].clone()).unwrap_or_default();
        let finished = last["type"] == "finished";
        Self {
            end: if finished { ReceivedEnd::Complete } else { ReceivedEnd::Failed },
            text: string(&last["content"]).filter(|_| finished),
            session: resumption.and_then(|session| string(&session["id"])),
            resumption: resumption.cloned().unwrap_or_default(),
            ..Self::head(reply)
        }
    }

    /// The row of a run, which does not contain the answer.
    pub(super) fn row(reply: &HttpMessage) -> Self {
        let row = reply.json();
        let end = match row["state"].as_str() {
            Some("finished") => ReceivedEnd::Complete,
            Some("queued" | "running") => ReceivedEnd::Waiting,
            Some(_) | None => ReceivedEnd::Failed,
        };
        Self { end, session: string(&row["session"]), ..Self::head(reply) }
    }

    fn head(reply: &HttpMessage) -> Self {
        let header = |name: &str| reply.header(name).map(str::to_owned);
        Self {
            status: reply.status(),
            run: header("x-trunkline-run"),
            session: header("x-trunkline-session"),
            replayed: header("idempotent-replayed").is_some(),
            error: if reply.status() >= 300 { reply.text() } else { String::new() },
            ..Self::default()
        }
    }
}

fn string(value: &Value) -> Option<String> {
    value.as_str().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(head: &str, body: &str) -> HttpMessage {
        HttpMessage { head: format!("HTTP/1.1 {head}"), body: body.into() }
    }

    #[test]
    fn whole_answer_has_its_text_session_and_run() {
        let body =
            r#"{"choices":[{"message":{"content":"hi"}}],"trunkline":{"session_id":"s","session":{"resumed":true}}}"#;
        let received = Received::whole(&reply("200 OK\r\nx-trunkline-run: r\r\nidempotent-replayed: true", body));
        assert_eq!((received.end, received.replayed), (ReceivedEnd::Complete, true));
        assert_eq!(received.text.as_deref(), Some("hi"));
        assert_eq!((received.run.as_deref(), received.session.as_deref()), (Some("r"), Some("s")));
        assert_eq!(received.resumption["resumed"], true);
        let failed = Received::whole(&reply("500 Error\r\nx-trunkline-run: r", r#"{"error":{}}"#));
        assert_eq!((failed.end, failed.text, failed.run.as_deref()), (ReceivedEnd::Failed, None, Some("r")));
    }

    #[test]
    fn stream_has_the_text_of_all_chunks_unless_it_contains_an_error() {
        let chunk = |text: &str| format!("data: {{\"choices\":[{{\"delta\":{{\"content\":\"{text}\"}}}}]}}\n\n");
        let end = "data: {\"choices\":[{\"delta\":{}}],\"trunkline\":{\"session_id\":\"s\"}}\n\ndata: [DONE]\n\n";
        let received = Received::stream(&reply("200 OK", &format!("{}{}{end}", chunk("a "), chunk("b"))));
        assert_eq!((received.end, received.text.as_deref()), (ReceivedEnd::Complete, Some("a b")));
        assert_eq!(received.session.as_deref(), Some("s"));
        let failed = Received::stream(&reply("200 OK", &format!("{}data: {{\"error\":{{}}}}\n\n", chunk("a"))));
        assert_eq!((failed.end, failed.text), (ReceivedEnd::Failed, None));
    }

    #[test]
    fn events_are_complete_when_the_last_one_is_finished() {
        let first =
            r#"data: {"seq":0,"by":{"session":{"id":"s","resumed":false}},"event":{"type":"text","delta":"a"}}"#;
        let frames = |last: &str| format!("{first}\n\ndata: {{\"seq\":1,\"event\":{last}}}\n\n");
        let received = Received::events(&reply("200 OK", &frames(r#"{"type":"finished","content":"a"}"#)));
        assert_eq!((received.end, received.text.as_deref()), (ReceivedEnd::Complete, Some("a")));
        assert_eq!(received.session.as_deref(), Some("s"));
        let failed = Received::events(&reply("200 OK", &frames(r#"{"type":"failed"}"#)));
        assert_eq!((failed.end, failed.text), (ReceivedEnd::Failed, None));
    }

    #[test]
    fn row_is_complete_when_its_run_has_finished() {
        for (state, end) in [
            ("queued", ReceivedEnd::Waiting),
            ("running", ReceivedEnd::Waiting),
            ("finished", ReceivedEnd::Complete),
            ("interrupted", ReceivedEnd::Failed),
        ] {
            let received = Received::row(&reply("200 OK", &format!("{{\"state\":\"{state}\",\"session\":\"s\"}}")));
            assert_eq!((received.end, received.session.as_deref()), (end, Some("s")), "{state}");
        }
    }
}

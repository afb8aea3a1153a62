//! The fake gateway: hello, identify, heartbeats, numbered dispatches, and resumed sessions.

use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio_websockets::{CloseCode, Message as Frame, ServerBuilder};

use super::{APPLICATION, BOT, GUILD, SharedFakeState, lock};

/// Short, so that tests observe heartbeats.
const HEARTBEAT_INTERVAL: Duration = Duration::from_millis(200);

/// A session that a client can resume, with all dispatches since it identified.
#[derive(Default)]
pub(crate) struct FakeSession {
    id: usize,
    sent: Vec<String>,
    /// The present connection of the session.
    connection: Option<mpsc::UnboundedSender<OutgoingFrame>>,
}

enum OutgoingFrame {
    Text(String),
    Cut,
}

impl FakeSession {
    /// Sends an event to the connected client, or to the client that resumes the session later.
    pub(crate) fn dispatch(&mut self, name: &str, data: Value) {
        if self.id == 0 {
            return;
        }
        let text = json!({"op": 0, "s": self.sent.len() + 1, "t": name, "d": data}).to_string();
        self.sent.push(text.clone());
        if let Some(connection) = &self.connection {
            // The connection may be closed.
            let _ = connection.send(OutgoingFrame::Text(text));
        }
    }

    pub(crate) fn cut(&mut self) {
        if let Some(connection) = self.connection.take() {
            // The connection may be closed.
            let _ = connection.send(OutgoingFrame::Cut);
        }
    }
}

pub(super) async fn serve(listener: TcpListener, state: SharedFakeState) {
    let mut connections = tokio::task::JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        connections.spawn(connection(stream, state.clone()));
    }
}

async fn connection(stream: TcpStream, state: SharedFakeState) {
    let Ok((_, mut socket)) = ServerBuilder::new().accept(stream).await else { return };
    let hello = json!({"op": 10, "d": {"heartbeat_interval": HEARTBEAT_INTERVAL.as_millis()}});
    if socket.send(Frame::text(hello.to_string())).await.is_err() {
        return;
    }
    let (sender, mut receiver) = mpsc::unbounded_channel();
    loop {
        tokio::select! {
            outgoing = receiver.recv() => match outgoing {
                Some(OutgoingFrame::Text(text)) => if socket.send(Frame::text(text)).await.is_err() { return },
                Some(OutgoingFrame::Cut) | None => return,
            },
            frame = socket.next() => {
                let Some(Ok(frame)) = frame else { return };
                let Some(text) = frame.as_text() else { continue };
                let message: Value = serde_json::from_str(text).unwrap();
                if let Some(code) = handle(&message, &state, &sender) {
                    // The client may be gone.
                    let _ = socket.send(Frame::close(CloseCode::try_from(code).ok(), "no")).await;
                    // The client responds with a close frame.
                    while let Some(Ok(_)) = socket.next().await {}
                    return;
                }
            }
        }
    }
}

/// Handles a message of the client. Returns a code if the connection has to be closed.
fn handle(message: &Value, state: &SharedFakeState, sender: &mpsc::UnboundedSender<OutgoingFrame>) -> Option<u16> {
    let mut state = lock(state);
    let answer = |value: Value| {
        let _ = sender.send(OutgoingFrame::Text(value.to_string()));
    };
    match message["op"].as_u64() {
        Some(1) => {
            state.heartbeats += 1;
            answer(json!({"op": 11}));
        }
        Some(2) => {
            state.identified.push(message["d"].clone());
            if state.closes_with.is_some() {
                return state.closes_with;
            }
            let id = state.session.id + 1;
            let resume = state.gateway.clone();
            state.session = FakeSession { id, sent: Vec::new(), connection: Some(sender.clone()) };
            let ready = json!({"v": 10, "user": {"id": BOT.to_string(), "username": "bot"}, "session_id": id.to_string(),
                "resume_gateway_url": resume, "application": {"id": APPLICATION.to_string(), "flags": 0},
                "guilds": [{"id": GUILD.to_string(), "unavailable": true}]});
            state.session.dispatch("READY", ready);
        }
        Some(6) => {
            state.resumed.push(message["d"].clone());
            if state.forgets_sessions || message["d"]["session_id"] != json!(state.session.id.to_string()) {
                answer(json!({"op": 9, "d": false}));
                return None;
            }
            state.session.connection = Some(sender.clone());
            let known = usize::try_from(message["d"]["seq"].as_u64().unwrap()).unwrap();
            for text in &state.session.sent[known..] {
                let _ = sender.send(OutgoingFrame::Text(text.clone()));
            }
            state.session.dispatch("RESUMED", json!({}));
        }
        _ => {}
    }
    None
}

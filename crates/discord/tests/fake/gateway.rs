//! Its gateway: hello, identify, heartbeats, dispatches with their numbers, and going on with a session after a cut.

use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio_websockets::{CloseCode, Message as Frame, ServerBuilder};

use super::{APPLICATION, BOT, GUILD, Shared, lock};

/// Short, so that tests see heartbeats.
const HEARTBEAT: Duration = Duration::from_millis(200);

/// What a client can go on with: everything that was told since it identified.
#[derive(Default)]
pub(crate) struct Session {
    id: usize,
    told: Vec<String>,
    /// The connection that has the session, if one has.
    open: Option<mpsc::UnboundedSender<Told>>,
}

enum Told {
    Text(String),
    Cut,
}

impl Session {
    /// Tells whoever is connected; and whoever goes on with the session.
    pub(crate) fn dispatch(&mut self, name: &str, data: Value) {
        if self.id == 0 {
            return;
        }
        let text = json!({"op": 0, "s": self.told.len() + 1, "t": name, "d": data}).to_string();
        self.told.push(text.clone());
        if let Some(open) = &self.open {
            let _gone = open.send(Told::Text(text));
        }
    }

    pub(crate) fn cut(&mut self) {
        if let Some(open) = self.open.take() {
            let _gone = open.send(Told::Cut);
        }
    }
}

pub(super) async fn serve(listener: TcpListener, state: Shared) {
    let mut connections = tokio::task::JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        connections.spawn(connection(stream, state.clone()));
    }
}

async fn connection(stream: TcpStream, state: Shared) {
    let Ok((_, mut socket)) = ServerBuilder::new().accept(stream).await else { return };
    let hello = json!({"op": 10, "d": {"heartbeat_interval": HEARTBEAT.as_millis()}});
    if socket.send(Frame::text(hello.to_string())).await.is_err() {
        return;
    }
    let (tell, mut told) = mpsc::unbounded_channel();
    loop {
        tokio::select! {
            told = told.recv() => match told {
                Some(Told::Text(text)) => if socket.send(Frame::text(text)).await.is_err() { return },
                Some(Told::Cut) | None => return,
            },
            frame = socket.next() => {
                let Some(Ok(frame)) = frame else { return };
                let Some(text) = frame.as_text() else { continue };
                let said: Value = serde_json::from_str(text).unwrap();
                if let Some(code) = hear(&said, &state, &tell) {
                    let _gone = socket.send(Frame::close(CloseCode::try_from(code).ok(), "no")).await;
                    // The client answers with a close of its own.
                    while let Some(Ok(_)) = socket.next().await {}
                    return;
                }
            }
        }
    }
}

/// Takes in what a client said; a code to close the connection with.
fn hear(said: &Value, state: &Shared, tell: &mpsc::UnboundedSender<Told>) -> Option<u16> {
    let mut state = lock(state);
    let answer = |value: Value| {
        let _gone = tell.send(Told::Text(value.to_string()));
    };
    match said["op"].as_u64() {
        Some(1) => {
            state.heartbeats += 1;
            answer(json!({"op": 11}));
        }
        Some(2) => {
            state.identified.push(said["d"].clone());
            if state.closes_with.is_some() {
                return state.closes_with;
            }
            let id = state.session.id + 1;
            let resume = state.gateway.clone();
            state.session = Session { id, told: Vec::new(), open: Some(tell.clone()) };
            let ready = json!({"v": 10, "user": {"id": BOT.to_string(), "username": "bot"}, "session_id": id.to_string(),
                "resume_gateway_url": resume, "application": {"id": APPLICATION.to_string(), "flags": 0},
                "guilds": [{"id": GUILD.to_string(), "unavailable": true}]});
            state.session.dispatch("READY", ready);
        }
        Some(6) => {
            state.resumed.push(said["d"].clone());
            if state.forgets_sessions || said["d"]["session_id"] != json!(state.session.id.to_string()) {
                answer(json!({"op": 9, "d": false}));
                return None;
            }
            state.session.open = Some(tell.clone());
            let known = usize::try_from(said["d"]["seq"].as_u64().unwrap()).unwrap();
            for text in &state.session.told[known..] {
                let _gone = tell.send(Told::Text(text.clone()));
            }
            state.session.dispatch("RESUMED", json!({}));
        }
        _ => {}
    }
    None
}

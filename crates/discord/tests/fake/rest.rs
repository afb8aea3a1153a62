//! The fake REST API: the calls of a bot, with Discord's checks of posted messages.

use std::convert::Infallible;
use std::time::Instant;

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::{BOT, FakeMessage, FakeState, FaultAction, RestCall, RestFault, SharedFakeState, TOKEN, lock};

type RestResponse = Response<Full<Bytes>>;

pub(super) async fn serve(listener: TcpListener, state: SharedFakeState) {
    let mut connections = tokio::task::JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let state = state.clone();
        connections.spawn(async move {
            let service = service_fn(move |request| handle(request, state.clone()));
            let connection = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service);
            // The client may close it at any time.
            let _ = connection.await;
        });
    }
}

async fn handle(request: Request<Incoming>, state: SharedFakeState) -> Result<RestResponse, Infallible> {
    let (parts, body) = request.into_parts();
    let bytes = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    let (body, file) = read(&bytes);
    let whole = parts.uri.path_and_query().map(|path| path.as_str()).unwrap_or_default();
    if let Some(name) = whole.strip_prefix("/files/") {
        let file = lock(&state).files.get(name).cloned();
        return Ok(file.map_or_else(|| answer(404, &json!({})), |bytes| Response::new(Full::from(bytes))));
    }
    let path = whole.strip_prefix("/api/v10/").unwrap_or(whole).to_owned();
    let method = parts.method.to_string();
    let authorized = path.starts_with("interactions/")
        || parts
            .headers
            .get("authorization")
            .is_some_and(|value| value.as_bytes() == format!("Bot {TOKEN}").as_bytes());
    let (done, silent) = {
        let mut state = lock(&state);
        state.calls.push(RestCall {
            method: method.clone(),
            path: path.clone(),
            body: body.clone(),
            at: Instant::now(),
        });
        let text = body.to_string();
        let fits =
            |fault: &RestFault| fault.method == method && path.contains(fault.path) && text.contains(fault.contains);
        let fault = state.faults.iter().position(fits);
        match fault.and_then(|index| state.faults.remove(index)).map(|fault| fault.action) {
            Some(FaultAction::Answer { status, headers, body }) => {
                let mut refused = answer(status, &body);
                for (name, value) in headers {
                    refused.headers_mut().insert(name, value.parse().unwrap());
                }
                (refused, false)
            }
            action if authorized => (state.call(&method, &path, &body, file), action.is_some()),
            _ => (answer(401, &json!({"message": "401: Unauthorized", "code": 0})), false),
        }
    };
    if silent {
        std::future::pending::<()>().await;
    }
    Ok(done)
}

impl FakeState {
    fn call(&mut self, method: &str, path: &str, body: &Value, file: Option<(String, String)>) -> RestResponse {
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let words: Vec<&str> = path.split('/').collect();
        let id = |text: &str| text.parse::<u64>().unwrap_or_default();
        match (method, words.as_slice()) {
            ("POST", ["channels", channel, "messages"]) => self.post(id(channel), body, file),
            ("PATCH", ["channels", _, "messages", message]) => self.edit(id(message), body),
            ("GET", ["channels", channel, "messages"]) => self.history(id(channel), query),
            ("POST", ["channels", _, "typing"]) => answer(204, &Value::Null),
            ("GET", ["channels", channel]) => {
                let guild = self.guilds.get(&id(channel)).map(u64::to_string);
                let kind = if guild.is_some() { 0 } else { 1 };
                answer(200, &json!({"id": channel, "type": kind, "guild_id": guild}))
            }
            ("GET", ["guilds", _, "members", user]) => {
                let roles: Vec<String> = self.roles.get(&id(user)).into_iter().flatten().map(u64::to_string).collect();
                answer(200, &json!({"user": {"id": user}, "roles": roles}))
            }
            ("PUT", ["applications", _, "guilds", guild, "commands"]) => {
                self.commands.insert(id(guild), body.clone());
                answer(200, body)
            }
            ("POST", ["interactions", _, _, "callback"]) => {
                self.responses.push(body.clone());
                answer(204, &Value::Null)
            }
            _ => answer(404, &json!({"message": "404: Not Found", "code": 0})),
        }
    }

    fn post(&mut self, channel: u64, body: &Value, file: Option<(String, String)>) -> RestResponse {
        let nonce = body["nonce"].as_str().map(str::to_owned).filter(|_| body["enforce_nonce"] == json!(true));
        if let Some(known) = nonce.as_ref().and_then(|nonce| self.nonces.get(nonce)) {
            return answer(200, &self.messages[known].json());
        }
        let content = body["content"].as_str().unwrap_or_default().trim().to_owned();
        if content.chars().count() > 2000 || (content.is_empty() && file.is_none()) {
            return answer(400, &json!({"message": "Invalid Form Body", "code": 50035}));
        }
        let replies_to = body["message_reference"]["message_id"].as_str().and_then(|id| id.parse().ok());
        let id = self.new_id();
        let more = json!({"allowed_mentions": body["allowed_mentions"]});
        let message = FakeMessage { id, channel, author: BOT, content, edits: Vec::new(), replies_to, file, more };
        let json = message.json();
        self.publish(message);
        self.nonces.extend(nonce.map(|nonce| (nonce, id)));
        answer(200, &json)
    }

    fn edit(&mut self, id: u64, body: &Value) -> RestResponse {
        let content = body["content"].as_str().unwrap_or_default().trim().to_owned();
        let Some(message) = self.messages.get_mut(&id) else {
            return answer(404, &json!({"message": "Unknown FakeMessage", "code": 10008}));
        };
        if content.is_empty() || content.chars().count() > 2000 {
            return answer(400, &json!({"message": "Invalid Form Body", "code": 50035}));
        }
        message.edits.push(std::mem::replace(&mut message.content, content));
        answer(200, &message.json())
    }

    /// A page of the history, newest first as in Discord.
    fn history(&self, channel: u64, query: &str) -> RestResponse {
        let value = |name: &str| {
            query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('=')?.parse::<u64>().ok())
        };
        let limit = usize::try_from(value("limit").unwrap_or(50)).unwrap();
        let all: Vec<&FakeMessage> = self.messages.values().filter(|message| message.channel == channel).collect();
        let page: Vec<&FakeMessage> = match value("after") {
            Some(after) => all.into_iter().filter(|message| message.id > after).take(limit).collect(),
            None => all.into_iter().rev().take(limit).rev().collect(),
        };
        answer(200, &page.into_iter().rev().map(FakeMessage::json).collect())
    }
}

/// JSON of a body, and the file of a form.
fn read(bytes: &[u8]) -> (Value, Option<(String, String)>) {
    if let Ok(json) = serde_json::from_slice(bytes) {
        return (json, None);
    }
    let text = String::from_utf8_lossy(bytes);
    let Some((boundary, rest)) = text.split_once("\r\n") else { return (Value::Null, None) };
    let (mut json, mut file) = (Value::Null, None);
    for part in rest.split(boundary) {
        let Some((head, content)) = part.split_once("\r\n\r\n") else { continue };
        let content = content.strip_suffix("\r\n").unwrap_or(content);
        if head.contains("name=\"payload_json\"") {
            json = serde_json::from_str(content).unwrap();
        } else if let Some((_, name)) = head.split_once("filename=\"") {
            let name = name.split('"').next().unwrap_or_default();
            file = Some((name.to_owned(), content.to_owned()));
        }
    }
    (json, file)
}

fn answer(status: u16, body: &Value) -> RestResponse {
    let bytes = if body.is_null() { Bytes::new() } else { Bytes::from(body.to_string()) };
    let response = Response::builder().status(status).header("content-type", "application/json");
    response.body(Full::from(bytes)).unwrap()
}

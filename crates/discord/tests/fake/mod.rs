//! A fake Discord for tests: REST API and gateway on loopback, with channels, messages and edits that tests can inspect, and
//! faults on demand. It runs on its own thread, so that tests can block and poll.

#![cfg(test)]

mod gateway;
mod rest;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;

/// User id of the bot.
pub(crate) const BOT: u64 = 1;
pub(crate) const APPLICATION: u64 = 2;
pub(crate) const GUILD: u64 = 10;
/// A channel of the guild. Other channels are created by sending messages to them.
pub(crate) const CHANNEL: u64 = 20;
pub(crate) const USER: u64 = 40;
pub(crate) const TOKEN: &str = "MTIzNDU2.fake-token.0123456789abcdef";

/// Reached only if a test fails.
const WAIT_TIMEOUT: Duration = Duration::from_secs(60);

/// Ids as long as real ones.
const FIRST_ID: u64 = 1_300_000_000_000_000_000;

pub(crate) struct FakeDiscord {
    state: SharedFakeState,
    pub(crate) api: String,
    pub(crate) gateway: String,
    runtime: Option<Runtime>,
}

pub(crate) type SharedFakeState = Arc<Mutex<FakeState>>;

/// Recorded calls and messages, and planned faults.
#[derive(Default)]
pub(crate) struct FakeState {
    pub(crate) calls: Vec<RestCall>,
    pub(crate) messages: BTreeMap<u64, FakeMessage>,
    /// Guilds of channels. A channel without an entry is a direct message.
    pub(crate) guilds: HashMap<u64, u64>,
    pub(crate) roles: HashMap<u64, Vec<u64>>,
    pub(crate) files: HashMap<String, Vec<u8>>,
    pub(crate) identified: Vec<Value>,
    pub(crate) resumed: Vec<Value>,
    pub(crate) heartbeats: usize,
    pub(crate) commands: HashMap<u64, Value>,
    pub(crate) responses: Vec<Value>,
    /// Each applies to the first matching call.
    pub(crate) faults: VecDeque<RestFault>,
    /// Whether sessions cannot be resumed.
    pub(crate) forgets_sessions: bool,
    /// Close code for every connection.
    pub(crate) closes_with: Option<u16>,
    pub(crate) session: gateway::FakeSession,
    pub(crate) gateway: String,
    last_id: u64,
    nonces: HashMap<String, u64>,
}

#[derive(Debug, Clone)]
pub(crate) struct RestCall {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) body: Value,
    pub(crate) at: Instant,
}

#[derive(Debug, Clone)]
pub(crate) struct FakeMessage {
    pub(crate) id: u64,
    pub(crate) channel: u64,
    pub(crate) author: u64,
    pub(crate) content: String,
    /// Earlier contents.
    pub(crate) edits: Vec<String>,
    pub(crate) replies_to: Option<u64>,
    pub(crate) file: Option<(String, String)>,
    more: Value,
}

/// A fault of a REST call.
pub(crate) struct RestFault {
    pub(crate) method: &'static str,
    pub(crate) path: &'static str,
    /// Text that the body must contain.
    pub(crate) contains: &'static str,
    pub(crate) action: FaultAction,
}

#[derive(Debug, Clone)]
pub(crate) enum FaultAction {
    Answer {
        status: u16,
        headers: Vec<(&'static str, String)>,
        body: Value,
    },
    /// The call is executed, but not answered.
    NoResponse,
}

impl FakeDiscord {
    pub(crate) fn start() -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let state = SharedFakeState::default();
        let listen = || runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let (rest, gateway) = (listen(), listen());
        let api = format!("http://{}", rest.local_addr().unwrap());
        let address = format!("ws://{}", gateway.local_addr().unwrap());
        {
            let mut state = lock(&state);
            state.last_id = FIRST_ID;
            state.gateway.clone_from(&address);
            state.guilds.insert(CHANNEL, GUILD);
        }
        runtime.spawn(rest::serve(rest, Arc::clone(&state)));
        runtime.spawn(gateway::serve(gateway, Arc::clone(&state)));
        Self { state, api, gateway: address, runtime: Some(runtime) }
    }

    pub(crate) fn look(&self) -> MutexGuard<'_, FakeState> {
        lock(&self.state)
    }

    /// Waits until `look` returns a value.
    #[track_caller]
    pub(crate) fn until<T>(&self, what: &str, mut look: impl FnMut(&mut FakeState) -> Option<T>) -> T {
        let started = Instant::now();
        loop {
            if let Some(found) = look(&mut self.look()) {
                return found;
            }
            assert!(started.elapsed() < WAIT_TIMEOUT, "waited too long until {what}; {}", self.look().summary());
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    #[track_caller]
    pub(crate) fn until_ready(&self, times: usize) {
        self.until("the bridge has identified", |state| (state.identified.len() >= times).then_some(()));
    }

    /// Sends a message as [`USER`], and returns its id. A mention in the text counts as one.
    pub(crate) fn say(&self, channel: u64, content: &str) -> u64 {
        self.say_as(channel, USER, content, json!({}))
    }

    pub(crate) fn say_as(&self, channel: u64, author: u64, content: &str, more: Value) -> u64 {
        self.look().add_message(channel, author, content, more)
    }

    /// Waits for an answer to a message that contains this text.
    #[track_caller]
    pub(crate) fn answered(&self, id: u64, content: &str) -> FakeMessage {
        self.until(&format!("{id} is answered with {content:?}"), |state| {
            state.replies(id).into_iter().find(|message| message.content.contains(content))
        })
    }

    /// Uses a slash command, and returns the bot's response.
    #[track_caller]
    pub(crate) fn command(&self, channel: u64, user: u64, name: &str, argument: Option<&str>) -> String {
        let before = {
            let mut state = self.look();
            let id = state.new_id();
            let options: Vec<Value> = argument.iter().map(|value| json!({"name": "name", "value": value})).collect();
            let mut data = json!({"id": id.to_string(), "token": "interaction-key", "channel_id": channel.to_string(),
                "data": {"name": name, "options": options}});
            match state.guilds.get(&channel).copied() {
                Some(guild) => {
                    data["guild_id"] = json!(guild.to_string());
                    data["member"] = json!({"user": {"id": user.to_string()}, "roles": []});
                }
                None => data["user"] = json!({"id": user.to_string()}),
            }
            state.session.dispatch("INTERACTION_CREATE", data);
            state.responses.len()
        };
        let response = self.until("a command is answered", |state| state.responses.get(before).cloned());
        response["data"]["content"].as_str().unwrap().to_owned()
    }

    /// Closes the connection without a close frame.
    pub(crate) fn cut(&self) {
        self.look().session.cut();
    }

    pub(crate) fn fault(&self, method: &'static str, path: &'static str, action: FaultAction) {
        self.fault_of(method, path, "", action);
    }

    pub(crate) fn fault_of(
        &self,
        method: &'static str,
        path: &'static str,
        contains: &'static str,
        action: FaultAction,
    ) {
        self.look().faults.push_back(RestFault { method, path, contains, action });
    }
}

impl Drop for FakeDiscord {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl FakeState {
    /// The bot's replies to a message.
    pub(crate) fn replies(&self, id: u64) -> Vec<FakeMessage> {
        self.messages.values().filter(|message| message.replies_to == Some(id)).cloned().collect()
    }

    /// Present contents of the bot's messages in a channel.
    pub(crate) fn said_by_bot(&self, channel: u64) -> Vec<String> {
        let own = self.messages.values().filter(|message| message.author == BOT && message.channel == channel);
        own.map(|message| message.content.clone()).collect()
    }

    pub(crate) fn add_message(&mut self, channel: u64, author: u64, content: &str, more: Value) -> u64 {
        let (id, content, more) = (self.new_id(), content.to_owned(), more);
        let message =
            FakeMessage { id, channel, author, content, edits: Vec::new(), replies_to: None, file: None, more };
        self.publish(message);
        id
    }

    /// Adds a message and sends its event.
    fn publish(&mut self, message: FakeMessage) {
        let mut data = message.json();
        if let Some(guild) = self.guilds.get(&message.channel) {
            let roles = self.roles.get(&message.author).cloned().unwrap_or_default();
            let roles: Vec<String> = roles.iter().map(u64::to_string).collect();
            data["guild_id"] = json!(guild.to_string());
            data["member"] = json!({"roles": roles});
        }
        self.messages.insert(message.id, message);
        self.session.dispatch("MESSAGE_CREATE", data);
    }

    pub(crate) fn new_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }

    pub(crate) fn forget_nonces(&mut self) {
        self.nonces.clear();
    }

    fn summary(&self) -> String {
        let calls: Vec<String> =
            self.calls.iter().map(|call| format!("{} {} {}", call.method, call.path, call.body)).collect();
        format!("{} identified, {} resumed, calls:\n{}", self.identified.len(), self.resumed.len(), calls.join("\n"))
    }
}

impl FakeMessage {
    /// The message as in a channel's history: without guild and member.
    fn json(&self) -> Value {
        let mentions: Vec<Value> = if self.content.contains(&format!("<@{BOT}>")) {
            vec![json!({"id": BOT.to_string(), "username": "bot", "bot": true})]
        } else {
            Vec::new()
        };
        let mut json = json!({"id": self.id.to_string(), "channel_id": self.channel.to_string(), "type": 0,
            "author": {"id": self.author.to_string(), "username": "u", "bot": self.author == BOT},
            "content": self.content, "mentions": mentions, "attachments": []});
        if let Some(id) = self.replies_to {
            json["message_reference"] = json!({"message_id": id.to_string()});
        }
        for (key, value) in self.more.as_object().into_iter().flatten() {
            json[key] = value.clone();
        }
        json
    }
}

pub(crate) fn mention(text: &str) -> String {
    format!("<@{BOT}> {text}")
}

fn lock(state: &SharedFakeState) -> MutexGuard<'_, FakeState> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

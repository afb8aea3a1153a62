//! Conversations with a process that is kept for several turns: what to write to its stdin, and which of its output
//! belongs to a turn. The process itself is elsewhere.
//!
//! A process for one turn is a command line, and all of its output is about that turn. A kept process needs a greeting, the
//! prompt of each turn, and answers to its requests, and it must be read until the turn is over although the process is
//! not. A [`LiveChannel`] does this: it takes bytes from the process, and returns the bytes to write and the bytes of the
//! turn. A [`Decoder`](crate::parse::Decoder) reads the latter like any other output. Only the decoder knows what a step of
//! the agent means; the channel knows only which messages belong to which turn.
//!
//! ```text
//! Booting ──greeting accepted──▶ Ready ──say──▶ Busy ──end of the turn──▶ Ready
//!    └────────── greeting refused ──────────▶ Broken ◀─────┘
//! ```
//!
//! There are three protocols: Claude Code's stream of JSON messages (`claude`), Codex's app-server (`app_server`) and the
//! Agent Client Protocol (`acp`). Each is a state machine without I/O and without a clock. Like a decoder, it takes any
//! bytes and cannot fail. The protocol of a provider and its settings are data: [`LiveRecipe`].
//!
//! A channel belongs to one conversation. A process cannot be made to forget, so a channel that has had a turn must never
//! be given to another conversation.

mod acp;
mod app_server;
mod claude;
mod exchange;
mod protocol;
mod recipe;
mod rpc;
mod servers;
mod tool_offer;

use serde_json::Value;

use crate::lines::{Lines, OutputLine};
use app_server::TurnInput;
pub use exchange::Greeting;
use exchange::MessageMeaning;
pub(crate) use exchange::PERMISSION_REFUSED;
pub use protocol::LiveProtocol;
pub use recipe::{LiveRecipe, Modes, OwnServers, ServerArguments, ToolRecipe};
pub use tool_offer::{CallKey, ClientCall, ToolOffer, ToolServer};

/// State of a channel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChannelStage {
    /// The greeting was sent and is not fully answered.
    Booting,
    /// The process waits for a turn.
    Ready,
    /// A turn is in flight.
    Busy,
    /// The process takes no turns, with the reason.
    Broken(String),
}

/// Result of reading bytes from the process.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ChannelOutput {
    /// Lines of the turn, for the decoder.
    pub said: Vec<u8>,
    /// Bytes to write to the process.
    pub reply: Vec<u8>,
    /// Calls of the client's tools, to be answered with [`LiveChannel::answer_call`].
    pub calls: Vec<ClientCall>,
}

/// Conversation with a kept process.
#[derive(Debug)]
pub struct LiveChannel {
    lines: Lines,
    stage: ChannelStage,
    protocol: ProtocolState,
    /// The process has sent a message since the turn was sent, or its protocol does not require one.
    answers: bool,
}

/// State machine of the protocol.
#[derive(Debug)]
enum ProtocolState {
    Claude(claude::ClaudeLive),
    AppServer(app_server::AppServerLive),
    Acp(acp::AcpLive),
}

impl LiveChannel {
    /// Creates a channel to a process that was just started. Also returns the greeting to write.
    #[must_use]
    pub fn new(protocol: LiveProtocol, greeting: Greeting) -> (Self, Vec<u8>) {
        let (protocol, greeting) = match protocol {
            LiveProtocol::Claude => {
                let (claude, line) = claude::ClaudeLive::greet(greeting);
                (ProtocolState::Claude(claude), line)
            }
            LiveProtocol::AppServer => {
                let (server, line) = app_server::AppServerLive::greet(greeting);
                (ProtocolState::AppServer(server), line)
            }
            LiveProtocol::Acp => {
                let (acp, line) = acp::AcpLive::greet(greeting);
                (ProtocolState::Acp(acp), line)
            }
        };
        (Self { lines: Lines::default(), stage: ChannelStage::Booting, protocol, answers: true }, greeting)
    }

    #[must_use]
    pub fn stage(&self) -> &ChannelStage {
        &self.stage
    }

    /// Starts a turn and returns the bytes to write. `session` is a session of the CLI to resume, if the process is not in it
    /// yet. Returns none if the process cannot take the turn.
    pub fn say(&mut self, prompt: &str, session: Option<&str>) -> Option<Vec<u8>> {
        self.say_with_schema(prompt, session, None)
    }

    /// As [`say`](Self::say), with the JSON Schema of the answer, for a protocol that takes one with each turn.
    pub fn say_with_schema(&mut self, prompt: &str, session: Option<&str>, schema: Option<&str>) -> Option<Vec<u8>> {
        if self.stage != ChannelStage::Ready {
            return None;
        }
        let line = match &mut self.protocol {
            ProtocolState::Claude(claude) if session.is_none() => Some(claude.send_prompt(prompt)),
            ProtocolState::AppServer(server) => Some(server.send_prompt(TurnInput::new(prompt, schema), session)),
            ProtocolState::Acp(acp) if session.is_none() => Some(acp.send_prompt(prompt)),
            // These resume a session only if they were started with it.
            ProtocolState::Claude(_) | ProtocolState::Acp(_) => None,
        }?;
        self.stage = ChannelStage::Busy;
        // ACP does not confirm a prompt: the first message may come from the model, which may think for long.
        self.answers = matches!(self.protocol, ProtocolState::Acp(_));
        Some(line)
    }

    /// Offers the client's tools, and returns the bytes to write. The process waits for a turn again once it has accepted them.
    /// Returns none if the process is not waiting for a turn.
    pub fn offer(&mut self, offer: &ToolOffer) -> Option<Vec<u8>> {
        if self.stage != ChannelStage::Ready {
            return None;
        }
        self.stage = ChannelStage::Booting;
        Some(match &mut self.protocol {
            ProtocolState::Claude(claude) => claude.offer(offer),
            ProtocolState::AppServer(server) => server.offer(offer),
            ProtocolState::Acp(acp) => acp.offer(offer),
        })
    }

    /// Returns the bytes that answer a call of a client's tool.
    #[must_use]
    pub fn answer_call(&self, key: &CallKey, result: Result<&str, &str>) -> Vec<u8> {
        match &self.protocol {
            ProtocolState::Claude(_) => claude::answer_call(key, result),
            ProtocolState::AppServer(server) => server.answer_call(key, result),
            // Its calls come through the server of the offer.
            ProtocolState::Acp(_) => Vec::new(),
        }
    }

    /// Whether the process has shown that it received the turn. If its protocol confirms turns and this one was not
    /// confirmed in time, the process hangs.
    #[must_use]
    pub fn answers(&self) -> bool {
        self.answers
    }

    /// Interrupts the turn and returns the bytes to write. The turn is over when the process reports its end.
    pub fn interrupt(&mut self) -> Vec<u8> {
        if self.stage != ChannelStage::Busy {
            return Vec::new();
        }
        match &mut self.protocol {
            ProtocolState::Claude(claude) => claude.interrupt(),
            ProtocolState::AppServer(server) => server.interrupt(),
            ProtocolState::Acp(acp) => acp.interrupt(),
        }
    }

    /// Takes the next bytes from the process, split anywhere.
    pub fn hear(&mut self, bytes: &[u8]) -> ChannelOutput {
        let mut complete = Vec::new();
        self.lines.push(bytes, |line| complete.push(line));
        let mut output = ChannelOutput::default();
        for line in complete {
            match line {
                OutputLine::Whole(line) => self.receive_line(&line, &mut output),
                OutputLine::Overlong { head, bytes } if self.stage == ChannelStage::Busy => {
                    pass(&format!("{head}… [a line of {bytes} bytes was left out]"), &mut output);
                }
                OutputLine::Overlong { .. } => {}
            }
        }
        output
    }

    fn receive_line(&mut self, line: &str, output: &mut ChannelOutput) {
        let busy = self.stage == ChannelStage::Busy;
        let Ok(message) = serde_json::from_str::<Value>(line) else {
            // Noise, or JSON that only the decoder can repair.
            if busy && !line.trim().is_empty() {
                pass(line, output);
            }
            return;
        };
        self.answers = true;
        let meaning = match &mut self.protocol {
            ProtocolState::Claude(claude) => claude.receive(&message, output),
            ProtocolState::AppServer(server) => server.receive(&message, output),
            ProtocolState::Acp(acp) => acp.receive(&message, &mut output.reply),
        };
        match meaning {
            MessageMeaning::ForTurn | MessageMeaning::EndsTurn if busy => {
                pass(line, output);
                if matches!(meaning, MessageMeaning::EndsTurn) {
                    self.stage = ChannelStage::Ready;
                }
            }
            MessageMeaning::ForTurnWithNote(note) if busy => {
                pass(line, output);
                pass(&note.to_string(), output);
            }
            // A message of a turn that is over, or that was never sent.
            MessageMeaning::ForTurn
            | MessageMeaning::EndsTurn
            | MessageMeaning::ForTurnWithNote(_)
            | MessageMeaning::Ignored => {}
            MessageMeaning::Ready if self.stage == ChannelStage::Booting => self.stage = ChannelStage::Ready,
            MessageMeaning::Ready => {}
            MessageMeaning::Broken(why) => self.stage = ChannelStage::Broken(why),
        }
    }
}

/// Adds a line to the output for the decoder.
fn pass(line: &str, output: &mut ChannelOutput) {
    output.said.extend_from_slice(line.as_bytes());
    output.said.push(b'\n');
}

#[cfg(test)]
mod tests;

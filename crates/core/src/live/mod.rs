//! A process that takes turns over its stdio, without the process: what is written to it, and which of its words belong
//! to a turn.
//!
//! A one-shot run is a command line, and its output is all about one turn. A process that stays must be greeted first,
//! told the turn, answered when it asks, and heard out until the turn is over though the process is not. That is a
//! [`LiveChannel`]: bytes in, bytes to write out, and the bytes that a [`Decoder`](crate::parse::Decoder) reads as it reads any
//! output. What a step of an agent means is known there and only there; here is known who is speaking about what.
//!
//! ```text
//! Booting ──the greeting is answered──▶ Ready ──say──▶ Busy ──its last word──▶ Ready
//!    └──────────── refused, or not understood ─────▶ Broken ◀──────┘
//! ```
//!
//! Three protocols are spoken: Claude Code's stream of JSON messages (`claude`), Codex's app-server (`app_server`) and
//! the Agent Client Protocol (`acp`). Each is a state machine without I/O and without a clock; like a decoder, it takes
//! any bytes and cannot fail. What a provider speaks, and what it is told in which way, is data: [`LiveRecipe`].
//!
//! A line is one conversation's. Nothing here can make a process forget, so whoever keeps lines must never let another
//! conversation have one that was spoken to.

mod acp;
mod app_server;
mod claude;
mod exchange;
mod protocol;
mod recipe;
mod rpc;

use serde_json::Value;

use crate::lines::{Lines, OutputLine};
pub use exchange::Greeting;
use exchange::MessageMeaning;
pub(crate) use exchange::PERMISSION_REFUSED;
pub use protocol::LiveProtocol;
pub use recipe::{LiveRecipe, Modes};

// Aliases for the users in other crates. TODO: rename them there.
#[doc(hidden)]
pub use self::{
    ChannelOutput as Heard, ChannelStage as Stage, LiveChannel as Line, LiveProtocol as Protocol, LiveRecipe as Recipe,
};

/// Where a line is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChannelStage {
    /// It has been greeted and has not answered all of it.
    Booting,
    /// It waits for a turn.
    Ready,
    /// A turn is on its way.
    Busy,
    /// It takes no turn, and why.
    Broken(String),
}

/// What came of some bytes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ChannelOutput {
    /// The lines that are about the turn, for a decoder.
    pub said: Vec<u8>,
    /// What the process waits for.
    pub reply: Vec<u8>,
}

/// One process that stays, as a conversation.
#[derive(Debug)]
pub struct LiveChannel {
    lines: Lines,
    stage: ChannelStage,
    speaker: ProtocolState,
    /// It has said anything since it was told a turn, or need not.
    answers: bool,
}

#[derive(Debug)]
enum ProtocolState {
    Claude(claude::ClaudeLive),
    AppServer(app_server::AppServerLive),
    Acp(acp::AcpLive),
}

impl LiveChannel {
    /// A line to a process that was just started, and what to write to it.
    #[must_use]
    pub fn new(protocol: LiveProtocol, greeting: Greeting) -> (Self, Vec<u8>) {
        let (speaker, words) = match protocol {
            LiveProtocol::Claude => {
                let (claude, words) = claude::ClaudeLive::greet(greeting);
                (ProtocolState::Claude(claude), words)
            }
            LiveProtocol::AppServer => {
                let (server, words) = app_server::AppServerLive::greet(greeting);
                (ProtocolState::AppServer(server), words)
            }
            LiveProtocol::Acp => {
                let (acp, words) = acp::AcpLive::greet(greeting);
                (ProtocolState::Acp(acp), words)
            }
        };
        (Self { lines: Lines::default(), stage: ChannelStage::Booting, speaker, answers: true }, words)
    }

    #[must_use]
    pub fn stage(&self) -> &ChannelStage {
        &self.stage
    }

    /// Tells it a turn: what to write. `session` is a conversation of its own that it is to go on with, and is not in yet.
    /// Nothing, if it cannot take one.
    pub fn say(&mut self, prompt: &str, session: Option<&str>) -> Option<Vec<u8>> {
        if self.stage != ChannelStage::Ready {
            return None;
        }
        let words = match &mut self.speaker {
            ProtocolState::Claude(claude) if session.is_none() => Some(claude.say(prompt)),
            ProtocolState::AppServer(server) => Some(server.say(prompt, session)),
            ProtocolState::Acp(acp) if session.is_none() => Some(acp.say(prompt)),
            // They go on with what is over only when they are started for it.
            ProtocolState::Claude(_) | ProtocolState::Acp(_) => None,
        }?;
        self.stage = ChannelStage::Busy;
        // By this protocol the first word may be the model's, which may think for as long as it likes.
        self.answers = matches!(self.speaker, ProtocolState::Acp(_));
        Some(words)
    }

    /// Whether it has shown that it has heard its turn. One whose protocol confirms what it is told, and that does not, is
    /// not going to.
    #[must_use]
    pub fn answers(&self) -> bool {
        self.answers
    }

    /// Asks it to leave off: what to write. The turn is over when it says so.
    pub fn interrupt(&mut self) -> Vec<u8> {
        if self.stage != ChannelStage::Busy {
            return Vec::new();
        }
        match &mut self.speaker {
            ProtocolState::Claude(claude) => claude.interrupt(),
            ProtocolState::AppServer(server) => server.interrupt(),
            ProtocolState::Acp(acp) => acp.interrupt(),
        }
    }

    /// Takes the next bytes, cut anywhere.
    pub fn hear(&mut self, bytes: &[u8]) -> ChannelOutput {
        let mut whole = Vec::new();
        self.lines.push(bytes, |line| whole.push(line));
        let mut heard = ChannelOutput::default();
        for line in whole {
            match line {
                OutputLine::Whole(line) => self.line(&line, &mut heard),
                OutputLine::Overlong { head, bytes } if self.stage == ChannelStage::Busy => {
                    pass(&format!("{head}… [a line of {bytes} bytes was left out]"), &mut heard);
                }
                OutputLine::Overlong { .. } => {}
            }
        }
        heard
    }

    fn line(&mut self, line: &str, heard: &mut ChannelOutput) {
        let busy = self.stage == ChannelStage::Busy;
        let Ok(message) = serde_json::from_str::<Value>(line) else {
            // Noise, or JSON that only a decoder can read.
            if busy && !line.trim().is_empty() {
                pass(line, heard);
            }
            return;
        };
        self.answers = true;
        let meaning = match &mut self.speaker {
            ProtocolState::Claude(claude) => claude.hear(&message, &mut heard.reply),
            ProtocolState::AppServer(server) => server.hear(&message, &mut heard.reply),
            ProtocolState::Acp(acp) => acp.hear(&message, &mut heard.reply),
        };
        match meaning {
            MessageMeaning::Said | MessageMeaning::SaidLast if busy => {
                pass(line, heard);
                if matches!(meaning, MessageMeaning::SaidLast) {
                    self.stage = ChannelStage::Ready;
                }
            }
            MessageMeaning::SaidWith(note) if busy => {
                pass(line, heard);
                pass(&note.to_string(), heard);
            }
            // Of a turn that is over, or was never asked for.
            MessageMeaning::Said | MessageMeaning::SaidLast | MessageMeaning::SaidWith(_) | MessageMeaning::Nothing => {
            }
            MessageMeaning::Ready if self.stage == ChannelStage::Booting => self.stage = ChannelStage::Ready,
            MessageMeaning::Ready => {}
            MessageMeaning::Broken(why) => self.stage = ChannelStage::Broken(why),
        }
    }
}

fn pass(line: &str, heard: &mut ChannelOutput) {
    heard.said.extend_from_slice(line.as_bytes());
    heard.said.push(b'\n');
}

#[cfg(test)]
mod tests;

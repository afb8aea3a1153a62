//! A process that takes turns over its stdio, without the process: what is written to it, and which of its words belong
//! to a turn.
//!
//! A one-shot run is a command line, and its output is all about one turn. A process that stays must be greeted first,
//! told the turn, answered when it asks, and heard out until the turn is over though the process is not. That is a
//! [`Line`]: bytes in, bytes to write out, and the bytes that a [`Decoder`](crate::parse::Decoder) reads as it reads any
//! output. What a step of an agent means is known there and only there; here is known who is speaking about what.
//!
//! ```text
//! Booting ──the greeting is answered──▶ Ready ──say──▶ Busy ──its last word──▶ Ready
//!    └──────────── refused, or not understood ─────▶ Broken ◀──────┘
//! ```
//!
//! Three protocols are spoken: Claude Code's stream of JSON messages (`claude`), Codex's app-server (`app_server`) and
//! the Agent Client Protocol (`acp`). Each is a state machine without I/O and without a clock; like a decoder, it takes
//! any bytes and cannot fail. What a provider speaks, and what it is told in which way, is data: [`Recipe`].
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

use crate::lines::{self, Lines};
pub use exchange::Greeting;
use exchange::Meaning;
pub(crate) use exchange::PERMISSION_REFUSED;
pub use protocol::LiveProtocol;
pub use recipe::{Modes, Recipe};

// Alias for the users in other crates. TODO: rename it there.
#[doc(hidden)]
pub use protocol::LiveProtocol as Protocol;

/// Where a line is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stage {
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
pub struct Heard {
    /// The lines that are about the turn, for a decoder.
    pub said: Vec<u8>,
    /// What the process waits for.
    pub reply: Vec<u8>,
}

/// One process that stays, as a conversation.
#[derive(Debug)]
pub struct Line {
    lines: Lines,
    stage: Stage,
    speaker: Speaker,
    /// It has said anything since it was told a turn, or need not.
    answers: bool,
}

#[derive(Debug)]
enum Speaker {
    Claude(claude::Claude),
    AppServer(app_server::AppServer),
    Acp(acp::Acp),
}

impl Line {
    /// A line to a process that was just started, and what to write to it.
    #[must_use]
    pub fn new(protocol: LiveProtocol, greeting: Greeting) -> (Self, Vec<u8>) {
        let (speaker, words) = match protocol {
            LiveProtocol::Claude => {
                let (claude, words) = claude::Claude::greet(greeting);
                (Speaker::Claude(claude), words)
            }
            LiveProtocol::AppServer => {
                let (server, words) = app_server::AppServer::greet(greeting);
                (Speaker::AppServer(server), words)
            }
            LiveProtocol::Acp => {
                let (acp, words) = acp::Acp::greet(greeting);
                (Speaker::Acp(acp), words)
            }
        };
        (Self { lines: Lines::default(), stage: Stage::Booting, speaker, answers: true }, words)
    }

    #[must_use]
    pub fn stage(&self) -> &Stage {
        &self.stage
    }

    /// Tells it a turn: what to write. `session` is a conversation of its own that it is to go on with, and is not in yet.
    /// Nothing, if it cannot take one.
    pub fn say(&mut self, prompt: &str, session: Option<&str>) -> Option<Vec<u8>> {
        if self.stage != Stage::Ready {
            return None;
        }
        let words = match &mut self.speaker {
            Speaker::Claude(claude) if session.is_none() => Some(claude.say(prompt)),
            Speaker::AppServer(server) => Some(server.say(prompt, session)),
            Speaker::Acp(acp) if session.is_none() => Some(acp.say(prompt)),
            // They go on with what is over only when they are started for it.
            Speaker::Claude(_) | Speaker::Acp(_) => None,
        }?;
        self.stage = Stage::Busy;
        // By this protocol the first word may be the model's, which may think for as long as it likes.
        self.answers = matches!(self.speaker, Speaker::Acp(_));
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
        if self.stage != Stage::Busy {
            return Vec::new();
        }
        match &mut self.speaker {
            Speaker::Claude(claude) => claude.interrupt(),
            Speaker::AppServer(server) => server.interrupt(),
            Speaker::Acp(acp) => acp.interrupt(),
        }
    }

    /// Takes the next bytes, cut anywhere.
    pub fn hear(&mut self, bytes: &[u8]) -> Heard {
        let mut whole = Vec::new();
        self.lines.push(bytes, |line| whole.push(line));
        let mut heard = Heard::default();
        for line in whole {
            match line {
                lines::Line::Whole(line) => self.line(&line, &mut heard),
                lines::Line::Overlong { head, bytes } if self.stage == Stage::Busy => {
                    pass(&format!("{head}… [a line of {bytes} bytes was left out]"), &mut heard);
                }
                lines::Line::Overlong { .. } => {}
            }
        }
        heard
    }

    fn line(&mut self, line: &str, heard: &mut Heard) {
        let busy = self.stage == Stage::Busy;
        let Ok(message) = serde_json::from_str::<Value>(line) else {
            // Noise, or JSON that only a decoder can read.
            if busy && !line.trim().is_empty() {
                pass(line, heard);
            }
            return;
        };
        self.answers = true;
        let meaning = match &mut self.speaker {
            Speaker::Claude(claude) => claude.hear(&message, &mut heard.reply),
            Speaker::AppServer(server) => server.hear(&message, &mut heard.reply),
            Speaker::Acp(acp) => acp.hear(&message, &mut heard.reply),
        };
        match meaning {
            Meaning::Said | Meaning::SaidLast if busy => {
                pass(line, heard);
                if matches!(meaning, Meaning::SaidLast) {
                    self.stage = Stage::Ready;
                }
            }
            Meaning::SaidWith(note) if busy => {
                pass(line, heard);
                pass(&note.to_string(), heard);
            }
            // Of a turn that is over, or was never asked for.
            Meaning::Said | Meaning::SaidLast | Meaning::SaidWith(_) | Meaning::Nothing => {}
            Meaning::Ready if self.stage == Stage::Booting => self.stage = Stage::Ready,
            Meaning::Ready => {}
            Meaning::Broken(why) => self.stage = Stage::Broken(why),
        }
    }
}

fn pass(line: &str, heard: &mut Heard) {
    heard.said.extend_from_slice(line.as_bytes());
    heard.said.push(b'\n');
}

#[cfg(test)]
mod tests;

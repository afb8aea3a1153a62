//! What a run is doing, as far as what it prints tells: the watchdog's patience depends on it.
//!
//! [`Phases`] is a state machine without a clock. Whoever reads a run tells it what was seen; it says in which [`Phase`]
//! that leaves the run.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::event::Event;

/// What a run is doing now.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(tag = "phase", rename_all = "snake_case")]
pub enum Phase {
    /// It has printed nothing yet.
    #[default]
    Starting,
    /// It waits for its model.
    Thinking,
    /// Tools are at work; the one that began first comes first.
    Tool { names: Vec<String> },
    /// It makes its context shorter, which takes a model's time and prints nothing.
    Compacting,
    /// Its model did not answer, and it tries again by itself after this time.
    Retrying {
        #[serde(rename = "wait_ms", with = "millis")]
        wait: Duration,
    },
    /// It has said its last word; only its exit is awaited.
    Ended,
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Starting => f.write_str("starting"),
            Self::Thinking => f.write_str("waiting for the model"),
            Self::Tool { names } => match names.as_slice() {
                [] => f.write_str("running a tool"),
                [name] => write!(f, "running {name}"),
                [name, others @ ..] => write!(f, "running {name} and {} more", others.len()),
            },
            Self::Compacting => f.write_str("compacting its context"),
            Self::Retrying { .. } => f.write_str("waiting to try again"),
            Self::Ended => f.write_str("finishing"),
        }
    }
}

/// How many tools are kept track of: who starts more has lost count itself.
const MOST_TOOLS: usize = 256;

/// The longest name of a tool that is kept.
const LONGEST_NAME: usize = 80;

/// Follows a run from phase to phase.
#[derive(Debug, Default)]
pub struct Phases {
    heard: bool,
    /// Those that run, by id: they end in any order.
    tools: Vec<(String, String)>,
    compacting: bool,
    retrying: Option<Duration>,
    ended: bool,
}

impl Phases {
    #[must_use]
    pub fn now(&self) -> Phase {
        match (self.ended, self.heard, self.compacting, self.retrying) {
            (true, ..) => Phase::Ended,
            (false, false, ..) => Phase::Starting,
            (false, true, true, _) => Phase::Compacting,
            (false, true, false, _) if !self.tools.is_empty() => {
                Phase::Tool { names: self.tools.iter().map(|(_, name)| name.clone()).collect() }
            }
            (false, true, false, Some(wait)) => Phase::Retrying { wait },
            (false, true, false, None) => Phase::Thinking,
        }
    }

    /// Something was printed, whatever it means.
    pub fn heard(&mut self) {
        self.heard = true;
    }

    /// The answer goes on. Who speaks has its tools' results: one whose end was never told is over, too.
    pub fn spoke(&mut self) {
        self.thought();
        self.tools.clear();
    }

    /// The model is at work again.
    pub fn thought(&mut self) {
        (self.heard, self.compacting, self.retrying) = (true, false, None);
    }

    pub fn tool_started(&mut self, id: &str, name: &str) {
        self.thought();
        if !id.is_empty() {
            self.tools.retain(|(known, _)| known != id);
        }
        if self.tools.len() >= MOST_TOOLS {
            self.tools.remove(0);
        }
        self.tools.push((id.to_owned(), name.chars().take(LONGEST_NAME).collect()));
    }

    /// One that has no id is taken to be the oldest.
    pub fn tool_finished(&mut self, id: &str) {
        self.heard = true;
        if let Some(at) = self.tools.iter().position(|(known, _)| id.is_empty() || known == id) {
            self.tools.remove(at);
        }
    }

    /// The context is made shorter: this begins it, and ends it.
    pub fn compacting(&mut self, begins: bool) {
        (self.heard, self.compacting) = (true, begins);
    }

    pub fn retrying(&mut self, wait: Duration) {
        (self.heard, self.retrying) = (true, Some(wait));
    }

    pub fn ended(&mut self) {
        self.ended = true;
    }

    /// As much as an event tells.
    pub fn hear(&mut self, event: &Event) {
        match event {
            Event::Text { .. } => self.spoke(),
            Event::Thinking { .. } | Event::ToolCall { .. } => self.thought(),
            Event::ToolStarted { id, name, .. } => self.tool_started(id, name),
            Event::ToolFinished { id, .. } => self.tool_finished(id),
            Event::Finished(_) | Event::Failed(_) => self.ended(),
            // Another try begins where this one did.
            Event::Attempted(_) => *self = Self::default(),
            Event::Started { .. } | Event::Notice { .. } | Event::Unknown { .. } | Event::Workspace(_) => self.heard(),
        }
    }
}

mod millis {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<S: Serializer>(wait: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        u64::try_from(wait.as_millis()).unwrap_or(u64::MAX).serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        Ok(Duration::from_millis(u64::deserialize(deserializer)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Clone, Copy)]
    enum Sign {
        Heard,
        Spoke,
        Thought,
        Start(&'static str, &'static str),
        Finish(&'static str),
        Compacting(bool),
        Retrying(u64),
        Ended,
    }
    use Sign::*;

    fn after(signs: &[Sign]) -> String {
        let mut phases = Phases::default();
        for sign in signs {
            match *sign {
                Heard => phases.heard(),
                Spoke => phases.spoke(),
                Thought => phases.thought(),
                Start(id, name) => phases.tool_started(id, name),
                Finish(id) => phases.tool_finished(id),
                Compacting(begins) => phases.compacting(begins),
                Retrying(seconds) => phases.retrying(Duration::from_secs(seconds)),
                Ended => phases.ended(),
            }
        }
        phases.now().to_string()
    }

    #[test]
    fn what_was_seen_says_what_goes_on() {
        let thinking = "waiting for the model";
        for (signs, phase) in [
            (&[][..], "starting"),
            (&[Heard], thinking),
            (&[Heard, Spoke], thinking),
            (&[Start("a", "Bash")], "running Bash"),
            (&[Start("a", "Bash"), Finish("a")], thinking),
            // Tools beside each other, ending in any order.
            (&[Start("a", "Bash"), Start("b", "Read"), Start("c", "Grep")], "running Bash and 2 more"),
            (&[Start("a", "Bash"), Start("b", "Read"), Finish("a")], "running Read"),
            (&[Start("a", "Bash"), Start("b", "Read"), Finish("b"), Finish("a")], thinking),
            (&[Start("a", "Bash"), Start("a", "Bash"), Finish("a")], thinking),
            (&[Start("a", "Bash"), Finish("z")], "running Bash"),
            (&[Start("", "Bash"), Start("", "Read"), Finish("")], "running Read"),
            // An end that was never told.
            (&[Start("a", "Bash"), Thought], "running Bash"),
            (&[Start("a", "Bash"), Spoke], thinking),
            (&[Spoke, Compacting(true)], "compacting its context"),
            (&[Start("a", "Bash"), Compacting(true)], "compacting its context"),
            (&[Compacting(true), Compacting(false)], thinking),
            (&[Compacting(true), Thought], thinking),
            (&[Compacting(true), Start("a", "Bash")], "running Bash"),
            (&[Retrying(5)], "waiting to try again"),
            (&[Retrying(5), Heard], "waiting to try again"),
            (&[Retrying(5), Thought], thinking),
            (&[Retrying(5), Spoke, Retrying(5), Start("a", "Bash"), Finish("a")], thinking),
            (&[Start("a", "Bash"), Ended], "finishing"),
        ] {
            assert_eq!(after(signs), phase, "{signs:?}");
        }
    }

    #[test]
    fn a_flood_of_tools_is_not_remembered() {
        let mut phases = Phases::default();
        for n in 0..10_000 {
            phases.tool_started(&n.to_string(), &"x".repeat(1000));
        }
        let Phase::Tool { names } = phases.now() else { panic!("{:?}", phases.now()) };
        assert_eq!((names.len(), names[0].len()), (MOST_TOOLS, LONGEST_NAME));
    }

    #[test]
    fn a_phase_is_plain_data() {
        let tool = Phase::Tool { names: vec!["Bash".to_owned()] };
        assert_eq!(serde_json::to_string(&tool).unwrap(), r#"{"phase":"tool","names":["Bash"]}"#);
        let retrying = Phase::Retrying { wait: Duration::from_millis(1500) };
        let written = serde_json::to_string(&retrying).unwrap();
        assert_eq!(written, r#"{"phase":"retrying","wait_ms":1500}"#);
        assert_eq!(serde_json::from_str::<Phase>(&written).unwrap(), retrying);
    }
}

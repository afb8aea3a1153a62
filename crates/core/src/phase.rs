//! Phases of a run, derived from its output. The watchdog's limits depend on the phase.
//!
//! [`Phases`] is a state machine without a clock: the reader of a run reports what it saw, and [`Phases::now`] returns the
//! current [`Phase`].

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::event::Event;

/// Current activity of a run.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(tag = "phase", rename_all = "snake_case")]
pub enum Phase {
    /// Nothing was printed yet.
    #[default]
    Starting,
    /// The run waits for its model.
    Thinking,
    /// Tools run; the one that started first comes first.
    Tool { names: Vec<String> },
    /// The context is compacted, which takes a model call and prints nothing.
    Compacting,
    /// The model did not answer, and the CLI retries by itself after this delay.
    Retrying {
        #[serde(rename = "wait_ms", with = "millis")]
        wait: Duration,
    },
    /// The turn is over; only the exit of the process is awaited.
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

/// Maximum number of running tools that are tracked. The oldest is dropped when there are more.
const MAX_TRACKED_TOOLS: usize = 256;

/// Longer tool names are cut.
const MAX_TOOL_NAME_CHARS: usize = 80;

/// Tracks the phase of a run.
#[derive(Debug, Default)]
pub struct Phases {
    /// Anything was printed.
    heard: bool,
    /// Running tools: id and name. They end in any order.
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

    /// Something was printed.
    pub fn heard(&mut self) {
        self.heard = true;
    }

    /// A piece of the answer came. The model has the results of its tools, so tools whose end was not reported are over.
    pub fn spoke(&mut self) {
        self.thought();
        self.tools.clear();
    }

    /// The model works again.
    pub fn thought(&mut self) {
        (self.heard, self.compacting, self.retrying) = (true, false, None);
    }

    pub fn tool_started(&mut self, id: &str, name: &str) {
        self.thought();
        if !id.is_empty() {
            self.tools.retain(|(known, _)| known != id);
        }
        if self.tools.len() >= MAX_TRACKED_TOOLS {
            self.tools.remove(0);
        }
        self.tools.push((id.to_owned(), name.chars().take(MAX_TOOL_NAME_CHARS).collect()));
    }

    /// A tool ended. Without an id it is taken to be the oldest.
    pub fn tool_finished(&mut self, id: &str) {
        self.heard = true;
        if let Some(at) = self.tools.iter().position(|(known, _)| id.is_empty() || known == id) {
            self.tools.remove(at);
        }
    }

    /// Compaction of the context began, or ended.
    pub fn compacting(&mut self, begins: bool) {
        (self.heard, self.compacting) = (true, begins);
    }

    pub fn retrying(&mut self, wait: Duration) {
        (self.heard, self.retrying) = (true, Some(wait));
    }

    pub fn ended(&mut self) {
        self.ended = true;
    }

    /// Updates the phase from an event.
    pub fn hear(&mut self, event: &Event) {
        match event {
            Event::Text { .. } => self.spoke(),
            Event::Thinking { .. } | Event::ToolCall { .. } => self.thought(),
            Event::ToolStarted { id, name, .. } => self.tool_started(id, name),
            Event::ToolFinished { id, .. } => self.tool_finished(id),
            Event::Finished(_) | Event::Failed(_) => self.ended(),
            // The next attempt starts from the beginning.
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
    enum PhaseSignal {
        Heard,
        Spoke,
        Thought,
        Start(&'static str, &'static str),
        Finish(&'static str),
        Compacting(bool),
        Retrying(u64),
        Ended,
    }
    use PhaseSignal::*;

    fn after(signals: &[PhaseSignal]) -> String {
        let mut phases = Phases::default();
        for signal in signals {
            match *signal {
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
    fn the_phase_follows_from_what_was_seen() {
        let thinking = "waiting for the model";
        for (signals, phase) in [
            (&[][..], "starting"),
            (&[Heard], thinking),
            (&[Heard, Spoke], thinking),
            (&[Start("a", "Bash")], "running Bash"),
            (&[Start("a", "Bash"), Finish("a")], thinking),
            // Concurrent tools that end in any order.
            (&[Start("a", "Bash"), Start("b", "Read"), Start("c", "Grep")], "running Bash and 2 more"),
            (&[Start("a", "Bash"), Start("b", "Read"), Finish("a")], "running Read"),
            (&[Start("a", "Bash"), Start("b", "Read"), Finish("b"), Finish("a")], thinking),
            (&[Start("a", "Bash"), Start("a", "Bash"), Finish("a")], thinking),
            (&[Start("a", "Bash"), Finish("z")], "running Bash"),
            (&[Start("", "Bash"), Start("", "Read"), Finish("")], "running Read"),
            // A tool whose end was not reported.
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
            assert_eq!(after(signals), phase, "{signals:?}");
        }
    }

    #[test]
    fn tracked_tools_are_bounded() {
        let mut phases = Phases::default();
        for n in 0..10_000 {
            phases.tool_started(&n.to_string(), &"x".repeat(1000));
        }
        let Phase::Tool { names } = phases.now() else { panic!("{:?}", phases.now()) };
        assert_eq!((names.len(), names[0].len()), (MAX_TRACKED_TOOLS, MAX_TOOL_NAME_CHARS));
    }

    #[test]
    fn phases_are_serialized_as_plain_data() {
        let tool = Phase::Tool { names: vec!["Bash".to_owned()] };
        assert_eq!(serde_json::to_string(&tool).unwrap(), r#"{"phase":"tool","names":["Bash"]}"#);
        let retrying = Phase::Retrying { wait: Duration::from_millis(1500) };
        let written = serde_json::to_string(&retrying).unwrap();
        assert_eq!(written, r#"{"phase":"retrying","wait_ms":1500}"#);
        assert_eq!(serde_json::from_str::<Phase>(&written).unwrap(), retrying);
    }
}

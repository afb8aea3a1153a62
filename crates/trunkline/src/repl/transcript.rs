//! What was said in a conversation, on disk: a line of JSON for each step, in a file of its own.
//!
//! Nothing here may disturb the conversation: a disk that is full is told of once.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde_json::Value;
use trunkline_core::event::{Event, SessionId};
use trunkline_core::secret::Secrets;

use super::plain::shortened;
use super::private;

/// Where the category of a failure would be, for a turn that never began.
pub(super) const REFUSED: &str = "refused";

/// How much of a tool's output is kept.
const LONGEST_OUTPUT: usize = 16 * 1024;

#[derive(Debug)]
pub(crate) struct Transcript {
    path: PathBuf,
    /// Made with the first thing that is said.
    file: Option<File>,
    /// It failed, and that was said.
    broken: bool,
    secrets: Secrets,
    /// What is being said.
    text: String,
    /// The session that was written down.
    session: Option<SessionId>,
}

/// A step, as it is written.
#[derive(Debug, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(super) enum Step<'a> {
    User {
        model: &'a str,
        text: &'a str,
    },
    Assistant {
        text: &'a str,
    },
    Session {
        session: &'a str,
    },
    /// What follows goes on with this one.
    Resumed {
        session: &'a str,
    },
    Tool {
        name: &'a str,
        input: &'a Value,
    },
    ToolResult {
        ok: bool,
        output: &'a str,
    },
    Failed {
        category: &'a str,
        message: &'a str,
    },
    Interrupted,
    Cleared,
    Shell {
        command: &'a str,
    },
}

/// Where they are.
pub(super) fn folder(state: &Path) -> PathBuf {
    state.join("transcripts")
}

#[derive(Serialize)]
struct Record<'a> {
    time: jiff::Timestamp,
    #[serde(flatten)]
    step: Step<'a>,
}

impl Transcript {
    pub(crate) fn new(state: &Path, secrets: Secrets) -> Self {
        let time = jiff::Timestamp::now().strftime("%Y%m%dT%H%M%SZ");
        let name = format!("{time}-{}.jsonl", std::process::id());
        let path = folder(state).join(name);
        Self { path, file: None, broken: false, secrets, text: String::new(), session: None }
    }

    /// Adds a step; the error of the first that could not be written.
    pub(super) fn add(&mut self, step: Step<'_>) -> Result<(), String> {
        if self.broken {
            return Ok(());
        }
        if matches!(step, Step::Cleared) {
            self.session = None;
        }
        self.write(step).map_err(|error| {
            self.broken = true;
            format!("no transcript is kept: cannot write {}: {error}", self.path.display())
        })
    }

    /// The name of its file, once there is one.
    pub(super) fn name(&self) -> Option<&str> {
        self.path.file_name()?.to_str().filter(|_| self.file.is_some() && !self.broken)
    }

    /// Adds what an event says.
    pub(super) fn hear(&mut self, event: &Event) -> Result<(), String> {
        match event {
            Event::Text { delta } => {
                self.text.push_str(delta);
                Ok(())
            }
            Event::Started { session: Some(session), .. } if self.session.as_ref() != Some(session) => {
                self.session = Some(session.clone());
                self.add(Step::Session { session: &session.0 })
            }
            Event::ToolStarted { name, input, .. } => {
                self.said()?;
                self.add(Step::Tool { name, input })
            }
            Event::ToolFinished { ok, output, .. } => {
                self.add(Step::ToolResult { ok: *ok, output: &shortened(output, LONGEST_OUTPUT) })
            }
            Event::Finished(_) => self.said(),
            Event::Failed(failure) => {
                self.said()?;
                self.add(Step::Failed { category: failure.category.name(), message: &failure.message })
            }
            Event::Started { .. }
            | Event::Thinking { .. }
            | Event::ToolCall { .. }
            | Event::Notice { .. }
            | Event::Unknown { .. }
            | Event::Workspace(_)
            | Event::Attempted(_) => Ok(()),
        }
    }

    /// Writes down what was said so far.
    pub(super) fn said(&mut self) -> Result<(), String> {
        let text = std::mem::take(&mut self.text);
        if text.trim().is_empty() { Ok(()) } else { self.add(Step::Assistant { text: text.trim() }) }
    }

    fn write(&mut self, step: Step<'_>) -> io::Result<()> {
        let record = serde_json::to_string(&Record { time: jiff::Timestamp::now(), step })?;
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(private::open(&self.path)?),
        };
        // Whole lines: one that was cut off would spoil the next.
        file.write_all(format!("{}\n", self.secrets.mask(&record)).as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use trunkline_core::event::{Answer, Finish, Usage};

    use super::*;

    #[test]
    fn what_was_said_is_written_down_and_secrets_are_not() {
        let state = tempfile::tempdir().unwrap();
        let mut transcript = Transcript::new(state.path(), Secrets::new(["tops3cret".to_owned()]));
        assert!(!state.path().join("transcripts").exists(), "nothing was said");
        transcript.add(Step::User { model: "m", text: "it is tops3cret" }).unwrap();
        for event in [
            Event::Started { session: Some(SessionId("s".into())), model: None },
            Event::Started { session: Some(SessionId("s".into())), model: Some("said again".into()) },
            Event::Text { delta: "I'll ".into() },
            Event::Text { delta: "look.\n".into() },
            Event::ToolStarted { id: "1".into(), name: "bash".into(), input: json!({"command": "ls"}) },
            Event::ToolFinished { id: "1".into(), output: "x".repeat(2 * LONGEST_OUTPUT), ok: true },
            Event::Text { delta: "Done.".into() },
            Event::Finished(Answer::new("Done.", Usage::default(), Finish::Stop)),
        ] {
            transcript.hear(&event).unwrap();
        }
        let text = std::fs::read_to_string(&transcript.path).unwrap();
        let records: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let kinds: Vec<&str> = records.iter().map(|record| record["kind"].as_str().unwrap()).collect();
        assert_eq!(kinds, ["user", "session", "assistant", "tool", "tool_result", "assistant"]);
        assert_eq!((&records[0]["text"], &records[0]["model"]), (&json!("it is ***"), &json!("m")));
        assert_eq!((&records[2]["text"], &records[5]["text"]), (&json!("I'll look."), &json!("Done.")));
        assert!(records.iter().all(|record| record["time"].is_string()));
        assert!(text.len() < 2 * LONGEST_OUTPUT);
    }

    #[test]
    fn a_disk_that_refuses_is_told_of_once() {
        let state = tempfile::tempdir().unwrap();
        std::fs::write(state.path().join("transcripts"), "in the way").unwrap();
        let mut transcript = Transcript::new(state.path(), Secrets::default());
        let error = transcript.add(Step::Cleared).unwrap_err();
        assert!(error.starts_with("no transcript is kept: cannot write "), "{error}");
        transcript.add(Step::Cleared).unwrap();
    }
}

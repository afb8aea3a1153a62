//! Transcript of a conversation: a file with one line of JSON per step.
//!
//! A failure to write must not disturb the conversation: it is reported once.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde_json::Value;
use trunkline_core::event::{Event, SessionId};
use trunkline_core::secret::Secrets;

use super::plain::shortened;
use super::private_file;

/// Category of a failure for a turn that was not started.
pub(super) const REFUSED: &str = "refused";

/// Limit of a tool's output in the transcript.
const MAX_OUTPUT_CHARS: usize = 16 * 1024;

#[derive(Debug)]
pub(crate) struct ReplTranscript {
    path: PathBuf,
    /// Created with the first step.
    file: Option<File>,
    /// Writing failed, and that was reported.
    broken: bool,
    secrets: Secrets,
    /// Text of the answer that is not written yet.
    text: String,
    /// The session that was written last.
    session: Option<SessionId>,
}

/// A step of the conversation.
#[derive(Debug, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(super) enum TranscriptStep<'a> {
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
    /// The following steps continue this session.
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

/// Folder of the transcripts.
pub(super) fn folder(state: &Path) -> PathBuf {
    state.join("transcripts")
}

#[derive(Serialize)]
struct TranscriptLine<'a> {
    time: jiff::Timestamp,
    #[serde(flatten)]
    step: TranscriptStep<'a>,
}

impl ReplTranscript {
    pub(crate) fn new(state: &Path, secrets: Secrets) -> Self {
        let time = jiff::Timestamp::now().strftime("%Y%m%dT%H%M%SZ");
        let name = format!("{time}-{}.jsonl", std::process::id());
        let path = folder(state).join(name);
        Self { path, file: None, broken: false, secrets, text: String::new(), session: None }
    }

    /// Adds a step. Returns an error only the first time.
    pub(super) fn add(&mut self, step: TranscriptStep<'_>) -> Result<(), String> {
        if self.broken {
            return Ok(());
        }
        if matches!(step, TranscriptStep::Cleared) {
            self.session = None;
        }
        self.write(step).map_err(|error| {
            self.broken = true;
            format!("no transcript is kept: cannot write {}: {error}", self.path.display())
        })
    }

    /// Name of its file, if it was created.
    pub(super) fn name(&self) -> Option<&str> {
        self.path.file_name()?.to_str().filter(|_| self.file.is_some() && !self.broken)
    }

    /// Adds an event.
    pub(super) fn add_event(&mut self, event: &Event) -> Result<(), String> {
        match event {
            Event::Text { delta } => {
                self.text.push_str(delta);
                Ok(())
            }
            Event::Started { session: Some(session), .. } if self.session.as_ref() != Some(session) => {
                self.session = Some(session.clone());
                self.add(TranscriptStep::Session { session: &session.0 })
            }
            Event::ToolStarted { name, input, .. } => {
                self.flush_text()?;
                self.add(TranscriptStep::Tool { name, input })
            }
            Event::ToolFinished { ok, output, .. } => {
                self.add(TranscriptStep::ToolResult { ok: *ok, output: &shortened(output, MAX_OUTPUT_CHARS) })
            }
            Event::Finished(_) => self.flush_text(),
            Event::Failed(failure) => {
                self.flush_text()?;
                self.add(TranscriptStep::Failed { category: failure.category.name(), message: &failure.message })
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

    /// Writes the text of the answer so far.
    pub(super) fn flush_text(&mut self) -> Result<(), String> {
        let text = std::mem::take(&mut self.text);
        if text.trim().is_empty() { Ok(()) } else { self.add(TranscriptStep::Assistant { text: text.trim() }) }
    }

    fn write(&mut self, step: TranscriptStep<'_>) -> io::Result<()> {
        let record = serde_json::to_string(&TranscriptLine { time: jiff::Timestamp::now(), step })?;
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(private_file::open(&self.path)?),
        };
        // One write per line: an incomplete line would spoil the next one.
        file.write_all(format!("{}\n", self.secrets.mask(&record)).as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use trunkline_core::event::{Answer, Finish, Usage};

    use super::*;

    #[test]
    fn writes_the_conversation_and_masks_secrets() {
        let state = tempfile::tempdir().unwrap();
        let mut transcript = ReplTranscript::new(state.path(), Secrets::new(["tops3cret".to_owned()]));
        assert!(!state.path().join("transcripts").exists(), "no step was added");
        transcript.add(TranscriptStep::User { model: "m", text: "it is tops3cret" }).unwrap();
        for event in [
            Event::Started { session: Some(SessionId("s".into())), model: None },
            Event::Started { session: Some(SessionId("s".into())), model: Some("said again".into()) },
            Event::Text { delta: "I'll ".into() },
            Event::Text { delta: "look.\n".into() },
            Event::ToolStarted { id: "1".into(), name: "bash".into(), input: json!({"command": "ls"}) },
            Event::ToolFinished { id: "1".into(), output: "x".repeat(2 * MAX_OUTPUT_CHARS), ok: true },
            Event::Text { delta: "Done.".into() },
            Event::Finished(Answer::new("Done.", Usage::default(), Finish::Stop)),
        ] {
            transcript.add_event(&event).unwrap();
        }
        let text = std::fs::read_to_string(&transcript.path).unwrap();
        let records: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let kinds: Vec<&str> = records.iter().map(|record| record["kind"].as_str().unwrap()).collect();
        assert_eq!(kinds, ["user", "session", "assistant", "tool", "tool_result", "assistant"]);
        assert_eq!((&records[0]["text"], &records[0]["model"]), (&json!("it is ***"), &json!("m")));
        assert_eq!((&records[2]["text"], &records[5]["text"]), (&json!("I'll look."), &json!("Done.")));
        assert!(records.iter().all(|record| record["time"].is_string()));
        assert!(text.len() < 2 * MAX_OUTPUT_CHARS);
    }

    #[test]
    fn reports_once_when_the_file_cannot_be_written() {
        let state = tempfile::tempdir().unwrap();
        std::fs::write(state.path().join("transcripts"), "in the way").unwrap();
        let mut transcript = ReplTranscript::new(state.path(), Secrets::default());
        let error = transcript.add(TranscriptStep::Cleared).unwrap_err();
        assert!(error.starts_with("no transcript is kept: cannot write "), "{error}");
        transcript.add(TranscriptStep::Cleared).unwrap();
    }
}

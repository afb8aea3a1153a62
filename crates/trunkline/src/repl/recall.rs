//! Reads the messages of an earlier conversation from its transcripts, for a model that does not have the session.

use std::collections::HashMap;
use std::fs;
use std::path::PathBuf;

use serde::Deserialize;
use trunkline_core::conversation::INTERRUPTED;
use trunkline_core::event::SessionId;
use trunkline_core::turn::Role;

use super::transcript::REFUSED;

/// The part of a step that is needed here. Other steps and incomplete lines are skipped.
#[derive(Debug, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
enum RecalledStep {
    User {
        text: String,
    },
    Assistant {
        text: String,
    },
    Tool,
    Session {
        session: SessionId,
    },
    Resumed {
        session: SessionId,
    },
    Failed {
        category: String,
    },
    Interrupted,
    Cleared,
    #[serde(other)]
    Other,
}

type RecalledMessages = Vec<(Role, String)>;

/// Messages of a session, from the transcripts of its conversation, oldest first. Missing files are skipped.
pub(super) fn recall(transcripts: impl IntoIterator<Item = PathBuf>, session: &SessionId) -> RecalledMessages {
    let mut reading = TranscriptReader::default();
    for path in transcripts {
        let text = fs::read(path).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).for_each(|step| reading.step(step));
        reading.end();
    }
    reading.known.remove(session).unwrap_or_default()
}

#[derive(Default)]
struct TranscriptReader {
    messages: RecalledMessages,
    /// Session that the messages belong to.
    session: Option<SessionId>,
    known: HashMap<SessionId, RecalledMessages>,
}

impl TranscriptReader {
    fn step(&mut self, step: RecalledStep) {
        match step {
            RecalledStep::User { text } => self.messages.push((Role::User, text)),
            RecalledStep::Assistant { text } => self.messages.push((Role::Assistant, text)),
            // Text before a tool call is not the answer.
            RecalledStep::Tool => self.drop_last(Role::Assistant),
            RecalledStep::Interrupted if self.last() == Some(Role::User) => {
                self.messages.push((Role::Assistant, INTERRUPTED.to_owned()));
            }
            RecalledStep::Failed { category } if category == REFUSED => self.drop_last(Role::User),
            RecalledStep::Cleared => self.end(),
            RecalledStep::Resumed { session } => {
                self.messages = self.known.get(&session).cloned().unwrap_or_default();
                self.session = Some(session);
            }
            RecalledStep::Session { session } => self.change_to(session),
            RecalledStep::Interrupted | RecalledStep::Failed { .. } | RecalledStep::Other => {}
        }
    }

    /// Another session answers the last message, which is then not part of the previous session.
    fn change_to(&mut self, session: SessionId) {
        if let Some(before) = self.session.replace(session).filter(|before| self.session.as_ref() != Some(before)) {
            let asked = usize::from(self.last() == Some(Role::User));
            self.known.insert(before, self.messages[..self.messages.len() - asked].to_vec());
        }
    }

    fn end(&mut self) {
        let messages = std::mem::take(&mut self.messages);
        if let Some(session) = self.session.take() {
            self.known.insert(session, messages);
        }
    }

    fn last(&self) -> Option<Role> {
        self.messages.last().map(|(role, _)| *role)
    }

    fn drop_last(&mut self, role: Role) {
        if self.last() == Some(role) {
            self.messages.pop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recalled(transcripts: &[&[&str]], session: &str) -> Vec<String> {
        let folder = tempfile::tempdir().unwrap();
        let mut paths = vec![folder.path().join("gone")];
        for (at, steps) in transcripts.iter().enumerate() {
            paths.push(folder.path().join(at.to_string()));
            fs::write(&paths[at + 1], steps.join("\n")).unwrap();
        }
        recall(paths, &SessionId(session.into())).into_iter().map(|(_, text)| text).collect()
    }

    const ONE: &str = r#"{"time":"2025-01-01T00:00:00Z","kind":"user","model":"a","text":"one"}"#;
    const TWO: &str = r#"{"kind":"user","text":"two"}"#;
    const LOOK: &str = r#"{"kind":"assistant","text":"let me look"}"#;
    const TOOL: &str = r#"{"kind":"tool","name":"bash","input":{}}"#;
    const DONE: &str = r#"{"kind":"assistant","text":"done"}"#;
    const S: &str = r#"{"kind":"session","session":"s"}"#;
    const T: &str = r#"{"kind":"session","session":"t"}"#;
    const RESUMED: &str = r#"{"kind":"resumed","session":"s"}"#;
    const CLEARED: &str = r#"{"kind":"cleared"}"#;
    const INTERRUPT: &str = r#"{"kind":"interrupted"}"#;
    const NEVER_BEGUN: &str = r#"{"kind":"failed","category":"refused","message":"no"}"#;
    const FAILED: &str = r#"{"kind":"failed","category":"server","message":"no"}"#;

    #[test]
    fn reads_messages_from_transcripts() {
        for (steps, s, t) in [
            (vec![ONE, S, LOOK, TOOL, r#"{"kind":"tool_result","ok":true}"#, DONE], vec!["one", "done"], vec![]),
            (vec![ONE, S, DONE, r#"{"kind":"shell","command":"ls"}"#, "half a li"], vec!["one", "done"], vec![]),
            (vec![ONE, S, DONE, TWO, T, LOOK], vec!["one", "done"], vec!["one", "done", "two", "let me look"]),
            (vec![ONE, S, DONE, CLEARED, TWO, T, DONE], vec!["one", "done"], vec!["two", "done"]),
            (vec![ONE, S, INTERRUPT], vec!["one", INTERRUPTED], vec![]),
            (vec![ONE, S, LOOK, TOOL, INTERRUPT], vec!["one", INTERRUPTED], vec![]),
            (vec![ONE, S, LOOK, INTERRUPT], vec!["one", "let me look"], vec![]),
            (vec![ONE, S, DONE, TWO, NEVER_BEGUN], vec!["one", "done"], vec![]),
            (vec![ONE, S, FAILED, TWO, DONE], vec!["one", "two", "done"], vec![]),
        ] {
            assert_eq!((recalled(&[&steps], "s"), recalled(&[&steps], "t")), (owned(&s), owned(&t)), "{steps:?}");
        }
    }

    #[test]
    fn resumed_conversation_continues_in_another_file() {
        let first: &[&str] = &[ONE, S, DONE];
        let again = [first, &[RESUMED, TWO, S, LOOK]];
        assert_eq!(recalled(&again, "s"), owned(&["one", "done", "two", "let me look"]));
        let elsewhere = [first, &[RESUMED, TWO, T, LOOK]];
        assert_eq!(recalled(&elsewhere, "t"), owned(&["one", "done", "two", "let me look"]));
        assert_eq!(recalled(&elsewhere, "s"), owned(&["one", "done"]));
    }

    fn owned(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|&text| text.to_owned()).collect()
    }
}

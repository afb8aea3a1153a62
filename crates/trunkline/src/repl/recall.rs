//! What was said in an earlier conversation, read back from its transcripts: for a model that does not remember it.

use std::collections::HashMap;
use std::fs;
use std::path::PathBuf;

use serde::Deserialize;
use trunkline_core::conversation::INTERRUPTED;
use trunkline_core::event::SessionId;
use trunkline_core::turn::Role;

use super::transcript::REFUSED;

/// As much of a step as says what was said. The rest is passed over, and so is half a line.
#[derive(Debug, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
enum Step {
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

type Said = Vec<(Role, String)>;

/// What was said in a session, by the transcripts of its conversation, the oldest first. One that is gone says nothing.
pub(super) fn recall(transcripts: impl IntoIterator<Item = PathBuf>, session: &SessionId) -> Said {
    let mut reading = Reading::default();
    for path in transcripts {
        let text = fs::read(path).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).for_each(|step| reading.step(step));
        reading.end();
    }
    reading.known.remove(session).unwrap_or_default()
}

#[derive(Default)]
struct Reading {
    said: Said,
    /// Under which name the model remembers it.
    session: Option<SessionId>,
    known: HashMap<SessionId, Said>,
}

impl Reading {
    fn step(&mut self, step: Step) {
        match step {
            Step::User { text } => self.said.push((Role::User, text)),
            Step::Assistant { text } => self.said.push((Role::Assistant, text)),
            // What was said before a tool is not the answer.
            Step::Tool => self.drop_last(Role::Assistant),
            Step::Interrupted if self.last() == Some(Role::User) => {
                self.said.push((Role::Assistant, INTERRUPTED.to_owned()));
            }
            Step::Failed { category } if category == REFUSED => self.drop_last(Role::User),
            Step::Cleared => self.end(),
            Step::Resumed { session } => {
                self.said = self.known.get(&session).cloned().unwrap_or_default();
                self.session = Some(session);
            }
            Step::Session { session } => self.change_to(session),
            Step::Interrupted | Step::Failed { .. } | Step::Other => {}
        }
    }

    /// Another session answers what was just asked: it is no part of the one before.
    fn change_to(&mut self, session: SessionId) {
        if let Some(before) = self.session.replace(session).filter(|before| self.session.as_ref() != Some(before)) {
            let asked = usize::from(self.last() == Some(Role::User));
            self.known.insert(before, self.said[..self.said.len() - asked].to_vec());
        }
    }

    fn end(&mut self) {
        let said = std::mem::take(&mut self.said);
        if let Some(session) = self.session.take() {
            self.known.insert(session, said);
        }
    }

    fn last(&self) -> Option<Role> {
        self.said.last().map(|(role, _)| *role)
    }

    fn drop_last(&mut self, role: Role) {
        if self.last() == Some(role) {
            self.said.pop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(transcripts: &[&[&str]], session: &str) -> Vec<String> {
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
    fn transcripts_and_what_was_said() {
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
            assert_eq!((told(&[&steps], "s"), told(&[&steps], "t")), (owned(&s), owned(&t)), "{steps:?}");
        }
    }

    #[test]
    fn a_conversation_that_was_resumed_goes_on_in_another_file() {
        let first: &[&str] = &[ONE, S, DONE];
        let again = [first, &[RESUMED, TWO, S, LOOK]];
        assert_eq!(told(&again, "s"), owned(&["one", "done", "two", "let me look"]));
        let elsewhere = [first, &[RESUMED, TWO, T, LOOK]];
        assert_eq!(told(&elsewhere, "t"), owned(&["one", "done", "two", "let me look"]));
        assert_eq!(told(&elsewhere, "s"), owned(&["one", "done"]));
    }

    fn owned(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|&text| text.to_owned()).collect()
    }
}

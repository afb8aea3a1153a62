//! How much of an answer a reader has been told as it came, and what is left to tell at its end.
//!
//! Some CLIs name their answer only at the end, after having said something before their last tool; others repeat there
//! what was said all along. The first must not be lost, the second not be told twice.

use trunkline_core::event::{Answer, Event};

/// How much of what was told is kept to compare, in bytes.
const KEPT: usize = 256 * 1024;

#[derive(Debug, Default)]
pub(crate) struct Told {
    /// The end of all text so far: an answer may repeat what stands on both sides of a tool.
    text: String,
    /// Something was said since the last tool: that is the answer.
    since_tool: bool,
}

impl Told {
    pub(crate) fn observe(&mut self, event: &Event) {
        match event {
            Event::Text { delta } => {
                self.text.push_str(delta);
                if self.text.len() > 2 * KEPT {
                    let cut = self.text.ceil_char_boundary(self.text.len() - KEPT);
                    self.text.drain(..cut);
                }
                self.since_tool |= !delta.trim().is_empty();
            }
            Event::ToolStarted { .. } => self.since_tool = false,
            Event::Started { .. }
            | Event::Thinking { .. }
            | Event::ToolFinished { .. }
            | Event::ToolCall { .. }
            | Event::Notice { .. }
            | Event::Unknown { .. }
            | Event::Workspace(_)
            | Event::Attempted(_)
            | Event::Finished(_)
            | Event::Failed(_) => {}
        }
    }

    /// The answer, if nobody has been told it yet; apart from what was said before it.
    pub(crate) fn missing(&self, answer: &Answer) -> Option<String> {
        let content = &answer.content;
        let (told, wanted) = (self.text.trim_end(), content.trim());
        // Of a long one only the end is known.
        let repeated = told.ends_with(wanted) || (told.len() >= KEPT / 2 && wanted.ends_with(told));
        if self.since_tool || content.is_empty() || repeated {
            return None;
        }
        let gap = if self.text.trim().is_empty() { "" } else { "\n\n" };
        Some(format!("{gap}{content}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trunkline_core::event::{Finish, Usage};

    #[test]
    fn a_long_one_is_known_by_its_end() {
        let long = "word ".repeat(KEPT);
        let mut told = Told::default();
        told.observe(&Event::Text { delta: long.clone() });
        told.observe(&Event::ToolStarted { id: "t".into(), name: "n".into(), input: serde_json::Value::Null });
        assert!(told.text.len() <= 2 * KEPT);
        assert_eq!(told.missing(&Answer::new(long, Usage::default(), Finish::Stop)), None);
    }

    #[test]
    fn an_answer_is_told_once() {
        for (said, content, missing) in [
            (&[][..], "", None),
            (&[], "all", Some("all")),
            (&["all"], "all", None),
            (&["a", "ll"], "other", None),
            (&["looking", "TOOL"], "found", Some("\n\nfound")),
            (&["\n", "TOOL"], "found", Some("found")),
            (&["looking", "TOOL", "\n\n"], "found", Some("\n\nfound")),
            (&["looking", "TOOL", "found"], "found", None),
            (&["TOOL", "found", "TOOL"], "done", Some("\n\ndone")),
            // The last words came before the last tool, or on both sides of one.
            (&["looking", "\n\nfound \n", "TOOL"], "found", None),
            (&["one ", "TOOL", "two", "TOOL"], "one two", None),
        ] {
            let mut told = Told::default();
            for &step in said {
                told.observe(&match step {
                    "TOOL" => Event::ToolStarted { id: "t".into(), name: "bash".into(), input: "ls".into() },
                    text => Event::Text { delta: text.into() },
                });
            }
            let answer = Answer::new(content, Usage::default(), Finish::Stop);
            assert_eq!(told.missing(&answer).as_deref(), missing, "{said:?} {content}");
        }
    }
}

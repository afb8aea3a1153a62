//! Tracks the text a client has already received, to find out what is left to send at the end.
//!
//! Some CLIs report their answer only at the end, after having written other text before their last tool. Others repeat
//! there what they streamed before. The former must not be lost, the latter must not be sent twice.

use trunkline_core::event::{Answer, Event};

/// Length of the tail of the delivered text that is kept for comparison. The buffer grows to twice that.
const MAX_TAIL_BYTES: usize = 256 * 1024;

/// Text delivered to the client so far.
#[derive(Debug, Default)]
pub(crate) struct DeliveredText {
    /// The tail of all text so far, including text before a tool: an answer may repeat text from both sides of one.
    tail: String,
    /// Text has arrived since the last tool: that text is the answer.
    since_tool: bool,
}

impl DeliveredText {
    pub(crate) fn observe(&mut self, event: &Event) {
        match event {
            Event::Text { delta } => {
                self.tail.push_str(delta);
                if self.tail.len() > 2 * MAX_TAIL_BYTES {
                    let cut = self.tail.ceil_char_boundary(self.tail.len() - MAX_TAIL_BYTES);
                    self.tail.drain(..cut);
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

    /// Returns the answer if the client has not received it yet, with a blank line between it and earlier text.
    pub(crate) fn missing(&self, answer: &Answer) -> Option<String> {
        let content = &answer.content;
        let (delivered, answer_text) = (self.tail.trim_end(), content.trim());
        // Of a long text only the tail is known.
        let repeated = delivered.ends_with(answer_text)
            || (delivered.len() >= MAX_TAIL_BYTES / 2 && answer_text.ends_with(delivered));
        if self.since_tool || content.is_empty() || repeated {
            return None;
        }
        let gap = if self.tail.trim().is_empty() { "" } else { "\n\n" };
        Some(format!("{gap}{content}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trunkline_core::event::{Finish, Usage};

    #[test]
    fn repeated_answer_is_recognised_by_its_tail_when_text_is_long() {
        let long = "word ".repeat(MAX_TAIL_BYTES);
        let mut delivered = DeliveredText::default();
        delivered.observe(&Event::Text { delta: long.clone() });
        delivered.observe(&Event::ToolStarted { id: "t".into(), name: "n".into(), input: serde_json::Value::Null });
        assert!(delivered.tail.len() <= 2 * MAX_TAIL_BYTES);
        assert_eq!(delivered.missing(&Answer::new(long, Usage::default(), Finish::Stop)), None);
    }

    #[test]
    fn answer_is_delivered_exactly_once() {
        for (steps, content, missing) in [
            (&[][..], "", None),
            (&[], "all", Some("all")),
            (&["all"], "all", None),
            (&["a", "ll"], "other", None),
            (&["looking", "TOOL"], "found", Some("\n\nfound")),
            (&["\n", "TOOL"], "found", Some("found")),
            (&["looking", "TOOL", "\n\n"], "found", Some("\n\nfound")),
            (&["looking", "TOOL", "found"], "found", None),
            (&["TOOL", "found", "TOOL"], "done", Some("\n\ndone")),
            // The answer was streamed before the last tool, or on both sides of one.
            (&["looking", "\n\nfound \n", "TOOL"], "found", None),
            (&["one ", "TOOL", "two", "TOOL"], "one two", None),
        ] {
            let mut delivered = DeliveredText::default();
            for &step in steps {
                delivered.observe(&match step {
                    "TOOL" => Event::ToolStarted { id: "t".into(), name: "bash".into(), input: "ls".into() },
                    text => Event::Text { delta: text.into() },
                });
            }
            let answer = Answer::new(content, Usage::default(), Finish::Stop);
            assert_eq!(delivered.missing(&answer).as_deref(), missing, "{steps:?} {content}");
        }
    }
}

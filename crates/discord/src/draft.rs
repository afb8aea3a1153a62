//! An answer while it is being written: its shown part, and the pace of edits. Pure.

use std::time::Duration;

use crate::backend::Partial;
use crate::split::{MAX_MESSAGE_UNITS, split};

/// Bytes that are kept of the text. Only its end is shown.
const KEPT_BYTES: usize = 16 * 1024;

/// Units reserved for the status line.
const STATUS_UNITS: usize = 160;

/// An unfinished answer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Draft {
    text: String,
    /// The last tool.
    tool: Option<String>,
}

impl Draft {
    pub(crate) fn apply(&mut self, partial: Partial<'_>) {
        match partial {
            Partial::Text(more) => {
                if self.tool.take().is_some() {
                    self.text.clear();
                }
                self.text.push_str(more);
                if self.text.len() > 2 * KEPT_BYTES {
                    let from = self.text.ceil_char_boundary(self.text.len() - KEPT_BYTES);
                    self.text.drain(..from);
                }
            }
            Partial::ToolStarted(what) => self.tool = Some(what.to_owned()),
            // The tool is shown until the next text.
            Partial::ToolFinished => {}
        }
    }

    /// Content of the draft message: the end of the text, and the running tool. `None` while both are empty.
    pub(crate) fn shown(&self) -> Option<String> {
        let text = self.text.trim();
        let status = self.tool.as_ref().map(|tool| {
            let short: String = tool.chars().take(100).collect();
            format!("-# ⏳ {short}")
        });
        let parts = split(text, MAX_MESSAGE_UNITS - STATUS_UNITS);
        let last = parts.last().map(|part| part.rendered()).filter(|last| !last.trim().is_empty());
        let last = last.map(|last| if parts.len() > 1 { format!("…\n{last}") } else { last });
        match (last, status) {
            (Some(last), Some(status)) => Some(format!("{last}\n{status}")),
            (last, status) => last.or(status),
        }
    }

    /// Text of an answer that was stopped.
    pub(crate) fn text(&self) -> &str {
        self.text.trim()
    }
}

/// Interval between two edits. It grows when Discord is slow.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EditPace {
    min_interval: Duration,
    interval: Duration,
}

impl EditPace {
    pub(crate) const DEFAULT_INTERVAL: Duration = Duration::from_millis(1500);
    const MAX_INTERVAL: Duration = Duration::from_secs(15);

    pub(crate) const fn new(min_interval: Duration) -> Self {
        Self { min_interval, interval: min_interval }
    }

    pub(crate) const fn interval(&self) -> Duration {
        self.interval
    }

    /// Adapts the interval to the duration of the last edit, including its rate-limit delay.
    pub(crate) fn succeeded(&mut self, took: Duration) {
        self.interval = (took * 2).clamp(self.min_interval, Self::MAX_INTERVAL.max(self.min_interval));
    }

    pub(crate) fn failed(&mut self) {
        self.interval = (self.interval * 2).min(Self::MAX_INTERVAL.max(self.min_interval));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::split::units;

    fn shown_after(partials: &[Partial<'_>]) -> Option<String> {
        let mut draft = Draft::default();
        partials.iter().for_each(|partial| draft.apply(*partial));
        draft.shown()
    }

    #[test]
    fn shows_text_and_running_tool() {
        use Partial::{Text, ToolFinished, ToolStarted};
        for (partials, shown) in [
            (&[][..], None),
            (&[Text("Hel"), Text("lo")], Some("Hello")),
            (&[ToolStarted("Bash: ls")], Some("-# ⏳ Bash: ls")),
            (&[Text("Let me look."), ToolStarted("Bash: ls")], Some("Let me look.\n-# ⏳ Bash: ls")),
            (&[Text("Let me look."), ToolStarted("Bash: ls"), ToolFinished, Text("Two files.")], Some("Two files.")),
            (&[Text("```sh\nls")], Some("```sh\nls\n```")),
        ] {
            assert_eq!(shown_after(partials).as_deref(), shown, "{partials:?}");
        }
    }

    #[test]
    fn shows_only_the_end_of_a_long_text() {
        let lines: String = (0..100_000).map(|line| format!("line {line}\n")).collect();
        let mut draft = Draft::default();
        for piece in lines.as_bytes().chunks(1000) {
            draft.apply(Partial::Text(std::str::from_utf8(piece).unwrap()));
        }
        draft.apply(Partial::ToolStarted(&"x".repeat(500)));
        let shown = draft.shown().unwrap();
        assert!(
            units(&shown) <= MAX_MESSAGE_UNITS && shown.starts_with("…\n") && shown.contains("line 99999\n"),
            "{shown}"
        );
        assert!(draft.text.len() <= 2 * KEPT_BYTES);
    }

    #[test]
    fn edit_interval_grows_when_discord_is_slow() {
        let mut pace = EditPace::new(EditPace::DEFAULT_INTERVAL);
        assert_eq!(pace.interval(), Duration::from_millis(1500));
        pace.succeeded(Duration::from_millis(80));
        assert_eq!(pace.interval(), Duration::from_millis(1500));
        pace.succeeded(Duration::from_secs(4));
        assert_eq!(pace.interval(), Duration::from_secs(8));
        pace.failed();
        assert_eq!(pace.interval(), Duration::from_secs(15));
        pace.succeeded(Duration::ZERO);
        assert_eq!(pace.interval(), Duration::from_millis(1500));
    }
}

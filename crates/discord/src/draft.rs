//! An answer while it grows: what of it is shown, and how often. Pure.

use std::time::Duration;

use crate::backend::Partial;
use crate::split::{LIMIT, split};

/// What is kept of a growing text: only its end is ever shown.
const KEPT: usize = 16 * 1024;

/// Room for the line about what goes on.
const STATUS: usize = 160;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Draft {
    text: String,
    doing: Option<String>,
}

impl Draft {
    pub(crate) fn hear(&mut self, partial: Partial<'_>) {
        match partial {
            Partial::Text(more) => {
                if self.doing.take().is_some() {
                    self.text.clear();
                }
                self.text.push_str(more);
                if self.text.len() > 2 * KEPT {
                    let from = self.text.ceil_char_boundary(self.text.len() - KEPT);
                    self.text.drain(..from);
                }
            }
            Partial::Doing(what) => self.doing = Some(what.to_owned()),
            // What it did stays on show until there is more to say.
            Partial::Done => {}
        }
    }

    /// The message as it should look now: the end of the text, and what goes on. None while there is nothing to see.
    pub(crate) fn shown(&self) -> Option<String> {
        let text = self.text.trim();
        let status = self.doing.as_ref().map(|doing| {
            let short: String = doing.chars().take(100).collect();
            format!("-# ⏳ {short}")
        });
        let parts = split(text, LIMIT - STATUS);
        let last = parts.last().map(|part| part.rendered()).filter(|last| !last.trim().is_empty());
        let last = last.map(|last| if parts.len() > 1 { format!("…\n{last}") } else { last });
        match (last, status) {
            (Some(last), Some(status)) => Some(format!("{last}\n{status}")),
            (last, status) => last.or(status),
        }
    }

    /// What there is of an answer that was stopped.
    pub(crate) fn so_far(&self) -> &str {
        self.text.trim()
    }
}

/// How long to wait between two edits: longer when Discord makes us wait.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pace {
    least: Duration,
    now: Duration,
}

impl Pace {
    pub(crate) const LEAST: Duration = Duration::from_millis(1500);
    const MOST: Duration = Duration::from_secs(15);

    pub(crate) const fn new(least: Duration) -> Self {
        Self { least, now: least }
    }

    pub(crate) const fn wait(&self) -> Duration {
        self.now
    }

    /// The last edit took this long, waiting for its turn included.
    pub(crate) fn took(&mut self, took: Duration) {
        self.now = (took * 2).clamp(self.least, Self::MOST.max(self.least));
    }

    pub(crate) fn failed(&mut self) {
        self.now = (self.now * 2).min(Self::MOST.max(self.least));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::split::units;

    fn after(partials: &[Partial<'_>]) -> Option<String> {
        let mut draft = Draft::default();
        partials.iter().for_each(|partial| draft.hear(*partial));
        draft.shown()
    }

    #[test]
    fn it_grows_and_tells_what_goes_on() {
        use Partial::{Doing, Done, Text};
        for (partials, shown) in [
            (&[][..], None),
            (&[Text("Hel"), Text("lo")], Some("Hello")),
            (&[Doing("Bash: ls")], Some("-# ⏳ Bash: ls")),
            (&[Text("Let me look."), Doing("Bash: ls")], Some("Let me look.\n-# ⏳ Bash: ls")),
            (&[Text("Let me look."), Doing("Bash: ls"), Done, Text("Two files.")], Some("Two files.")),
            (&[Text("```sh\nls")], Some("```sh\nls\n```")),
        ] {
            assert_eq!(after(partials).as_deref(), shown, "{partials:?}");
        }
    }

    #[test]
    fn only_the_end_of_a_long_one_is_shown() {
        let lines: String = (0..100_000).map(|line| format!("line {line}\n")).collect();
        let mut draft = Draft::default();
        for piece in lines.as_bytes().chunks(1000) {
            draft.hear(Partial::Text(std::str::from_utf8(piece).unwrap()));
        }
        draft.hear(Partial::Doing(&"x".repeat(500)));
        let shown = draft.shown().unwrap();
        assert!(units(&shown) <= LIMIT && shown.starts_with("…\n") && shown.contains("line 99999\n"), "{shown}");
        assert!(draft.text.len() <= 2 * KEPT);
    }

    #[test]
    fn edits_are_at_least_one_and_a_half_seconds_apart_and_slow_down_when_discord_does() {
        let mut pace = Pace::new(Pace::LEAST);
        assert_eq!(pace.wait(), Duration::from_millis(1500));
        pace.took(Duration::from_millis(80));
        assert_eq!(pace.wait(), Duration::from_millis(1500));
        pace.took(Duration::from_secs(4));
        assert_eq!(pace.wait(), Duration::from_secs(8));
        pace.failed();
        assert_eq!(pace.wait(), Duration::from_secs(15));
        pace.took(Duration::ZERO);
        assert_eq!(pace.wait(), Duration::from_millis(1500));
    }
}

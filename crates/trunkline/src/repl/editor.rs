//! The line editor: history, multi-line messages, and Ctrl+C.

use std::borrow::Cow;
use std::io::{self, Write};
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use reedline::{
    Color, EditCommand, Emacs, FileBackedHistory, Highlighter, KeyCode, KeyModifiers, Prompt, PromptEditMode,
    PromptHistorySearch, Reedline, ReedlineEvent, Signal, StyledText, ValidationResult, Validator,
    default_emacs_keybindings,
};

use super::private_file;
use super::reader::{PROMPT, ReadOutcome};
use super::style::ColourMode;

/// Messages that are kept in the history.
const MAX_HISTORY_LINES: usize = 1000;

/// Interval of checking whether the editor is to stop.
const STOP_POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Host command for Ctrl+C. The editor passes it to us, because its meaning depends on whether the line is empty.
const INTERRUPT: &str = "interrupt";

/// Escape sequences that make the terminal mark pasted text.
const BRACKETED_PASTE_ON: &str = "\u{1b}[?2004h";
const BRACKETED_PASTE_OFF: &str = "\u{1b}[?2004l";

pub(super) struct Editor {
    line: Reedline,
    continued: LineContinuation,
}

impl Editor {
    pub(super) fn new(history: &Path, paint: ColourMode, stop: Arc<AtomicBool>) -> Self {
        let mut keys = default_emacs_keybindings();
        let new_line = || ReedlineEvent::Edit(vec![EditCommand::InsertNewline]);
        keys.add_binding(KeyModifiers::ALT, KeyCode::Enter, new_line());
        keys.add_binding(KeyModifiers::SHIFT, KeyCode::Enter, new_line());
        keys.add_binding(KeyModifiers::CONTROL, KeyCode::Char('j'), new_line());
        // A history search does not handle `Multiple` and ends; anywhere else our command is executed.
        let interrupt = ReedlineEvent::Multiple(vec![ReedlineEvent::ExecuteHostCommand(INTERRUPT.to_owned())]);
        let interrupt = ReedlineEvent::UntilFound(vec![interrupt, ReedlineEvent::Esc]);
        keys.add_binding(KeyModifiers::CONTROL, KeyCode::Char('c'), interrupt);
        let continued = LineContinuation::default();
        let mut line = Reedline::create()
            .with_edit_mode(Box::new(Emacs::new(keys)))
            .with_validator(Box::new(continued.clone()))
            .with_highlighter(Box::new(PlainHighlighter))
            .with_ansi_colors(paint == ColourMode::Colours)
            .use_bracketed_paste(true)
            .use_kitty_keyboard_enhancement(true)
            .with_break_signal(stop)
            .with_poll_interval(STOP_POLL_INTERVAL);
        // Created here with private permissions. If that fails, the history lives only as long as the process.
        let kept = private_file::open(history).ok();
        if let Some(kept) = kept.and_then(|_| FileBackedHistory::with_file(MAX_HISTORY_LINES, history.to_owned()).ok())
        {
            line = line.with_history(Box::new(kept));
        }
        Self { line, continued }
    }

    pub(super) fn read(&mut self) -> ReadOutcome {
        loop {
            match self.line.read_line(&ReplPrompt) {
                Ok(Signal::Success(line)) => {
                    // Text that is pasted while an answer arrives must not be read as separate lines.
                    send(BRACKETED_PASTE_ON);
                    // Saved now, so that closing the terminal loses nothing. A failure is ignored.
                    let _ = self.line.sync_history();
                    return ReadOutcome::Line(self.continued.joined(&line));
                }
                Ok(Signal::HostCommand(_)) if !self.line.current_buffer_contents().is_empty() => {
                    self.line.run_edit_commands(&[EditCommand::Clear]);
                }
                Ok(Signal::HostCommand(_) | Signal::CtrlC | Signal::CtrlD | Signal::ExternalBreak(_)) => {
                    return ReadOutcome::Leave;
                }
                Ok(_) => {}
                Err(error) => return ReadOutcome::Broken(std::io::Error::other(error)),
            }
        }
    }
}

impl Drop for Editor {
    fn drop(&mut self) {
        send(BRACKETED_PASTE_OFF);
    }
}

fn send(sequence: &str) {
    // Fails only if the terminal is gone.
    let _ = io::stdout().write_all(sequence.as_bytes()).and_then(|()| io::stdout().flush());
}

/// Continues a message after a line that ends in a backslash. Remembers where Enter was pressed after one: other backslashes,
/// as in a pasted script, belong to the text.
#[derive(Clone, Default)]
struct LineContinuation {
    beginnings: Arc<Mutex<Vec<String>>>,
}

impl Validator for LineContinuation {
    fn validate(&self, line: &str) -> ValidationResult {
        if !line.ends_with('\\') {
            return ValidationResult::Complete;
        }
        self.beginnings.lock().unwrap_or_else(PoisonError::into_inner).push(line.to_owned());
        ValidationResult::Incomplete
    }
}

impl LineContinuation {
    /// The message without the backslashes that continued lines. Also works for messages from this session's history.
    fn joined(&self, line: &str) -> String {
        let beginnings = self.beginnings.lock().unwrap_or_else(PoisonError::into_inner);
        let continued = |at: usize| beginnings.iter().any(|beginning| *beginning == line[..=at]);
        let ends = line.match_indices("\\\n").map(|(at, _)| at).filter(|&at| continued(at));
        let (mut whole, mut from) = (String::with_capacity(line.len()), 0);
        for at in ends {
            whole.push_str(&line[from..at]);
            from = at + 1;
        }
        whole + &line[from..]
    }
}

/// Shows input in the terminal's default colour: any other may equal its background.
struct PlainHighlighter;

impl Highlighter for PlainHighlighter {
    fn highlight(&self, line: &str, _cursor: usize) -> StyledText {
        let mut text = StyledText::new();
        text.push((Color::Default.normal(), line.to_owned()));
        text
    }
}

struct ReplPrompt;

impl Prompt for ReplPrompt {
    fn render_prompt_left(&self) -> Cow<'_, str> {
        PROMPT.into()
    }

    fn render_prompt_right(&self) -> Cow<'_, str> {
        "".into()
    }

    fn render_prompt_indicator(&self, _mode: PromptEditMode) -> Cow<'_, str> {
        "".into()
    }

    fn render_prompt_multiline_indicator(&self) -> Cow<'_, str> {
        "   : ".into()
    }

    fn render_prompt_history_search_indicator(&self, search: PromptHistorySearch) -> Cow<'_, str> {
        format!("(search, Esc ends it: {}) ", search.term).into()
    }

    fn get_prompt_color(&self) -> Color {
        Color::LightBlue
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backslash_at_the_end_continues_the_message() {
        let continued = LineContinuation::default();
        let pasted = "cc \\\n  -c \\\n  x.c";
        assert_eq!(continued.joined(pasted), pasted, "Enter was not pressed there");
        assert!(matches!(continued.validate("a\\"), ValidationResult::Incomplete));
        assert!(matches!(continued.validate("a\\\nb \\\nc\\"), ValidationResult::Incomplete));
        assert!(matches!(continued.validate("a\\\nb \\\nc\\\nd"), ValidationResult::Complete));
        for (line, whole) in
            [("a\\\nb \\\nc\\\nd", "a\nb \\\nc\nd"), ("a\\\nb", "a\nb"), ("a\nb", "a\nb"), ("c:\\d", "c:\\d"), ("", "")]
        {
            assert_eq!(continued.joined(line), whole);
        }
    }
}

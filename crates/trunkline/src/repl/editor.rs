//! The line editor: history, several lines in one message, and what Ctrl+C means.

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

use super::private;
use super::reader::{Heard, PROMPT};
use super::style::Paint;

/// How many messages are remembered.
const HISTORY: usize = 1000;

/// How long a request to end may go unnoticed.
const LOOK_UP: Duration = Duration::from_millis(200);

/// Ctrl+C, as the editor hands it to us: it alone knows whether the line is empty.
const INTERRUPT: &str = "interrupt";

/// The terminal tells what is pasted from what is typed.
const TELL_PASTES: &str = "\u{1b}[?2004h";
const TELL_NO_PASTES: &str = "\u{1b}[?2004l";

pub(super) struct Editor {
    line: Reedline,
    continued: Continued,
}

impl Editor {
    pub(super) fn new(history: &Path, paint: Paint, stop: Arc<AtomicBool>) -> Self {
        let mut keys = default_emacs_keybindings();
        let new_line = || ReedlineEvent::Edit(vec![EditCommand::InsertNewline]);
        keys.add_binding(KeyModifiers::ALT, KeyCode::Enter, new_line());
        keys.add_binding(KeyModifiers::SHIFT, KeyCode::Enter, new_line());
        keys.add_binding(KeyModifiers::CONTROL, KeyCode::Char('j'), new_line());
        // A search knows no events of several, and so ends; anywhere else, the command is ours.
        let interrupt = ReedlineEvent::Multiple(vec![ReedlineEvent::ExecuteHostCommand(INTERRUPT.to_owned())]);
        let interrupt = ReedlineEvent::UntilFound(vec![interrupt, ReedlineEvent::Esc]);
        keys.add_binding(KeyModifiers::CONTROL, KeyCode::Char('c'), interrupt);
        let continued = Continued::default();
        let mut line = Reedline::create()
            .with_edit_mode(Box::new(Emacs::new(keys)))
            .with_validator(Box::new(continued.clone()))
            .with_highlighter(Box::new(Unpainted))
            .with_ansi_colors(paint == Paint::Colours)
            .use_bracketed_paste(true)
            .use_kitty_keyboard_enhancement(true)
            .with_break_signal(stop)
            .with_poll_interval(LOOK_UP);
        // Made here, so that nobody else can read it. Without it, a session has a history of its own.
        let kept = private::open(history).ok();
        if let Some(kept) = kept.and_then(|_| FileBackedHistory::with_file(HISTORY, history.to_owned()).ok()) {
            line = line.with_history(Box::new(kept));
        }
        Self { line, continued }
    }

    pub(super) fn read(&mut self) -> Heard {
        loop {
            match self.line.read_line(&You) {
                Ok(Signal::Success(line)) => {
                    // What is pasted while an answer comes must not be taken for lines that were typed.
                    send(TELL_PASTES);
                    // A terminal that is closed in a minute loses nothing of it.
                    let _unkept = self.line.sync_history();
                    return Heard::Line(self.continued.joined(&line));
                }
                Ok(Signal::HostCommand(_)) if !self.line.current_buffer_contents().is_empty() => {
                    self.line.run_edit_commands(&[EditCommand::Clear]);
                }
                Ok(Signal::HostCommand(_) | Signal::CtrlC | Signal::CtrlD | Signal::ExternalBreak(_)) => {
                    return Heard::Leave;
                }
                Ok(_) => {}
                Err(error) => return Heard::Broken(std::io::Error::other(error)),
            }
        }
    }
}

impl Drop for Editor {
    fn drop(&mut self) {
        send(TELL_NO_PASTES);
    }
}

fn send(sequence: &str) {
    // A terminal that is gone tells nothing.
    let _gone = io::stdout().write_all(sequence.as_bytes()).and_then(|()| io::stdout().flush());
}

/// A line that ends in a backslash goes on. What was there when Enter made a new line of one is remembered: other
/// backslashes, as in a script that was pasted, are the user's own.
#[derive(Clone, Default)]
struct Continued {
    beginnings: Arc<Mutex<Vec<String>>>,
}

impl Validator for Continued {
    fn validate(&self, line: &str) -> ValidationResult {
        if !line.ends_with('\\') {
            return ValidationResult::Complete;
        }
        self.beginnings.lock().unwrap_or_else(PoisonError::into_inner).push(line.to_owned());
        ValidationResult::Incomplete
    }
}

impl Continued {
    /// The message without the backslashes that only made new lines; also one of this session's history.
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

/// What is typed has the terminal's own colour: any other may be that of its background.
struct Unpainted;

impl Highlighter for Unpainted {
    fn highlight(&self, line: &str, _cursor: usize) -> StyledText {
        let mut text = StyledText::new();
        text.push((Color::Default.normal(), line.to_owned()));
        text
    }
}

struct You;

impl Prompt for You {
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
    fn a_backslash_at_the_end_joins_lines() {
        let continued = Continued::default();
        let pasted = "cc \\\n  -c \\\n  x.c";
        assert_eq!(continued.joined(pasted), pasted, "nobody pressed Enter there");
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

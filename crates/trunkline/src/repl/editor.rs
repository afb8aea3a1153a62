//! The line editor: history, several lines in one message, and what Ctrl+C means.

use std::borrow::Cow;
use std::cell::Cell;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
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

pub(super) struct Editor {
    line: Reedline,
}

impl Editor {
    pub(super) fn new(history: &Path, paint: Paint, stop: Arc<AtomicBool>) -> Self {
        let mut keys = default_emacs_keybindings();
        let new_line = || ReedlineEvent::Edit(vec![EditCommand::InsertNewline]);
        keys.add_binding(KeyModifiers::ALT, KeyCode::Enter, new_line());
        keys.add_binding(KeyModifiers::SHIFT, KeyCode::Enter, new_line());
        keys.add_binding(KeyModifiers::CONTROL, KeyCode::Char('j'), new_line());
        let interrupt = ReedlineEvent::ExecuteHostCommand(INTERRUPT.to_owned());
        keys.add_binding(KeyModifiers::CONTROL, KeyCode::Char('c'), interrupt);
        let mut line = Reedline::create()
            .with_edit_mode(Box::new(Emacs::new(keys)))
            .with_validator(Box::new(Continued))
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
        Self { line }
    }

    pub(super) fn read(&mut self) -> Heard {
        let prompt = You::default();
        loop {
            match self.line.read_line(&prompt) {
                Ok(Signal::Success(line)) => {
                    // A terminal that is closed in a minute loses nothing of it.
                    let _unkept = self.line.sync_history();
                    return Heard::Line(joined(&line));
                }
                Ok(Signal::HostCommand(_)) if prompt.searching.get() => {}
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

/// A line that ends in a backslash goes on.
struct Continued;

impl Validator for Continued {
    fn validate(&self, line: &str) -> ValidationResult {
        if line.ends_with('\\') { ValidationResult::Incomplete } else { ValidationResult::Complete }
    }
}

fn joined(line: &str) -> String {
    line.replace("\\\n", "\n")
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

/// The prompt; it alone is told whether the history is being searched.
#[derive(Default)]
struct You {
    searching: Cell<bool>,
}

impl Prompt for You {
    fn render_prompt_left(&self) -> Cow<'_, str> {
        PROMPT.into()
    }

    fn render_prompt_right(&self) -> Cow<'_, str> {
        "".into()
    }

    fn render_prompt_indicator(&self, _mode: PromptEditMode) -> Cow<'_, str> {
        self.searching.set(false);
        "".into()
    }

    fn render_prompt_multiline_indicator(&self) -> Cow<'_, str> {
        "   : ".into()
    }

    fn render_prompt_history_search_indicator(&self, search: PromptHistorySearch) -> Cow<'_, str> {
        self.searching.set(true);
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
        for (line, whole) in [("a\\\nb", "a\nb"), ("a\nb", "a\nb"), ("c:\\d", "c:\\d")] {
            assert_eq!(joined(line), whole);
        }
        assert!(matches!(Continued.validate("a\\"), ValidationResult::Incomplete));
        assert!(matches!(Continued.validate("a\\\nb"), ValidationResult::Complete));
    }
}

//! Source of lines: an editor on a full terminal, plain lines otherwise. Reading blocks, so it has its own thread.

use std::io::{self, BufRead, IsTerminal, Read, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};

use tokio::sync::mpsc as tokio_mpsc;

use super::editor::Editor;
use super::style::ColourMode;
use super::terminal::Terminal;

/// Limit of a line on stdin.
const MAX_LINE_BYTES: u64 = 16 << 20;

pub(super) const PROMPT: &str = "You: ";

/// Result of reading a line.
#[derive(Debug)]
pub(super) enum ReadOutcome {
    Line(String),
    /// The user wants to leave.
    Leave,
    /// End of input.
    End,
    Broken(io::Error),
}

/// Reads lines on demand. Until a line is requested, input stays in the terminal's buffer.
pub(super) struct LineReader {
    requests: mpsc::Sender<()>,
    requested: bool,
    outcomes: tokio_mpsc::Receiver<ReadOutcome>,
    /// Stops the editor.
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl LineReader {
    /// Starts the thread. Only the editor uses `history`.
    pub(super) fn start(terminal: Terminal, history: &Path) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (requests, requested) = mpsc::channel();
        let (sender, outcomes) = tokio_mpsc::channel(1);
        let reading = match terminal {
            Terminal::Full(paint) => {
                let (history, stop) = (history.to_owned(), Arc::clone(&stop));
                Some(thread::spawn(move || edit(&history, paint, stop, &requested, &sender)))
            }
            Terminal::Basic | Terminal::None => {
                // Never joined: a blocked read ends with the process.
                drop(thread::spawn(move || read(&requested, &sender)));
                None
            }
        };
        Self { requests, requested: false, outcomes, stop, thread: reading }
    }

    /// Returns the next line. Cancel safe: a requested line is returned by the next call.
    pub(super) async fn next(&mut self) -> ReadOutcome {
        if !self.requested && self.requests.send(()).is_err() {
            return ReadOutcome::End;
        }
        self.requested = true;
        let outcome = self.outcomes.recv().await;
        self.requested = false;
        outcome.unwrap_or(ReadOutcome::End)
    }

    /// Stops reading and restores the terminal.
    pub(super) fn end(mut self) {
        self.stop.store(true, Ordering::Relaxed);
        drop(self.requests);
        self.outcomes.close();
        if let Some(thread) = self.thread.take() {
            // The thread restores the terminal even if it panicked.
            let _ = thread.join();
        }
    }
}

fn edit(
    history: &Path,
    paint: ColourMode,
    stop: Arc<AtomicBool>,
    requested: &mpsc::Receiver<()>,
    sender: &tokio_mpsc::Sender<ReadOutcome>,
) {
    // Not before the first line is requested: the editor queries the terminal in raw mode, in which other output would not
    // return to the first column.
    if requested.recv().is_err() {
        return;
    }
    let mut editor = Editor::new(history, paint, stop);
    while sender.blocking_send(editor.read()).is_ok() && requested.recv().is_ok() {}
}

fn read(requested: &mpsc::Receiver<()>, sender: &tokio_mpsc::Sender<ReadOutcome>) {
    let prompted = io::stdin().is_terminal();
    while requested.recv().is_ok() {
        if prompted {
            // A prompt that cannot be shown is ignored.
            let _ = write!(io::stderr(), "{PROMPT}");
        }
        if sender.blocking_send(read_line()).is_err() {
            return;
        }
    }
}

fn read_line() -> ReadOutcome {
    let mut line = Vec::new();
    match io::stdin().lock().take(MAX_LINE_BYTES).read_until(b'\n', &mut line) {
        Ok(0) => ReadOutcome::End,
        Ok(read) if read as u64 == MAX_LINE_BYTES && line.last() != Some(&b'\n') => {
            ReadOutcome::Broken(io::Error::other("a line of stdin is longer than 16 MiB"))
        }
        Ok(_) => ReadOutcome::Line(String::from_utf8_lossy(&line).trim_end_matches(['\n', '\r']).to_owned()),
        Err(error) => ReadOutcome::Broken(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn does_not_touch_the_terminal_until_a_line_is_requested() {
        let folder = tempfile::tempdir().unwrap();
        // The editor creates this file before it changes the terminal.
        let history = folder.path().join("repl/history");
        LineReader::start(Terminal::Full(ColourMode::None), &history).end();
        assert!(!history.exists());
    }
}

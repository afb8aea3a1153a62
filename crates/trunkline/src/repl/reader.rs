//! Where lines come from: an editor on a full terminal, plain lines everywhere else. Reading blocks, and so has a thread.

use std::io::{self, BufRead, IsTerminal, Read, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};

use tokio::sync::mpsc as tokio_mpsc;

use super::editor::Editor;
use super::style::Paint;
use super::terminal::Terminal;

/// A line longer than this is no line.
const LONGEST_LINE: u64 = 16 << 20;

pub(super) const PROMPT: &str = "You: ";

/// What came of asking for a line.
#[derive(Debug)]
pub(super) enum Heard {
    Line(String),
    /// Whoever typed wants to leave.
    Leave,
    /// There is nothing more to read.
    End,
    Broken(io::Error),
}

/// Reads a line when it is asked to, and not before: whatever is typed until then belongs to nobody yet.
pub(super) struct Reader {
    ask: mpsc::Sender<()>,
    asked: bool,
    heard: tokio_mpsc::Receiver<Heard>,
    /// Ends the reading of an editor.
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Reader {
    /// `history` is kept for an editor alone.
    pub(super) fn start(terminal: Terminal, history: &Path) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (ask, asked) = mpsc::channel();
        let (tell, heard) = tokio_mpsc::channel(1);
        let reading = match terminal {
            Terminal::Full(paint) => {
                let (history, stop) = (history.to_owned(), Arc::clone(&stop));
                Some(thread::spawn(move || edit(&history, paint, stop, &asked, &tell)))
            }
            Terminal::Basic | Terminal::None => {
                // Nobody waits for it: a read that is never answered ends with the process.
                drop(thread::spawn(move || read(&asked, &tell)));
                None
            }
        };
        Self { ask, asked: false, heard, stop, thread: reading }
    }

    /// The next line. Cancel safe: what was asked for is heard the next time.
    pub(super) async fn next(&mut self) -> Heard {
        if !self.asked && self.ask.send(()).is_err() {
            return Heard::End;
        }
        self.asked = true;
        let heard = self.heard.recv().await;
        self.asked = false;
        heard.unwrap_or(Heard::End)
    }

    /// Ends the reading, and leaves the terminal as it was.
    pub(super) fn end(mut self) {
        self.stop.store(true, Ordering::Relaxed);
        drop(self.ask);
        self.heard.close();
        if let Some(thread) = self.thread.take() {
            // It restores the terminal even if it panicked.
            let _panicked = thread.join();
        }
    }
}

fn edit(
    history: &Path,
    paint: Paint,
    stop: Arc<AtomicBool>,
    asked: &mpsc::Receiver<()>,
    tell: &tokio_mpsc::Sender<Heard>,
) {
    // Not before the first line is wanted: the editor asks the terminal what it can do, in raw mode, and whatever is
    // printed meanwhile would run down the screen like a staircase.
    if asked.recv().is_err() {
        return;
    }
    let mut editor = Editor::new(history, paint, stop);
    while tell.blocking_send(editor.read()).is_ok() && asked.recv().is_ok() {}
}

fn read(asked: &mpsc::Receiver<()>, tell: &tokio_mpsc::Sender<Heard>) {
    let prompted = io::stdin().is_terminal();
    while asked.recv().is_ok() {
        if prompted {
            // A prompt that cannot be shown is no reason not to listen.
            let _unshown = write!(io::stderr(), "{PROMPT}");
        }
        if tell.blocking_send(read_line()).is_err() {
            return;
        }
    }
}

fn read_line() -> Heard {
    let mut line = Vec::new();
    match io::stdin().lock().take(LONGEST_LINE).read_until(b'\n', &mut line) {
        Ok(0) => Heard::End,
        Ok(read) if read as u64 == LONGEST_LINE && line.last() != Some(&b'\n') => {
            Heard::Broken(io::Error::other("a line of stdin is longer than 16 MiB"))
        }
        Ok(_) => Heard::Line(String::from_utf8_lossy(&line).trim_end_matches(['\n', '\r']).to_owned()),
        Err(error) => Heard::Broken(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leaves_the_terminal_alone_until_a_line_is_asked_for() {
        let folder = tempfile::tempdir().unwrap();
        // The editor makes this file before it touches the terminal.
        let history = folder.path().join("repl/history");
        Reader::start(Terminal::Full(Paint::None), &history).end();
        assert!(!history.exists());
    }
}

//! A pseudo-terminal for the binary, with a screen that answers terminal queries.

use std::fs::File;
use std::io::{Read, Write};
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use vt100::{Callbacks, Parser, Screen};

use crate::observe::until;
use crate::test_gateway::TestGateway;

const ROWS: u16 = 40;
const COLUMNS: u16 = 80;

/// A program that runs on a pseudo-terminal.
pub(crate) struct Tty {
    child: Child,
    keyboard: File,
    shown: Arc<Mutex<TerminalOutput>>,
    reading: Option<JoinHandle<()>>,
}

/// Output received so far, raw and rendered.
struct TerminalOutput {
    screen: Parser<QueryReplies>,
    raw: Vec<u8>,
}

/// Replies to terminal queries that are not sent yet.
#[derive(Default)]
struct QueryReplies {
    due: Vec<u8>,
}

impl Callbacks for QueryReplies {
    fn unhandled_csi(&mut self, screen: &mut Screen, i1: Option<u8>, _: Option<u8>, params: &[&[u16]], c: char) {
        match (i1, params, c) {
            (None, [[6]], 'n') => {
                let (row, column) = screen.cursor_position();
                self.due.extend(format!("\u{1b}[{};{}R", row + 1, column + 1).bytes());
            }
            (None, _, 'c') => self.due.extend(b"\x1b[?6c"),
            _ => {}
        }
    }
}

impl Tty {
    /// Starts `trunkline` with these arguments on a terminal.
    pub(crate) fn open(gateway: &TestGateway, args: &[&str]) -> Self {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let ours = openpt(flags).unwrap();
        grantpt(&ours).unwrap();
        unlockpt(&ours).unwrap();
        tcsetwinsize(&ours, Winsize { ws_row: ROWS, ws_col: COLUMNS, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
        let theirs = ioctl_tiocgptpeer(&ours, flags).unwrap();
        let stream = || Stdio::from(theirs.try_clone().unwrap());
        let child = gateway.on_terminal(args, [stream(), stream(), stream()]);
        let keyboard = File::from(ours);
        let screen = Parser::new_with_callbacks(ROWS, COLUMNS, 1000, QueryReplies::default());
        let shown = Arc::new(Mutex::new(TerminalOutput { screen, raw: Vec::new() }));
        let (mut output, filled) = (keyboard.try_clone().unwrap(), Arc::clone(&shown));
        let reading = std::thread::spawn(move || {
            let mut chunk = [0; 4096];
            // The read fails once no process has the terminal open.
            while let Ok(read @ 1..) = output.read(&mut chunk) {
                let mut shown = filled.lock().unwrap_or_else(PoisonError::into_inner);
                shown.raw.extend(&chunk[..read]);
                shown.screen.process(&chunk[..read]);
                let due = std::mem::take(&mut shown.screen.callbacks_mut().due);
                drop(shown);
                if output.write_all(&due).is_err() {
                    return;
                }
            }
        });
        Self { child, keyboard, shown, reading: Some(reading) }
    }

    pub(crate) fn types(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).unwrap();
    }

    /// Waits until the screen shows this.
    #[track_caller]
    pub(crate) fn shows(&self, text: &str) {
        self.wait_for(&format!("the screen shows {text:?}"), |screen| screen.contents().contains(text));
    }

    /// Waits for a prompt followed by this text and the cursor.
    #[track_caller]
    pub(crate) fn prompts(&self, line: &str) {
        self.wait_for(&format!("it prompts with {line:?}"), |screen| {
            let (row, column) = screen.cursor_position();
            let shown = screen.rows(0, COLUMNS).nth(row.into()).unwrap_or_default();
            shown.trim_end() == format!("You: {line}").trim_end() && usize::from(column) == "You: ".len() + line.len()
        });
    }

    /// Types a message at an empty prompt, and waits for its answer and the next prompt.
    #[track_caller]
    pub(crate) fn says(&mut self, message: &str) {
        self.prompts("");
        self.types(message);
        self.prompts(message);
        self.types("\r");
        // The message stays on the screen; the new prompt is on a later line.
        self.prompts("");
    }

    pub(crate) fn screen(&self) -> String {
        self.shown.lock().unwrap_or_else(PoisonError::into_inner).screen.screen().contents()
    }

    /// Every byte that was sent to the terminal.
    pub(crate) fn raw(&self) -> String {
        String::from_utf8_lossy(&self.shown.lock().unwrap_or_else(PoisonError::into_inner).raw).into_owned()
    }

    /// Waits until bracketed paste is on or off.
    #[track_caller]
    pub(crate) fn tells_pastes(&self, tells: bool) {
        self.wait_for(&format!("bracketed paste is {tells}"), |screen| screen.bracketed_paste() == tells);
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Waits until the program has ended and all its output was read, and returns its exit status.
    #[track_caller]
    pub(crate) fn wait_for_exit(&mut self) -> Option<i32> {
        let mut status = None;
        until("the program has ended", || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        if let Some(reading) = self.reading.take() {
            reading.join().unwrap();
        }
        status.and_then(|status| status.code())
    }

    #[track_caller]
    fn wait_for(&self, what: &str, mut seen: impl FnMut(&Screen) -> bool) {
        let seen = || seen(self.shown.lock().unwrap_or_else(PoisonError::into_inner).screen.screen());
        until(what, seen);
    }
}

impl Drop for Tty {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- screen\n{}\n---", self.screen());
        }
        // The program may have exited already, as it should.
        let _ended = self.child.kill();
        let _reaped = self.child.wait();
    }
}

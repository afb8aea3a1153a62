//! An X server with a window manager, and the tools to control and observe it.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::desktop::{ChildGuard, command, until};

pub(crate) struct Screen {
    display: String,
    // Fields are dropped in this order: the manager must end before the server.
    _manager: ChildGuard,
    _server: ChildGuard,
}

/// A window as listed by the window manager.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ListedWindow {
    pub(crate) id: String,
    pub(crate) pid: u32,
    pub(crate) size: (i32, i32),
    pub(crate) title: String,
}

impl ListedWindow {
    /// Id as a number, in the form that [`Screen::active`] returns.
    pub(crate) fn number(&self) -> u64 {
        u64::from_str_radix(self.id.trim_start_matches("0x"), 16).unwrap()
    }
}

impl Screen {
    pub(crate) fn new(home: &Path) -> Self {
        let server = command("Xvfb")
            .args(["-displayfd", "1", "-screen", "0", "1280x900x24", "-nolisten", "tcp", "-noreset"])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("Xvfb is missing: cargo xtask desktop --test installs it");
        let (mut server, mut number) = (ChildGuard(server), String::new());
        BufReader::new(server.0.stdout.take().unwrap()).read_line(&mut number).unwrap();
        let display = format!(":{}", number.trim());
        let manager = command("openbox")
            .args(["--sm-disable"])
            .env("DISPLAY", &display)
            .env("HOME", home)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("openbox is missing: cargo xtask desktop --test installs it");
        let screen = Self { display, _manager: ChildGuard(manager), _server: server };
        until("the window manager is running", || screen.run("wmctrl", &["-m"]).is_some());
        screen
    }

    pub(crate) fn display(&self) -> &str {
        &self.display
    }

    pub(crate) fn windows(&self) -> Vec<ListedWindow> {
        let listed = self.run("wmctrl", &["-lpG"]).unwrap_or_default();
        let window = |line: &str| {
            let mut words = line.split_whitespace();
            let (id, _desktop, pid) = (words.next()?.to_owned(), words.next()?, words.next()?.parse().ok()?);
            let (_x, _y) = (words.next()?, words.next()?);
            let size = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
            let title = words.skip(1).collect::<Vec<_>>().join(" ");
            Some(ListedWindow { id, pid, size, title })
        };
        listed.lines().filter_map(window).collect()
    }

    /// Presses keys one after the other: `ctrl+a`, `Return`.
    pub(crate) fn press(&self, keys: &[&str]) {
        self.xdotool(&[&["key", "--clearmodifiers"], keys].concat());
    }

    pub(crate) fn write(&self, text: &str) {
        if text.is_empty() {
            return;
        }
        self.xdotool(&["type", "--clearmodifiers", text]);
    }

    /// Clicks at a position relative to the upper left corner of the window.
    pub(crate) fn click(&self, window: &ListedWindow, (x, y): (i32, i32)) {
        let (x, y) = (x.to_string(), y.to_string());
        self.xdotool(&["mousemove", "--window", &window.id, &x, &y, "click", "1"]);
    }

    pub(crate) fn xdotool(&self, args: &[&str]) -> String {
        self.run("xdotool", args).unwrap_or_else(|| panic!("xdotool {args:?} failed"))
    }

    pub(crate) fn active(&self) -> Option<u64> {
        self.run("xdotool", &["getactivewindow"])?.trim().parse().ok()
    }

    /// Returns all text of the widget at this position, by selecting and copying it as a user would.
    pub(crate) fn text_at(&self, window: &ListedWindow, place: (i32, i32)) -> String {
        self.copy("nothing was copied");
        let (mut text, mut tries) = (String::new(), 0);
        until("text is copied", || {
            // The widget may not have had any text yet.
            if tries % 10 == 0 {
                self.click(window, place);
                self.press(&["ctrl+a", "ctrl+c"]);
            }
            tries += 1;
            text = self.run("xclip", &["-selection", "clipboard", "-o"]).unwrap_or_default();
            text != "nothing was copied" && !text.is_empty()
        });
        text
    }

    /// Puts text on the clipboard.
    pub(crate) fn copy(&self, text: &str) {
        let mut xclip = self.tool("xclip", &["-selection", "clipboard", "-i"]);
        let mut xclip = xclip.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("xclip is missing");
        xclip.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
        assert!(xclip.wait().unwrap().success());
    }

    /// Takes a screenshot, for people to look at.
    pub(crate) fn picture(&self, name: &str) -> PathBuf {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
        std::fs::create_dir_all(folder).unwrap();
        let path = folder.join(format!("{name}.png"));
        self.run("import", &["-window", "root", path.to_str().unwrap()]).expect("ImageMagick is missing");
        path
    }

    pub(crate) fn run(&self, program: &str, args: &[&str]) -> Option<String> {
        let output = self.tool(program, args).output().unwrap_or_else(|error| panic!("{program}: {error}"));
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
    }

    fn tool(&self, program: &str, args: &[&str]) -> Command {
        let mut command = command(program);
        command.args(args).env("DISPLAY", &self.display);
        command
    }
}

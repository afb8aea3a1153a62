//! A gateway of our own: started, listened to, and ended with us.
//!
//! It is told to stop when its standard input closes. We hold the other end, so however we end, it does.

use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::{News, origin};
use crate::places::Places;
use crate::tell;

/// What answers on their way get when the window closes.
const DRAIN: &str = "5s";

/// The drain, the grace of the CLIs, and a moment.
const PATIENCE: Duration = Duration::from_secs(15);

const LONGEST_LINE: u64 = 4096;

/// A gateway that we started. Dropping it asks it to end.
#[derive(Debug)]
pub(crate) struct Server {
    child: Child,
    stdin: Option<ChildStdin>,
}

impl Server {
    /// Ends it, on a thread that waits until it has.
    pub(crate) fn retire(self) {
        drop(thread::spawn(move || self.end()));
    }

    /// Ends it, and waits until it has.
    pub(crate) fn end(mut self) {
        drop(self.stdin.take());
        let since = Instant::now();
        while since.elapsed() < PATIENCE {
            if self.child.try_wait().is_ok_and(|status| status.is_some()) {
                return;
            }
            thread::sleep(Duration::from_millis(10));
        }
        let _gone = self.child.kill();
        let _reaped = self.child.wait();
    }

    /// Kills it: it was asked, or has not even begun to listen.
    pub(crate) fn kill(mut self) {
        let _gone = self.child.kill();
        let _reaped = self.child.wait();
    }

    /// How it ended, in words; it is known to have closed its output.
    pub(crate) fn ended(mut self) -> String {
        drop(self.stdin.take());
        self.child.wait().map_or_else(|error| error.to_string(), words)
    }
}

fn words(status: ExitStatus) -> String {
    // A code that means something says so in the lines before.
    status.code().map_or_else(|| format!("by a {status}"), |code| format!("with status {code}"))
}

/// Starts one and tells all that becomes of it, until it has ended.
pub(super) fn start(places: &Places, port: u16, tell: &(impl Fn(News) + Clone + Send + 'static)) {
    let mut child = match launch(places, port) {
        Ok(child) => child,
        Err(error) => return tell(News::Failed(cannot_start(places, &error))),
    };
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    tell(News::Started(Server { child, stdin }));
    let log = tell.clone();
    let logged = thread::spawn(move || lines(stderr, |line| log(News::Log(line))));
    let mut ready = false;
    lines(stdout, |line| {
        if !ready && line.starts_with("listening on ") {
            ready = true;
            tell(News::Ready(origin(port)));
        }
    });
    // Its last words explain its end.
    let _said = logged.join();
    tell(if ready { News::Ended } else { News::Failed("The gateway could not be started".to_owned()) });
}

fn launch(places: &Places, port: u16) -> io::Result<Child> {
    #[expect(clippy::disallowed_methods, reason = "the gateway keeps itself: it ends with its standard input")]
    let mut command = Command::new(&places.server);
    command.args(["serve", "--until-stdin-closes", "--drain", DRAIN, "--listen", "127.0.0.1", "--port"]);
    command.arg(port.to_string()).current_dir(&places.folder);
    // A group of its own: Ctrl+C in our terminal is for us, and we tell it.
    command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()
}

fn cannot_start(places: &Places, error: &io::Error) -> String {
    let (program, bare) = (places.server.display(), places.server.components().count() == 1);
    if bare && error.kind() == io::ErrorKind::NotFound {
        return format!(
            "There is no {program} beside this program or on the search path: install it, or say --server PATH"
        );
    }
    format!("Cannot start {program}: {error}")
}

/// Every line of a stream, cut where it is too long.
fn lines(stream: Option<impl Read>, mut each: impl FnMut(String)) {
    let Some(stream) = stream else { return };
    let mut stream = BufReader::new(stream);
    loop {
        let mut line = Vec::new();
        match (&mut stream).take(LONGEST_LINE).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return,
            Ok(_) => {
                let line = String::from_utf8_lossy(&line).trim_end().to_owned();
                // For whoever started us in a terminal.
                tell(&line);
                each(line);
            }
        }
    }
}

//! A gateway that we start: it is launched, its output is read, and it ends with this process.
//!
//! The gateway stops when its standard input closes. This process holds the other end of that pipe, so the gateway
//! stops however this process ends.

use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::{GatewayEvent, origin};
use crate::log_stderr;
use crate::paths::DesktopPaths;

/// Time that answers in flight get when the window closes.
const DRAIN: &str = "5s";

/// Time for the gateway to exit: its drain, the grace period of the CLIs, and a margin.
const STOP_TIMEOUT: Duration = Duration::from_secs(15);

const MAX_LINE_BYTES: u64 = 4096;

/// A gateway process that we started. Dropping it closes its stdin, which asks it to stop.
#[derive(Debug)]
pub(crate) struct SpawnedGateway {
    child: Child,
    stdin: Option<ChildStdin>,
}

impl SpawnedGateway {
    /// Stops the gateway on a thread of its own.
    pub(crate) fn stop_in_background(self) {
        drop(thread::spawn(move || self.stop()));
    }

    /// Asks the gateway to stop, waits for its exit, and kills it after [`STOP_TIMEOUT`].
    pub(crate) fn stop(mut self) {
        drop(self.stdin.take());
        let since = Instant::now();
        while since.elapsed() < STOP_TIMEOUT {
            if self.child.try_wait().is_ok_and(|status| status.is_some()) {
                return;
            }
            thread::sleep(Duration::from_millis(10));
        }
        self.kill();
    }

    /// Kills the gateway without asking it to stop first.
    pub(crate) fn kill(mut self) {
        // Both fail only if the process is already gone.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Waits for the exit of a gateway that has closed its output. Returns how it ended, as part of a sentence.
    pub(crate) fn wait(mut self) -> String {
        drop(self.stdin.take());
        self.child.wait().map_or_else(|error| error.to_string(), describe)
    }
}

fn describe(status: ExitStatus) -> String {
    // The number is enough: the gateway explains its exit codes in the log lines before.
    status.code().map_or_else(|| format!("by a {status}"), |code| format!("with status {code}"))
}

/// Starts a gateway and reports its events until it has exited.
pub(super) fn run(paths: &DesktopPaths, port: u16, send: &(impl Fn(GatewayEvent) + Clone + Send + 'static)) {
    let mut child = match launch(paths, port) {
        Ok(child) => child,
        Err(error) => return send(GatewayEvent::Failed(launch_error(paths, &error))),
    };
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    send(GatewayEvent::Started(SpawnedGateway { child, stdin }));
    let log = send.clone();
    let log_reader = thread::spawn(move || read_lines(stderr, |line| log(GatewayEvent::Log(line))));
    let mut ready = false;
    read_lines(stdout, |line| {
        if !ready && line.starts_with("listening on ") {
            ready = true;
            send(GatewayEvent::Ready(origin(port)));
        }
    });
    // The last log lines explain the exit, so they are sent before it is reported.
    let _ = log_reader.join();
    send(if ready {
        GatewayEvent::Exited
    } else {
        GatewayEvent::Failed("The gateway could not be started".to_owned())
    });
}

fn launch(paths: &DesktopPaths, port: u16) -> io::Result<Child> {
    #[expect(clippy::disallowed_methods, reason = "the gateway needs no supervision: it stops when its stdin closes")]
    let mut command = Command::new(&paths.server);
    command.args(["serve", "--until-stdin-closes", "--drain", DRAIN, "--listen", "127.0.0.1", "--port"]);
    command.arg(port.to_string()).current_dir(&paths.folder);
    // A process group of its own: Ctrl+C in our terminal must reach only us, and we stop the gateway in order.
    command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()
}

fn launch_error(paths: &DesktopPaths, error: &io::Error) -> String {
    let (program, bare) = (paths.server.display(), paths.server.components().count() == 1);
    if bare && error.kind() == io::ErrorKind::NotFound {
        return format!(
            "{program} was found neither next to this program nor on PATH. Install it, or name it with --server PATH"
        );
    }
    format!("Cannot start {program}: {error}")
}

/// Calls `each` for every line of a stream. A line longer than [`MAX_LINE_BYTES`] is split.
fn read_lines(stream: Option<impl Read>, mut each: impl FnMut(String)) {
    let Some(stream) = stream else { return };
    let mut stream = BufReader::new(stream);
    loop {
        let mut line = Vec::new();
        match (&mut stream).take(MAX_LINE_BYTES).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return,
            Ok(_) => {
                let line = String::from_utf8_lossy(&line).trim_end().to_owned();
                // Also for the terminal that this program was started in.
                log_stderr(&line);
                each(line);
            }
        }
    }
}

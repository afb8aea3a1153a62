//! A shell that stays: variables and the folder of one command are there for the next.

use std::io::{Read, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

use crate::test_gateway::{TestGateway, spawn, which};

/// Printed after each command. No command prints it.
const END: u8 = 0x1e;

/// Longest time without output before a transcript fails.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(60);

pub(super) struct Shell {
    child: Child,
    /// Closed to end the shell.
    stdin: Option<ChildStdin>,
    output: Receiver<Vec<u8>>,
}

impl Shell {
    /// A shell in the repository of the test, with nothing of the environment of the tests.
    pub(super) fn new(gateway: &TestGateway) -> Self {
        let search = format!("{}:{}", gateway.path("bin").display(), gateway.path("tools").display());
        let mut command = sh();
        command.current_dir(gateway.repo()).env_clear().env("PATH", search).env("HOME", gateway.path("home"));
        command.env("TRUNKLINE_STATE", gateway.path("state")).env("TRUNKLINE_WORKTREES", gateway.path("worktrees"));
        if gateway.path("config").read_dir().unwrap().next().is_some() {
            command.env("TRUNKLINE_CONFIG", gateway.path("config"));
        }
        // Nothing is started that a transcript does not ask for, and the CLIs of the scene count as logged in.
        command.env("TRUNKLINE_WARM", "0");
        for (cli, key) in [("bin/claude", "ANTHROPIC_API_KEY"), ("bin/codex", "CODEX_API_KEY")] {
            if gateway.path(cli).exists() {
                command.env(key, "k");
            }
        }
        let mut child = spawn(command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit()));
        let stdin = child.stdin.take();
        let mut stdout = child.stdout.take().unwrap();
        let (sender, output) = mpsc::channel();
        thread::spawn(move || {
            let mut piece = [0; 4096];
            while let Ok(count @ 1..) = stdout.read(&mut piece) {
                if sender.send(piece[..count].to_vec()).is_err() {
                    return;
                }
            }
        });
        Self { child, stdin, output }
    }

    /// Runs a command to its end; what it printed.
    pub(super) fn run(&mut self, command: &str) -> String {
        // `$?` is the status of the command before, as at a prompt.
        let wrapped = format!("(exit ${{status:-0}})\n{{ {command}\n}} 2>&1 </dev/null\nstatus=$?; printf '\\036'\n");
        self.stdin.as_mut().unwrap().write_all(wrapped.as_bytes()).unwrap();
        let mut printed = Vec::new();
        while printed.last() != Some(&END) {
            let more = self.output.recv_timeout(SILENCE_TIMEOUT);
            let more = more.unwrap_or_else(|_| panic!("$ {command}: {}", String::from_utf8_lossy(&printed)));
            printed.extend(more);
        }
        printed.pop();
        String::from_utf8_lossy(&printed).into_owned()
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        self.stdin = None;
        self.child.wait().unwrap();
    }
}

#[expect(clippy::disallowed_methods, reason = "a transcript is run as a person runs it")]
fn sh() -> Command {
    Command::new(which("sh"))
}

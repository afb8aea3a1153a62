//! The script of a client as a process, and the protocol with it: one JSON line for each case, and one as the reply.
//!
//! ```text
//! lab     {"case":"whole","base":"http://127.0.0.1:40123","key":"…","model":"lab","prompts":["…"],"timeout":null}
//! script  {"case":"whole","ok":true,"detail":"The code word is …"}
//! ```
//!
//! `ok` says whether the client got an answer, `detail` is the text that it shows: the answer, or the error. A script
//! that streams adds the number of `deltas`, one whose tool was called the number of `calls`. The script does not judge; the lab does.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, kill_process_group};
use serde::Deserialize;
use serde_json::Value;

/// Limit for one case: a client that hangs fails its case, not the lab.
const CASE_TIMEOUT: Duration = Duration::from_secs(150);

/// Behaviour of a client in a case, as its script reports it.
#[derive(Debug, Clone, Default, Deserialize)]
pub(super) struct ScriptReply {
    pub(super) case: String,
    pub(super) ok: bool,
    pub(super) detail: String,
    pub(super) deltas: Option<u64>,
    pub(super) calls: Option<u64>,
}

/// A running script. Dropping this value kills it with all processes of its group.
pub(super) struct ScriptProcess {
    process: Child,
    stdin: ChildStdin,
    replies: Receiver<ScriptReply>,
    log: PathBuf,
}

impl ScriptProcess {
    /// Starts the script; its stderr is appended to `log`.
    pub(super) fn start(mut program: Command, log: &Path) -> Result<Self> {
        let stderr = File::options().create(true).append(true).open(log)?;
        let mut process = program
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(stderr)
            .process_group(0)
            .spawn()
            .with_context(|| format!("cannot start {}", program.get_program().to_string_lossy()))?;
        let stdin = process.stdin.take().context("stdin is not piped")?;
        let stdout = process.stdout.take().context("stdout is not piped")?;
        let (sender, replies) = channel();
        // The thread ends with the script.
        thread::spawn(move || {
            let lines = BufReader::new(stdout).lines().map_while(Result::ok);
            for reply in lines.filter_map(|line| serde_json::from_str(&line).ok()) {
                if sender.send(reply).is_err() {
                    break;
                }
            }
        });
        Ok(Self { process, stdin, replies, log: log.to_owned() })
    }

    /// Sends a case and waits for the reply to it. After an error the script cannot be used any more.
    pub(super) fn ask(&mut self, request: &Value) -> Result<ScriptReply> {
        let gone = || format!("the script has ended; see {}", self.log.display());
        writeln!(self.stdin, "{request}").with_context(gone)?;
        let reply = self.replies.recv_timeout(CASE_TIMEOUT);
        let limit = || {
            format!("no reply within {} s, or the script has ended; see {}", CASE_TIMEOUT.as_secs(), self.log.display())
        };
        let reply = reply.with_context(limit)?;
        anyhow::ensure!(request["case"] == reply.case, "the reply is to the case {:?}", reply.case);
        Ok(reply)
    }
}

impl Drop for ScriptProcess {
    fn drop(&mut self) {
        if let Some(group) = Pid::from_raw(self.process.id().cast_signed()) {
            // The script and its children may have ended.
            let _ = kill_process_group(group, Signal::KILL);
        }
        let _ = self.process.wait();
    }
}

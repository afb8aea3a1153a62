//! Mode `work` of the fake agent: it writes a file, prints numbered words and misbehaves as its task demands.

use std::fs::{self, OpenOptions};
use std::io::{Read, Write, stdin};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use signal_hook::consts::{SIGINT, SIGTERM};

/// Argument of the child process that outlives its parent.
const DAEMON: &str = "--daemon";

/// Executes the task, which is the JSON in the last line of the prompt.
pub(crate) fn work(line: &mut impl FnMut(&str)) {
    let mut prompt = String::new();
    // After an error, what was read so far is the prompt.
    let _ = stdin().read_to_string(&mut prompt);
    let task: Value = prompt.lines().last().and_then(|task| serde_json::from_str(task).ok()).unwrap_or_default();
    let (name, words) = (task["work"].as_str().unwrap_or("none"), task["words"].as_u64().unwrap_or(1));
    if task["stubborn"] == true {
        for signal in [SIGTERM, SIGINT] {
            // Without the handler, the signal ends the process.
            let _ = signal_hook::flag::register(signal, Arc::default());
        }
    }
    if task["daemon"] == true {
        start_daemon();
    }
    if let Err(error) = write_work(name) {
        eprintln!("cannot work: {error}");
        std::process::exit(1);
    }
    for word in 0..words {
        if task["crash"] == true && word == words / 2 {
            eprintln!("crashed on purpose");
            std::process::exit(70);
        }
        line(&format!(r#"{{"type":"content","content":"<{name}:{word}>"}}"#));
        std::thread::sleep(Duration::from_millis(task["pause_ms"].as_u64().unwrap_or(0)));
    }
}

/// Writes the file by which the torture test recognises the work of this run.
fn write_work(name: &str) -> std::io::Result<()> {
    fs::create_dir_all("work")?;
    let mut file = OpenOptions::new().create(true).append(true).open(format!("work/{name}"))?;
    file.write_all(b"begun\n")
}

/// Starts a child in its own session and without the environment variables by which the gateway finds its processes.
#[expect(clippy::disallowed_methods, reason = "a separate program that misbehaves on purpose")]
fn start_daemon() {
    let Ok(this) = std::env::current_exe() else { return };
    let mut daemon = std::process::Command::new("setsid");
    let daemon =
        daemon.arg(this).arg(DAEMON).env_clear().stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    // Without setsid there is no daemon.
    let _ = daemon.spawn();
}

/// Sleeps for ten minutes if this process is the daemon; returns whether it is.
pub(crate) fn sleep_if_daemon() -> bool {
    let daemon = std::env::args().any(|argument| argument == DAEMON);
    if daemon {
        std::thread::sleep(Duration::from_secs(600));
    }
    daemon
}

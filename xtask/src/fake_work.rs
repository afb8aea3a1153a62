//! What the fake agent does when it is told to work: a change, words that are counted, and bad manners.

use std::fs::{self, OpenOptions};
use std::io::{Read, Write, stdin};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use signal_hook::consts::{SIGINT, SIGTERM};

/// The argument of the child that outlives its parent.
const DAEMON: &str = "--daemon";

/// The last line of the prompt is the task.
pub(crate) fn work(line: &mut impl FnMut(&str)) {
    let mut prompt = String::new();
    let _what_came_is_what_there_is = stdin().read_to_string(&mut prompt);
    let task: Value = prompt.lines().last().and_then(|task| serde_json::from_str(task).ok()).unwrap_or_default();
    let (name, words) = (task["work"].as_str().unwrap_or("none"), task["words"].as_u64().unwrap_or(1));
    if task["stubborn"] == true {
        for signal in [SIGTERM, SIGINT] {
            let _then_it_dies = signal_hook::flag::register(signal, Arc::default());
        }
    }
    if task["daemon"] == true {
        leave_a_daemon();
    }
    if let Err(error) = begin(name) {
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

fn begin(name: &str) -> std::io::Result<()> {
    fs::create_dir_all("work")?;
    let mut file = OpenOptions::new().create(true).append(true).open(format!("work/{name}"))?;
    file.write_all(b"begun\n")
}

/// A child in a session of its own, without an environment to be known by.
#[expect(clippy::disallowed_methods, reason = "a program of its own that misbehaves")]
fn leave_a_daemon() {
    let Ok(this) = std::env::current_exe() else { return };
    let mut daemon = std::process::Command::new("setsid");
    let daemon =
        daemon.arg(this).arg(DAEMON).env_clear().stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let _then_there_is_none = daemon.spawn();
}

/// Whether this process is that child: then it does nothing for long.
pub(crate) fn is_daemon() -> bool {
    let daemon = std::env::args().any(|argument| argument == DAEMON);
    if daemon {
        std::thread::sleep(Duration::from_secs(600));
    }
    daemon
}

//! `bash`: a command in the workspace, heard for as long as it may run, and ended with all that it started.

use std::path::Path;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use trunkline_core::limits::Limits;
use trunkline_process::{Exit, SpawnError, Spec, Step, StopSignal};

use super::transcript::Transcript;
use super::{Answer, Shell};
use crate::transcript::INTERRUPTED;

/// Runs the command, its one argument, under bash or what else there is, with one pipe for all it prints.
///
/// It stays instead of becoming the shell: a command that sends its output elsewhere would close the pipe, and a program
/// without output is taken for one that hangs.
const SCRIPT: &str = r#"exec 2>&1
if command -v bash >/dev/null; then bash -c -- "$1"; else sh -c -- "$1"; fi
exit $?"#;

/// How long a command may take to clean up once its time is over.
const GRACE: Duration = Duration::from_millis(500);

/// How a command ended.
enum End {
    Exit(Exit),
    TimedOut,
    /// Somebody has had enough.
    Stopped,
}

/// Runs a command. Dropping the future ends it, with everything it started.
pub(super) async fn run(
    shell: &Shell,
    folder: &Path,
    command: &str,
    time_limit: Duration,
    stop: &CancellationToken,
) -> Answer {
    if command.trim().is_empty() {
        return Err("the command is empty".into());
    }
    if command.contains('\0') {
        return Err("the command has a NUL byte in it, which no shell can take; write \\0 with printf".into());
    }
    let spec = Spec {
        program: "/bin/sh".into(),
        args: ["-c", SCRIPT, "sh", command].map(Into::into).to_vec(),
        env: shell.env.clone(),
        cwd: folder.into(),
        stdin: Vec::new(),
        stop: StopSignal::Term,
        grace: GRACE,
        limits: Limits { total: time_limit, ..Limits::NONE },
        confinement: shell.confinement.clone(),
    };
    let mut running = shell.keepers.spawn(spec).await.map_err(|error| not_started(error, command))?;
    let mut transcript = Transcript::default();
    let end = loop {
        match stop.run_until_cancelled(running.next()).await {
            Some(Step::Stdout(chunk)) => transcript.push(&chunk),
            Some(Step::Exited(exit)) => break End::Exit(exit),
            Some(Step::Limit(_)) => break End::TimedOut,
            None => break End::Stopped,
        }
    };
    // What it left running must not write to files that the next call reads.
    running.stop_hearing(|chunk| transcript.push(chunk)).await;
    tell(transcript.into_text(), &end, time_limit)
}

/// What the model is told of a command that ran.
fn tell(mut output: String, end: &End, time_limit: Duration) -> Answer {
    let last = match end {
        End::Exit(Exit::Code(0)) if output.is_empty() => return Ok("(no output)".into()),
        End::Exit(Exit::Code(0)) => return Ok(output),
        End::Exit(Exit::Code(code)) => format!("[exit code: {code}]"),
        // As shells say it.
        End::Exit(Exit::Signal(signal)) => format!("[exit code: {}]", 128 + signal),
        End::TimedOut => format!("[timed out after {time_limit:?}]"),
        End::Stopped => INTERRUPTED.to_owned(),
    };
    if !output.is_empty() && !output.ends_with('\n') {
        output.push('\n');
    }
    Err(output + &last)
}

fn not_started(error: SpawnError, command: &str) -> String {
    match error {
        SpawnError::TooLong { .. } => format!(
            "the command is too long: {} bytes, and the system takes about 128 KiB; \
             put it, or the data in it, into a file with write_file",
            command.len()
        ),
        SpawnError::BadDirectory { cwd, source } => {
            format!("cannot run a command in the workspace {}: {source}", cwd.display())
        }
        SpawnError::NotFound { source, .. }
        | SpawnError::NotExecutable { source, .. }
        | SpawnError::Other { source, .. }
        | SpawnError::Unconfined { source, .. }
        | SpawnError::Exhausted(source)
        | SpawnError::Keeper(source) => format!("cannot start a shell: {source}"),
        SpawnError::ShutDown => "cannot start a command: shutting down".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endings() {
        let limit = Duration::from_secs(30);
        for (output, end, expected) in [
            ("", End::Exit(Exit::Code(0)), Ok("(no output)")),
            ("a", End::Exit(Exit::Code(0)), Ok("a")),
            ("", End::Exit(Exit::Code(1)), Err("[exit code: 1]")),
            ("a", End::Exit(Exit::Code(127)), Err("a\n[exit code: 127]")),
            ("a\n", End::Exit(Exit::Signal(9)), Err("a\n[exit code: 137]")),
            ("", End::TimedOut, Err("[timed out after 30s]")),
            ("a", End::TimedOut, Err("a\n[timed out after 30s]")),
            ("a", End::Stopped, Err("a\n[interrupted]")),
        ] {
            let expected = expected.map(str::to_owned).map_err(str::to_owned);
            assert_eq!(tell(output.into(), &end, limit), expected);
        }
    }
}

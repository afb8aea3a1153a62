//! `bash`: runs a command in the workspace, with a time limit, and ends it with all its child processes.

use std::path::Path;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use trunkline_core::limits::RunLimits;
use trunkline_process::{ProcessEvent, ProcessExit, SpawnError, Spec, StopSignal};

use super::outcome::ToolResult;
use super::output::OutputBuffer;
use super::shell::Shell;
use crate::transcript::INTERRUPTED;

/// Runs its one argument as a command, in bash or else in sh, with one pipe for stdout and stderr.
///
/// The script does not `exec` the shell: a command that redirects its output would close the pipe, and a process with a
/// closed output counts as hanging.
const SCRIPT: &str = r#"exec 2>&1
if command -v bash >/dev/null; then bash -c -- "$1"; else sh -c -- "$1"; fi
exit $?"#;

/// Time that a command has to clean up after its time limit.
const GRACE_PERIOD: Duration = Duration::from_millis(500);

/// End of a command.
enum CommandEnd {
    Exit(ProcessExit),
    TimedOut,
    /// The turn was cancelled.
    Stopped,
}

/// Runs a command. Dropping the future ends it with all its child processes.
pub(super) async fn run(
    shell: &Shell,
    folder: &Path,
    command: &str,
    time_limit: Duration,
    stop: &CancellationToken,
) -> ToolResult {
    if command.trim().is_empty() {
        return Err("the command is empty".into());
    }
    if command.contains('\0') {
        return Err("the command has a NUL byte in it, which no shell can take; write \\0 with printf".into());
    }
    let spec = Spec {
        program: "/bin/sh".into(),
        args: ["-c", SCRIPT, "sh", command].into_iter().collect(),
        env: shell.env.clone().into(),
        cwd: folder.into(),
        stdin: Vec::new(),
        stop: StopSignal::Term,
        grace: GRACE_PERIOD,
        limits: RunLimits { total: time_limit, ..RunLimits::NONE },
        confinement: shell.confinement.clone(),
    };
    let mut running = shell.keepers.spawn(spec).await.map_err(|error| not_started(error, command))?;
    let mut output = OutputBuffer::default();
    let end = loop {
        match stop.run_until_cancelled(running.next()).await {
            Some(ProcessEvent::Stdout(chunk)) => output.push(&chunk),
            Some(ProcessEvent::Exited(exit)) => break CommandEnd::Exit(exit),
            Some(ProcessEvent::Limit(_)) => break CommandEnd::TimedOut,
            None => break CommandEnd::Stopped,
        }
    };
    // Background processes must not write to files that the next call reads.
    running.stop_hearing(|chunk| output.push(chunk)).await;
    report(output.into_text(), &end, time_limit)
}

/// Adds the end of a command to its output.
fn report(mut output: String, end: &CommandEnd, time_limit: Duration) -> ToolResult {
    let last = match end {
        CommandEnd::Exit(ProcessExit::Code(0)) if output.is_empty() => return Ok("(no output)".into()),
        CommandEnd::Exit(ProcessExit::Code(0)) => return Ok(output),
        CommandEnd::Exit(ProcessExit::Code(code)) => format!("[exit code: {code}]"),
        // The convention of shells.
        CommandEnd::Exit(ProcessExit::Signal(signal)) => format!("[exit code: {}]", 128 + signal),
        CommandEnd::TimedOut => format!("[timed out after {time_limit:?}]"),
        CommandEnd::Stopped => INTERRUPTED.to_owned(),
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
    fn output_ends_with_exit_code_or_reason() {
        let limit = Duration::from_secs(30);
        for (output, end, expected) in [
            ("", CommandEnd::Exit(ProcessExit::Code(0)), Ok("(no output)")),
            ("a", CommandEnd::Exit(ProcessExit::Code(0)), Ok("a")),
            ("", CommandEnd::Exit(ProcessExit::Code(1)), Err("[exit code: 1]")),
            ("a", CommandEnd::Exit(ProcessExit::Code(127)), Err("a\n[exit code: 127]")),
            ("a\n", CommandEnd::Exit(ProcessExit::Signal(9)), Err("a\n[exit code: 137]")),
            ("", CommandEnd::TimedOut, Err("[timed out after 30s]")),
            ("a", CommandEnd::TimedOut, Err("a\n[timed out after 30s]")),
            ("a", CommandEnd::Stopped, Err("a\n[interrupted]")),
        ] {
            let expected = expected.map(str::to_owned).map_err(str::to_owned);
            assert_eq!(report(output.into(), &end, limit), expected);
        }
    }
}

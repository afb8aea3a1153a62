//! Runs the executable for a case and records what it did.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use tokio::time::{Instant, interval_at};
use trunkline_core::limits::RunLimits;
use trunkline_process::{Keepers, ProcessEvent, SpawnError, Spec, StopSignal};

use super::cases::ProtocolCase;
use super::judge::{ExecutionEnd, Observation};
use crate::output::tell;

/// Interval of notices that a case is still running.
const NOTICE_INTERVAL: Duration = Duration::from_secs(2);

/// Limit of stdout that is read.
const MAX_STDOUT_BYTES: usize = 8 << 20;

/// The executable under test, with its arguments and environment.
#[derive(Debug)]
pub(super) struct CheckedExecutable {
    pub(super) program: PathBuf,
    /// Arguments before the command.
    pub(super) args: Vec<OsString>,
    /// The part of our environment that it gets.
    pub(super) env: Vec<(OsString, OsString)>,
    pub(super) folder: PathBuf,
}

/// Runs a case until it ends or reaches the limit. On return all its processes have ended.
pub(super) async fn observe(
    keepers: &Keepers,
    executable: &CheckedExecutable,
    case: &ProtocolCase,
    limit: Duration,
) -> Result<Observation, SpawnError> {
    let spec = Spec {
        program: executable.program.clone(),
        args: executable.args.iter().cloned().chain([case.command.into()]).collect(),
        env: executable.env.clone().into(),
        cwd: executable.folder.clone(),
        stdin: case.stdin.clone(),
        stop: StopSignal::Term,
        grace: Duration::from_secs(1),
        limits: RunLimits { total: limit, ..RunLimits::NONE },
        confinement: None,
    };
    let began = Instant::now();
    let mut running = keepers.spawn_spooled(spec).await?;
    let mut still_waiting = interval_at(began + NOTICE_INTERVAL, NOTICE_INTERVAL);
    let (mut stdout, mut first_output) = (Vec::new(), None);
    let ended = loop {
        let step = tokio::select! {
            step = running.next() => step,
            _ = still_waiting.tick() => {
                tell(format_args!("… {}: {} s so far, of at most {limit:?}", case.name, began.elapsed().as_secs()));
                continue;
            }
        };
        match step {
            ProcessEvent::Stdout(chunk) => {
                first_output.get_or_insert_with(|| began.elapsed());
                stdout.extend(chunk);
                if stdout.len() > MAX_STDOUT_BYTES {
                    break ExecutionEnd::TooLong;
                }
            }
            ProcessEvent::Limit(_) => break ExecutionEnd::TimedOut(limit),
            ProcessEvent::Exited(exit) => break ExecutionEnd::Exit(exit),
        }
    };
    let elapsed = began.elapsed();
    let stderr = running.stderr_tail();
    running.stop().await;
    Ok(Observation { ended, stdout, stderr, elapsed, first_output })
}

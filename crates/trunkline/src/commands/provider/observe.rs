//! Runs the provider for a case and notes what it did.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use tokio::time::{Instant, interval_at};
use trunkline_core::limits::Limits;
use trunkline_process::{Keepers, SpawnError, Spec, Step, StopSignal};

use super::cases::Case;
use super::judge::{Ended, Observation};
use crate::setup::tell;

/// After this long, and each time again, we say that we still wait.
const SLOW: Duration = Duration::from_secs(2);

/// As much as is read of one run.
const LONGEST: usize = 8 << 20;

/// The executable under test, and what it is started with.
#[derive(Debug)]
pub(super) struct Subject {
    pub(super) program: PathBuf,
    /// Before the command.
    pub(super) args: Vec<OsString>,
    /// What it is given of our environment.
    pub(super) env: Vec<(OsString, OsString)>,
    pub(super) folder: PathBuf,
}

/// One run, to its end or to the limit. On return all its processes are dead.
pub(super) async fn observe(
    keepers: &Keepers,
    subject: &Subject,
    case: &Case,
    limit: Duration,
) -> Result<Observation, SpawnError> {
    let spec = Spec {
        program: subject.program.clone(),
        args: subject.args.iter().cloned().chain([case.command.into()]).collect(),
        env: subject.env.clone(),
        cwd: subject.folder.clone(),
        stdin: case.stdin.clone(),
        stop: StopSignal::Term,
        grace: Duration::from_secs(1),
        limits: Limits { total: limit, ..Limits::NONE },
        confinement: None,
    };
    let began = Instant::now();
    let mut running = keepers.spawn_spooled(spec).await?;
    let mut still_waiting = interval_at(began + SLOW, SLOW);
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
            Step::Stdout(chunk) => {
                first_output.get_or_insert_with(|| began.elapsed());
                stdout.extend(chunk);
                if stdout.len() > LONGEST {
                    break Ended::TooLong;
                }
            }
            Step::Limit(_) => break Ended::TimedOut(limit),
            Step::Exited(exit) => break Ended::Exit(exit),
        }
    };
    let elapsed = began.elapsed();
    let stderr = running.stderr_tail();
    running.stop().await;
    Ok(Observation { ended, stdout, stderr, elapsed, first_output })
}

//! Runs short programs, such as git or `claude --version`, and collects their output.

use trunkline_core::limits::Overrun;

use crate::pool::Keepers;
use crate::spec::{ProcessEvent, ProcessExit, SpawnError, Spec};

/// Limit of the output that is collected.
const MAX_STDOUT_BYTES: usize = 8 << 20;

/// Output and exit status of a program.
#[derive(Debug)]
pub struct Output {
    pub exit: ProcessExit,
    pub stdout: Vec<u8>,
    /// The last 64 KiB.
    pub stderr: String,
    /// Set if the program was stopped before its end.
    pub cut: Option<Cut>,
}

/// Reason why a program was stopped before its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cut {
    Limit(Overrun),
    /// It printed more than 8 MiB.
    TooLong,
}

impl Output {
    /// Whether the program ended by itself, with exit code 0.
    pub fn success(&self) -> bool {
        self.cut.is_none() && self.exit.success()
    }
}

impl Keepers {
    /// Runs a program to its end and collects its output. When this returns, all its processes are dead.
    pub async fn output(&self, spec: Spec) -> Result<Output, SpawnError> {
        let mut running = self.spawn(spec).await?;
        let mut stdout = Vec::new();
        let cut = loop {
            match running.next().await {
                ProcessEvent::Stdout(chunk) if stdout.len() + chunk.len() <= MAX_STDOUT_BYTES => stdout.extend(chunk),
                ProcessEvent::Stdout(_) => break Some(Cut::TooLong),
                ProcessEvent::Limit(overrun) => break Some(Cut::Limit(overrun)),
                ProcessEvent::Exited(_) => break None,
            }
        };
        let stderr = running.stderr_tail();
        let exit = running.stop().await;
        Ok(Output { exit, stdout, stderr, cut })
    }
}

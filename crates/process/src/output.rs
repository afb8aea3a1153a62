//! Short programs whose output is wanted whole: git, `claude --version`.

use trunkline_core::limits::Overrun;

use crate::pool::Keepers;
use crate::running::Step;
use crate::spec::{Exit, SpawnError, Spec};

/// How much output is collected.
const LONGEST: usize = 8 << 20;

/// What a program printed and how it ended.
#[derive(Debug)]
pub struct Output {
    pub exit: Exit,
    pub stdout: Vec<u8>,
    /// The last 64 KiB.
    pub stderr: String,
    /// Why the program was stopped before its end, if it was.
    pub cut: Option<Cut>,
}

/// Why a program was not heard to its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cut {
    Limit(Overrun),
    /// It printed more than 8 MiB.
    TooLong,
}

impl Output {
    /// It ended by itself, and well.
    pub fn success(&self) -> bool {
        self.cut.is_none() && self.exit.success()
    }
}

impl Keepers {
    /// Runs a program to its end and collects what it prints. On return all its processes are dead.
    pub async fn output(&self, spec: Spec) -> Result<Output, SpawnError> {
        let mut running = self.spawn(spec).await?;
        let mut stdout = Vec::new();
        let cut = loop {
            match running.next().await {
                Step::Stdout(chunk) if stdout.len() + chunk.len() <= LONGEST => stdout.extend(chunk),
                Step::Stdout(_) => break Some(Cut::TooLong),
                Step::Limit(overrun) => break Some(Cut::Limit(overrun)),
                Step::Exited(_) => break None,
            }
        };
        let stderr = running.stderr_tail();
        let exit = running.stop().await;
        Ok(Output { exit, stdout, stderr, cut })
    }
}

//! `!command`: a shell command of the user's own, past the model.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use trunkline_process::{Cut, Exit, Keepers, Limits, SpawnError, Spec, StopSignal};

/// As long as the agent's own `bash` may take.
const LIMIT: Duration = Duration::from_secs(30);
const GRACE: Duration = Duration::from_secs(1);

/// Where commands run, and with what around them.
pub(crate) struct Shell {
    pub(crate) keepers: Keepers,
    pub(crate) env: Vec<(OsString, OsString)>,
    pub(crate) folder: PathBuf,
}

impl Shell {
    /// Runs a command to its end: what it printed and, where that was not well, how it ended. Dropping the future stops it.
    pub(super) async fn bash(&self, command: &str) -> String {
        let mut ran = self.keepers.output(self.spec("bash", command)).await;
        if matches!(ran, Err(SpawnError::NotFound { .. })) {
            ran = self.keepers.output(self.spec("sh", command)).await;
        }
        let ran = match ran {
            Ok(ran) => ran,
            Err(error) => return error.to_string(),
        };
        let mut output = String::from_utf8_lossy(&ran.stdout).into_owned();
        let end = match (ran.cut, ran.exit) {
            (Some(Cut::Limit(_)), _) => Some(format!("[timed out after {}s]", LIMIT.as_secs())),
            (Some(Cut::TooLong), _) => Some("[stopped: too much output]".to_owned()),
            (None, Exit::Code(0)) => None,
            (None, Exit::Code(code)) => Some(format!("[exit code: {code}]")),
            (None, Exit::Signal(signal)) => Some(format!("[ended by signal {signal}]")),
        };
        if let Some(end) = end {
            if !output.is_empty() && !output.ends_with('\n') {
                output.push('\n');
            }
            output.push_str(&end);
        }
        output
    }

    fn spec(&self, program: &str, command: &str) -> Spec {
        // First, so that what the shell itself says of the command is read too.
        let script = format!("exec 2>&1\n{command}");
        let mut env = self.env.clone();
        env.retain(|(name, _)| name != "TERM");
        env.push(("TERM".into(), "dumb".into()));
        Spec {
            program: program.into(),
            args: vec!["-c".into(), script.into()],
            env,
            cwd: self.folder.clone(),
            stdin: Vec::new(),
            stop: StopSignal::Term,
            grace: GRACE,
            limits: Limits { total: LIMIT, ..Limits::NONE },
        }
    }
}

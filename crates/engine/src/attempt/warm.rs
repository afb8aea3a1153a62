//! State of an attempt that runs on a warm process.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use trunkline_core::live::{LiveChannel, LiveRecipe};
use trunkline_core::mcp_server::McpServer;
use trunkline_process::Spec;

use crate::attempt::request::NativeSchema;
use crate::attempt::scratch::Scratch;
use crate::tools::ToolExchange;
use crate::warm::{BootSpec, FileStamps};

/// Time within which a warm process must react to its turn.
const REACTION_TIMEOUT: Duration = Duration::from_secs(10);

/// A warm process in use by an attempt.
pub(crate) struct WarmAttempt {
    pub(crate) line: LiveChannel,
    pub(crate) boot: Arc<BootSpec>,
    pub(crate) stamps: FileStamps,
    pub(crate) scratch: Scratch,
    /// The client's tools that the process was offered.
    pub(crate) tools: Option<ToolExchange>,
    /// MCP servers of a request that the process was offered.
    pub(crate) servers: Vec<McpServer>,
    /// The command that starts a new process for the turn if the warm process is lost.
    pub(crate) cold: Option<Spec>,
    /// Deadline of the first reaction, after which the process counts as lost.
    pub(crate) answers_by: Instant,
}

impl WarmAttempt {
    /// Deadline for the first reaction to a turn sent now. It is well before the turn's own startup limit, which would be a failure.
    pub(crate) fn answers_by(startup: Duration) -> Instant {
        Instant::now() + REACTION_TIMEOUT.min(startup / 2)
    }

    /// Deadline for the first reaction; `None` once the process has reacted.
    pub(crate) fn unresponsive_at(&self) -> Option<Instant> {
        (!self.line.answers()).then_some(self.answers_by)
    }
}

/// Starts a turn of a kept process, with the schema of the answer in the protocol or in the prompt.
pub(crate) fn say(
    line: &mut LiveChannel,
    live: &LiveRecipe,
    prompt: &str,
    session: Option<&str>,
    schema: Option<&NativeSchema>,
) -> Option<Vec<u8>> {
    match schema {
        Some(schema) if live.schema_per_turn => {
            line.say_with_schema(&live.escape.text(prompt), session, Some(&schema.text))
        }
        Some(NativeSchema { instruction: Some(instruction), .. }) => {
            line.say(&live.escape.text(&format!("{prompt}\n\n{instruction}")), session)
        }
        Some(NativeSchema { instruction: None, .. }) | None => line.say(&live.escape.text(prompt), session),
    }
}

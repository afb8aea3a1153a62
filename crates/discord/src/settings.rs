//! What a bridge must be told once.

use std::path::PathBuf;
use std::time::Duration;

use trunkline_core::secret::Secrets;
use trunkline_core::turn::Shown;

use crate::allow::Allow;
use crate::draft::Pace;

#[derive(Debug, Clone)]
pub struct Settings {
    pub allow: Allow,
    /// Where Discord's REST interface is, if not where it always is.
    pub api: Option<String>,
    /// The same for its gateway.
    pub gateway: Option<String>,
    /// Below it people's files are kept.
    pub state: PathBuf,
    pub system_prompt: String,
    /// How many messages of a channel may wait.
    pub queue: usize,
    /// How long answers may go on after a signal to stop.
    pub drain: Duration,
    /// When an answer is seen: as it grows, or whole.
    pub shown: Shown,
    /// The least time between two edits of a growing answer.
    pub pace: Duration,
    /// What is not to be written down.
    pub secrets: Secrets,
}

impl Settings {
    /// With everything as it usually is.
    #[must_use]
    pub fn new(allow: Allow, state: PathBuf) -> Self {
        Self {
            allow,
            api: None,
            gateway: None,
            state,
            system_prompt: SYSTEM_PROMPT.to_owned(),
            queue: 20,
            drain: Duration::from_secs(30),
            shown: Shown::AsItComes,
            pace: Pace::LEAST,
            secrets: Secrets::default(),
        }
    }
}

/// What an agent should know about where it is read.
const SYSTEM_PROMPT: &str = "You are answering in a Discord channel. Only your final message is posted there. Write \
Discord's Markdown, without tables or images, and keep it short: what does not fit into a few messages is sent as a file.";

//! Settings of a bridge.

use std::path::PathBuf;
use std::time::Duration;

use trunkline_core::secret::Secrets;
use trunkline_core::turn::AnswerTiming;

use crate::allow::Allow;
use crate::draft::EditPace;

/// Settings of a bridge.
#[derive(Debug, Clone)]
pub struct DiscordSettings {
    pub allow: Allow,
    /// Base URL of the REST API, if it is not Discord's own.
    pub api: Option<String>,
    /// URL of the gateway, if it is not Discord's own.
    pub gateway: Option<String>,
    /// State folder. Attachments are stored below it.
    pub state: PathBuf,
    pub system_prompt: String,
    /// Maximum number of queued messages in a channel.
    pub queue: usize,
    /// Time that running answers get after a stop signal.
    pub drain: Duration,
    /// Whether an answer is shown while it is written, or at its end.
    pub shown: AnswerTiming,
    /// Minimum time between two edits of a draft.
    pub pace: Duration,
    /// Values that must not be stored.
    pub secrets: Secrets,
}

impl DiscordSettings {
    /// Default settings.
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
            shown: AnswerTiming::AsItComes,
            pace: EditPace::DEFAULT_INTERVAL,
            secrets: Secrets::default(),
        }
    }
}

/// Default system prompt.
const SYSTEM_PROMPT: &str = "You are answering in a Discord channel. Only your final message is posted there. Write \
Discord's Markdown, without tables or images, and keep it short: what does not fit into a few messages is sent as a file.";

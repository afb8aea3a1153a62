//! State shared by all tasks of the bridge, and retries of calls to Discord.

use std::future::Future;
use std::sync::OnceLock;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::DiscordSettings;
use crate::backend::ChatBackends;
use crate::bridge_store::BridgeStore;
use crate::files::Files;
use crate::rest::{Rest, RestError};
use crate::snowflake::Snowflake;

/// First delay between two attempts of a call. It doubles after each attempt.
const MIN_RETRY_DELAY: Duration = Duration::from_millis(500);

/// Longest delay between two attempts of a call.
const MAX_RETRY_DELAY: Duration = Duration::from_secs(30);

/// State shared by all tasks of the bridge.
pub(crate) struct BridgeShared {
    pub(crate) rest: Rest,
    pub(crate) store: BridgeStore,
    pub(crate) files: Files,
    pub(crate) backends: ChatBackends,
    pub(crate) settings: DiscordSettings,
    /// User id of the bot, once Discord has reported it.
    pub(crate) me: OnceLock<Snowflake>,
    /// Cancelled when running work has to end at once. The next start resumes it.
    pub(crate) interrupted: CancellationToken,
}

/// Reason why a call to Discord was not completed.
#[derive(Debug)]
pub(crate) enum Undelivered {
    /// The bridge is shutting down.
    Interrupted,
    Refused(RestError),
}

impl BridgeShared {
    /// Repeats a call until it succeeds, is refused, or the bridge shuts down.
    pub(crate) async fn retry<T, F>(&self, call: impl Fn() -> F) -> Result<T, Undelivered>
    where
        F: Future<Output = Result<T, RestError>>,
    {
        let mut wait = MIN_RETRY_DELAY;
        loop {
            match call().await {
                Ok(done) => return Ok(done),
                Err(error) if !error.is_temporary() => return Err(Undelivered::Refused(error)),
                Err(error) => tracing::warn!("{error}; retrying"),
            }
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = self.interrupted.cancelled() => return Err(Undelivered::Interrupted),
            }
            wait = (wait * 2).min(MAX_RETRY_DELAY);
        }
    }
}

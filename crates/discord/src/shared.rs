//! What every task of the bridge needs, and how it goes on when Discord does not answer.

use std::future::Future;
use std::sync::OnceLock;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::Settings;
use crate::backend::Backends;
use crate::files::Files;
use crate::ledger::Ledger;
use crate::rest::{Rest, RestError};
use crate::snowflake::Snowflake;

/// Between two tries of a call that may succeed later.
const RETRY: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(30));

pub(crate) struct Shared {
    pub(crate) rest: Rest,
    pub(crate) ledger: Ledger,
    pub(crate) files: Files,
    pub(crate) backends: Backends,
    pub(crate) settings: Settings,
    /// Who we are on Discord, once it has said so.
    pub(crate) me: OnceLock<Snowflake>,
    /// What is going on is to end now; it will be taken up again at the next start.
    pub(crate) interrupted: CancellationToken,
}

/// Why an answer was not sent.
#[derive(Debug)]
pub(crate) enum Unsent {
    /// We are to end.
    Interrupted,
    Refused(RestError),
}

impl Shared {
    /// Calls until it succeeds, is refused, or we are to end.
    pub(crate) async fn persist<T, F>(&self, call: impl Fn() -> F) -> Result<T, Unsent>
    where
        F: Future<Output = Result<T, RestError>>,
    {
        let (mut wait, most) = RETRY;
        loop {
            match call().await {
                Ok(done) => return Ok(done),
                Err(error) if !error.passes() => return Err(Unsent::Refused(error)),
                Err(error) => tracing::warn!("{error}; trying again"),
            }
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = self.interrupted.cancelled() => return Err(Unsent::Interrupted),
            }
            wait = (wait * 2).min(most);
        }
    }
}

//! State that every handler sees.

use std::sync::Arc;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use trunkline_core::turn::ClientId;
use trunkline_wire::error::ApiError;

use crate::answer::Terms;
use crate::auth;
use crate::auth::wrong_keys::WrongKeys;
use crate::config::ServerConfig;
use crate::continuations::Continuations;
use crate::dialect::ollama::SentCalls;
use crate::door::Door;
use crate::pages::Chats;
use crate::repeat::Repeats;

/// Tokens that end a server.
#[derive(Debug, Clone, Default)]
pub struct ServerShutdown {
    /// Stops accepting, and lets open answers run for [`HttpLimits::drain`](crate::HttpLimits::drain).
    pub gently: CancellationToken,
    /// Ends everything at once: a second signal.
    pub now: CancellationToken,
}

/// State that every handler sees.
pub(crate) struct App<D> {
    pub(crate) door: Arc<D>,
    pub(crate) chats: Arc<Chats>,
    pub(crate) config: ServerConfig,
    /// Start of this server in seconds since 1970, used as the `created` of its models.
    pub(crate) started: u64,
    pub(crate) wrong_keys: WrongKeys,
    pub(crate) continuations: Arc<Continuations>,
    pub(crate) repeats: Repeats,
    /// Calls in answers of Ollama's API, whose clients do not keep ids.
    pub(crate) ollama_calls: SentCalls,
    /// Cancelled when shutdown begins.
    pub(crate) stopping: CancellationToken,
    /// Cancelled when the time for open answers is over.
    pub(crate) expired: CancellationToken,
}

impl<D: Door> App<D> {
    /// Context of an answer that begins now.
    pub(crate) fn terms(&self) -> Terms {
        Terms {
            secrets: Arc::clone(&self.config.secrets),
            began: Instant::now(),
            keep_alive: self.config.limits.keep_alive,
            waiting: {
                let door = Arc::clone(&self.door);
                Arc::new(move || door.waiting())
            },
            expired: self.expired.clone(),
        }
    }
}

impl<D> App<D> {
    /// Counts requests without a valid key, and refuses further ones with 429. Requests with a valid key are not affected.
    pub(crate) fn limit_wrong_keys(
        &self,
        peer: auth::Peer,
        admitted: Result<ClientId, ApiError>,
    ) -> Result<ClientId, ApiError> {
        match admitted {
            Err(error) if error.status == 401 => match self.wrong_keys.refuse(peer.from) {
                Ok(()) => Err(error),
                Err(wait) => Err(ApiError::limited("too many wrong keys came from this address", wait)),
            },
            Ok(_) | Err(_) => admitted,
        }
    }
}

//! What the server is told: who may come in, and how much of anything it accepts.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use trunkline_core::secret::Secrets;

use crate::auth::Keys;

/// Everything but the socket and the engine.
#[derive(Debug, Clone, Default)]
pub struct ServerConfig {
    /// Without keys nobody is asked for one; see [`crate::auth::check_bind`].
    pub keys: Keys,
    /// Names, besides loopback's and the address itself, under which this server may be addressed.
    pub hosts: Vec<String>,
    /// What must not appear in an error.
    pub secrets: Arc<Secrets>,
    /// The folder of the chat page's conversations; without one they end with the server.
    pub chats: Option<PathBuf>,
    pub limits: HttpLimits,
}

#[derive(Debug, Clone)]
pub struct HttpLimits {
    /// The longest request body, in bytes.
    pub body: usize,
    /// How many header fields a request may have.
    pub headers: usize,
    /// How many bytes they may be together.
    pub header_bytes: usize,
    /// How long a request's head may take; also how long a connection may idle between requests.
    pub header_read: Duration,
    /// How long a body may stand still.
    pub body_idle: Duration,
    /// How long a client may take nothing of what we send.
    pub write_stall: Duration,
    /// How many connections may be open; further ones are closed when they come.
    pub connections: usize,
    /// How long a stream may be silent before it says that it lives.
    pub keep_alive: Duration,
    /// How long open answers may go on once the server stops.
    pub drain: Duration,
}

impl Default for HttpLimits {
    fn default() -> Self {
        Self {
            body: 32 * 1024 * 1024,
            headers: 100,
            header_bytes: 64 * 1024,
            header_read: Duration::from_secs(10),
            body_idle: Duration::from_secs(30),
            write_stall: Duration::from_secs(60),
            connections: 4096,
            keep_alive: Duration::from_secs(10),
            drain: Duration::from_secs(30),
        }
    }
}

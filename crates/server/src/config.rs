//! Configuration and limits of the server.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use trunkline_core::secret::Secrets;

use crate::auth::keys::Keys;
use crate::auth::origin::AllowedOrigins;

/// Configuration of the server, except its socket and engine.
#[derive(Debug, Clone, Default)]
pub struct ServerConfig {
    /// Valid keys. Without any, no key is required; see [`crate::auth::check_bind`].
    pub keys: Keys,
    /// Allowed host names, in addition to loopback names and the address itself.
    pub hosts: Vec<String>,
    /// Origins of web pages that may use the API with a key; see [`crate::auth::check_origins`].
    pub origins: AllowedOrigins,
    /// Values that must not appear in errors.
    pub secrets: Arc<Secrets>,
    /// Folder of the chat page's conversations. Without it they end with the server.
    pub chats: Option<PathBuf>,
    pub limits: HttpLimits,
}

/// Limits and timeouts of HTTP connections.
#[derive(Debug, Clone)]
pub struct HttpLimits {
    /// Maximum size of a request body, in bytes.
    pub body: usize,
    /// Maximum number of header fields.
    pub headers: usize,
    /// Maximum total size of the header fields, in bytes.
    pub header_bytes: usize,
    /// Timeout for reading a request's head, and for idle connections between requests.
    pub header_read: Duration,
    /// Timeout for a body that makes no progress.
    pub body_idle: Duration,
    /// Timeout for a write that makes no progress.
    pub write_stall: Duration,
    /// Maximum number of open connections. Further ones are closed at once.
    pub connections: usize,
    /// Interval of keep-alive comments in a stream.
    pub keep_alive: Duration,
    /// Time for open answers to finish during shutdown.
    pub drain: Duration,
    /// Time that the run of a client that gave up waiting waits for the client to ask again.
    pub repeat_wait: Duration,
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
            repeat_wait: Duration::from_secs(30),
        }
    }
}

//! Ports: places where an MCP server delivers a process's calls of the client's tools. Each process has a port and a secret of
//! its own.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, oneshot};
use trunkline_agent::tools::ClientToolbox;
use trunkline_core::mcp::{McpCall, OfferedTool};

use super::ClientTools;

/// Maximum number of calls that a process has made while its run waits for results of earlier ones.
const MAX_QUEUED_CALLS: usize = 128;

/// Server through which CLIs reach the ports. It is started when the first CLI needs it.
pub trait ToolEndpoint: Send + Sync {
    /// Starts the server, unless it runs, and returns its loopback address.
    fn address(&self) -> Pin<Box<dyn Future<Output = io::Result<SocketAddr>> + Send + '_>>;
}

/// All open ports, by the digest of their secret. Cheap to clone.
#[derive(Clone, Default)]
pub struct ToolPorts {
    open: Arc<Mutex<HashMap<[u8; 32], Arc<ToolPort>>>>,
}

/// The port of one process.
pub struct ToolPort {
    tools: Arc<ClientTools>,
    calls: mpsc::Sender<PortCall>,
}

/// A call that arrived at a port.
pub(crate) struct PortCall {
    /// Name of the offered tool.
    pub(crate) name: String,
    pub(crate) arguments: String,
    /// Takes the result, or the reason why there is none.
    pub(crate) reply: oneshot::Sender<Result<String, String>>,
}

/// An open port as its process owns it. Dropping it closes the port.
pub(crate) struct OwnedPort {
    pub(crate) token: String,
    pub(crate) calls: mpsc::Receiver<PortCall>,
    key: [u8; 32],
    ports: ToolPorts,
}

impl ToolPorts {
    /// Opens a port with a new secret.
    pub(crate) fn open(&self, tools: &Arc<ClientTools>) -> OwnedPort {
        let token = format!("{}{}", uuid::Uuid::new_v4().simple(), uuid::Uuid::new_v4().simple());
        let (sender, calls) = mpsc::channel(MAX_QUEUED_CALLS);
        let key = digest(&token);
        self.lock().insert(key, Arc::new(ToolPort { tools: Arc::clone(tools), calls: sender }));
        OwnedPort { token, calls, key, ports: self.clone() }
    }

    /// The port with this secret.
    #[must_use]
    pub fn find(&self, token: &str) -> Option<Arc<ToolPort>> {
        self.lock().get(&digest(token)).cloned()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<[u8; 32], Arc<ToolPort>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ToolPort {
    #[must_use]
    pub fn tools(&self) -> &[OfferedTool] {
        self.tools.tools()
    }

    /// Delivers a call, and waits for its result. An error is the reason why there is none.
    pub async fn call(&self, call: McpCall) -> Result<String, String> {
        self.deliver(call.name, call.arguments).await
    }

    async fn deliver(&self, name: String, arguments: String) -> Result<String, String> {
        let (reply, result) = oneshot::channel();
        let gone = || "the application that offered this tool is gone".to_owned();
        let call = PortCall { name, arguments, reply };
        self.calls.try_send(call).map_err(|error| match error {
            TrySendError::Full(_) => format!("{MAX_QUEUED_CALLS} calls are waiting already; call fewer tools at once"),
            TrySendError::Closed(_) => gone(),
        })?;
        result.await.unwrap_or_else(|_| Err(gone()))
    }
}

impl ClientToolbox for ToolPort {
    fn tools(&self) -> &[OfferedTool] {
        self.tools.tools()
    }

    fn call(&self, name: &str, arguments: &str) -> Pin<Box<dyn Future<Output = Result<String, String>> + Send + '_>> {
        let (name, arguments) = (name.to_owned(), arguments.to_owned());
        Box::pin(self.deliver(name, arguments))
    }
}

impl Drop for OwnedPort {
    fn drop(&mut self) {
        self.ports.lock().remove(&self.key);
    }
}

/// Secrets are compared by their digests, which takes the same time for every wrong secret.
fn digest(token: &str) -> [u8; 32] {
    *blake3::hash(token.as_bytes()).as_bytes()
}

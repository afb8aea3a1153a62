//! Finds the gateway that runs on a state folder, and sends requests to it. A running gateway writes its address to a file in
//! the state folder.

use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use trunkline_engine::{name_of_process, process_lives};

use crate::config::Environment;
use crate::shell::quoted;

/// Limit of a request. The gateway may have to examine its providers, or to stop a run.
const REPLY_TIMEOUT: Duration = Duration::from_secs(75);

/// Limit of a reply.
const MAX_REPLY_BYTES: u64 = 4 * 1024 * 1024;

/// Content of the address file.
#[derive(Serialize, Deserialize)]
struct GatewayAddress {
    address: SocketAddr,
}

/// The address file of this gateway. Removed when dropped.
pub(super) struct AddressFile(Option<PathBuf>);

impl AddressFile {
    /// Writes the file. If that fails, other commands do not find this gateway, and a warning is logged.
    pub(super) fn write(state: &Path, address: SocketAddr) -> Self {
        let path = folder(state).join(format!("{}.json", name_of_process()));
        let written = fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(folder(state))
            .and_then(|()| fs::write(&path, serde_json::to_vec(&GatewayAddress { address })?));
        match written {
            Ok(()) => Self(Some(path)),
            Err(error) => {
                tracing::warn!(%error, "other commands will not find this gateway");
                Self(None)
            }
        }
    }
}

impl Drop for AddressFile {
    fn drop(&mut self) {
        if let Some(path) = &self.0 {
            // It may be gone already.
            let _ = fs::remove_file(path);
        }
    }
}

/// HTTP client for a running gateway.
pub(super) struct GatewayClient {
    address: SocketAddr,
    key: Option<String>,
}

pub(super) struct GatewayReply {
    pub(super) status: u16,
    pub(super) body: String,
}

impl GatewayClient {
    pub(super) fn on_port(port: u16, environment: &Environment) -> Self {
        Self { address: (Ipv4Addr::LOCALHOST, port).into(), key: key(environment) }
    }

    /// The gateway on this state folder, if one runs. Removes address files of gateways that no longer run.
    pub(super) fn of_state(state: &Path, environment: &Environment) -> Option<Self> {
        for file in fs::read_dir(folder(state)).ok()?.flatten() {
            let path = file.path();
            if !path.file_stem().is_some_and(|name| process_lives(&name.to_string_lossy())) {
                // It may be gone already.
                let _ = fs::remove_file(path);
                continue;
            }
            if let Some(mut address) = read_address(&path) {
                if address.ip().is_unspecified() {
                    address.set_ip(Ipv4Addr::LOCALHOST.into());
                }
                return Some(Self { address, key: key(environment) });
            }
        }
        None
    }

    /// The gateway on this state folder, or an error that tells how to start one.
    pub(super) fn required(state: &Path, environment: &Environment) -> anyhow::Result<Self> {
        Self::of_state(state, environment)
            .ok_or_else(|| anyhow::anyhow!("no gateway runs on {}; {}", state.display(), start_advice(state)))
    }

    /// Error for a gateway that does not answer at its address.
    pub(super) fn no_answer(&self, state: &Path, error: io::Error) -> anyhow::Error {
        use io::ErrorKind::{ConnectionRefused, ConnectionReset, UnexpectedEof};
        if matches!(error.kind(), ConnectionRefused | ConnectionReset | UnexpectedEof) {
            return anyhow::anyhow!("no gateway answers at {}; {}", self.address, start_advice(state));
        }
        anyhow::Error::new(error).context(format!("the gateway at {} does not answer", self.address))
    }

    /// Sends a request and returns the reply. Uses HTTP/1.0, so that the reply is not chunked and ends with the connection.
    pub(super) async fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> io::Result<GatewayReply> {
        let exchanged = timeout(REPLY_TIMEOUT, async {
            let mut socket = TcpStream::connect(self.address).await?;
            let mut request = format!("{method} {path} HTTP/1.0\r\nhost: {}\r\n", self.address);
            if let Some(key) = &self.key {
                request.push_str(&format!("authorization: Bearer {key}\r\n"));
            }
            for (name, value) in headers {
                request.push_str(&format!("{name}: {value}\r\n"));
            }
            if !body.is_empty() {
                request.push_str(&format!("content-type: application/json\r\ncontent-length: {}\r\n", body.len()));
            }
            socket.write_all(format!("{request}\r\n{body}").as_bytes()).await?;
            let mut answer = String::new();
            socket.take(MAX_REPLY_BYTES).read_to_string(&mut answer).await?;
            io::Result::Ok(answer)
        });
        let answer = exchanged.await??;
        let (head, body) = answer.split_once("\r\n\r\n").ok_or(io::ErrorKind::InvalidData)?;
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
        Ok(GatewayReply { status: status.ok_or(io::ErrorKind::InvalidData)?, body: body.to_owned() })
    }
}

/// Advice on how to start a gateway on a state folder.
fn start_advice(state: &Path) -> String {
    format!("start one in another terminal: trunkline serve --state {}", quoted(&state.to_string_lossy()))
}

/// Whether the program that listens at this address is a gateway.
pub(super) async fn is_gateway(address: SocketAddr) -> bool {
    let gateway = GatewayClient { address, key: None };
    let reply = timeout(Duration::from_secs(1), gateway.send("GET", "/health", &[], "")).await;
    let Ok(Ok(reply)) = reply else { return false };
    let health: serde_json::Value = serde_json::from_str(&reply.body).unwrap_or_default();
    health["version"].is_string() && health["models"].is_number()
}

fn folder(state: &Path) -> PathBuf {
    state.join("gateways")
}

fn read_address(path: &Path) -> Option<SocketAddr> {
    Some(serde_json::from_slice::<GatewayAddress>(&fs::read(path).ok()?).ok()?.address)
}

/// The first API key that a gateway with this environment accepts.
fn key(environment: &Environment) -> Option<String> {
    let keys = environment.variable("TRUNKLINE_API_KEYS")?;
    keys.split(',').map(str::trim).find(|key| !key.is_empty()).map(str::to_owned)
}

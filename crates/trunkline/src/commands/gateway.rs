//! The gateway that runs on a state folder: it leaves word of where it listens, so that other commands can ask it.

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

use super::agent::quoted;
use crate::config::Surroundings;

/// How long a gateway may take. It may have to look at its providers, or to end a run.
const PATIENCE: Duration = Duration::from_secs(75);

/// More than anything it has to say here.
const LONGEST: u64 = 4 * 1024 * 1024;

#[derive(Serialize, Deserialize)]
struct Word {
    address: SocketAddr,
}

/// Word of this gateway; gone with the value.
pub(super) struct Beacon(Option<PathBuf>);

impl Beacon {
    /// Without it others do not find this gateway, and that is all.
    pub(super) fn light(state: &Path, address: SocketAddr) -> Self {
        let path = folder(state).join(format!("{}.json", name_of_process()));
        let written = fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(folder(state))
            .and_then(|()| fs::write(&path, serde_json::to_vec(&Word { address })?));
        match written {
            Ok(()) => Self(Some(path)),
            Err(error) => {
                tracing::warn!(%error, "other commands do not find this gateway");
                Self(None)
            }
        }
    }
}

impl Drop for Beacon {
    fn drop(&mut self) {
        if let Some(path) = &self.0 {
            let _gone_already = fs::remove_file(path);
        }
    }
}

/// A gateway that can be asked.
pub(super) struct Running {
    address: SocketAddr,
    key: Option<String>,
}

pub(super) struct Reply {
    pub(super) status: u16,
    pub(super) body: String,
}

impl Running {
    pub(super) fn on_port(port: u16, around: &Surroundings) -> Self {
        Self { address: (Ipv4Addr::LOCALHOST, port).into(), key: key(around) }
    }

    /// The one that keeps its state there. What dead ones left behind is removed on the way.
    pub(super) fn of_state(state: &Path, around: &Surroundings) -> Option<Self> {
        for file in fs::read_dir(folder(state)).ok()?.flatten() {
            let path = file.path();
            if !path.file_stem().is_some_and(|name| process_lives(&name.to_string_lossy())) {
                let _gone_already = fs::remove_file(path);
                continue;
            }
            if let Some(mut address) = read(&path) {
                if address.ip().is_unspecified() {
                    address.set_ip(Ipv4Addr::LOCALHOST.into());
                }
                return Some(Self { address, key: key(around) });
            }
        }
        None
    }

    /// The one that keeps its state there, or how to start it.
    pub(super) fn required(state: &Path, around: &Surroundings) -> anyhow::Result<Self> {
        Self::of_state(state, around)
            .ok_or_else(|| anyhow::anyhow!("no gateway runs on {}; {}", state.display(), start(state)))
    }

    /// The error for a gateway that left its address and does not answer there.
    pub(super) fn silent(&self, state: &Path, error: io::Error) -> anyhow::Error {
        use io::ErrorKind::{ConnectionRefused, ConnectionReset, UnexpectedEof};
        if matches!(error.kind(), ConnectionRefused | ConnectionReset | UnexpectedEof) {
            return anyhow::anyhow!("no gateway answers at {}; {}", self.address, start(state));
        }
        anyhow::Error::new(error).context(format!("the gateway at {} does not answer", self.address))
    }

    /// HTTP/1.0, so that the answer comes in one piece and the connection ends with it.
    pub(super) async fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> io::Result<Reply> {
        let exchanged = timeout(PATIENCE, async {
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
            socket.take(LONGEST).read_to_string(&mut answer).await?;
            io::Result::Ok(answer)
        });
        let answer = exchanged.await??;
        let (head, body) = answer.split_once("\r\n\r\n").ok_or(io::ErrorKind::InvalidData)?;
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
        Ok(Reply { status: status.ok_or(io::ErrorKind::InvalidData)?, body: body.to_owned() })
    }
}

/// How to start a gateway on a state folder.
fn start(state: &Path) -> String {
    format!("start one in another terminal: trunkline serve --state {}", quoted(&state.to_string_lossy()))
}

/// Whether a gateway listens there; other programs may, too.
pub(super) async fn is_gateway(address: SocketAddr) -> bool {
    let gateway = Running { address, key: None };
    let health = timeout(Duration::from_secs(1), gateway.send("GET", "/health", &[], "")).await;
    let Ok(Ok(reply)) = health else { return false };
    let told: serde_json::Value = serde_json::from_str(&reply.body).unwrap_or_default();
    told["version"].is_string() && told["models"].is_number()
}

fn folder(state: &Path) -> PathBuf {
    state.join("gateways")
}

fn read(path: &Path) -> Option<SocketAddr> {
    Some(serde_json::from_slice::<Word>(&fs::read(path).ok()?).ok()?.address)
}

/// The first of the keys that a gateway started here would take.
fn key(around: &Surroundings) -> Option<String> {
    let keys = around.variable("TRUNKLINE_API_KEYS")?;
    keys.split(',').map(str::trim).find(|key| !key.is_empty()).map(str::to_owned)
}

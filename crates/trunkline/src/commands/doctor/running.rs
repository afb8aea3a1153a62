//! What a gateway that runs on this machine knows and no other process can: which providers it leaves alone, and
//! which of them have said what nobody understood.

use std::collections::BTreeMap;
use std::io;
use std::net::Ipv4Addr;
use std::time::Duration;

use serde::Deserialize;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use trunkline_engine::router::CircuitState;

/// How long a gateway may take. It looks at its own providers first, unless it has just done so.
const PATIENCE: Duration = Duration::from_secs(25);

/// More than any list of providers.
const LONGEST: u64 = 4 * 1024 * 1024;

#[derive(Deserialize)]
struct Report {
    providers: Vec<Provider>,
}

#[derive(Deserialize)]
struct Provider {
    name: String,
    circuit: CircuitState,
    #[serde(default)]
    unknown_events: BTreeMap<String, u64>,
}

/// What the gateway knows of a provider.
pub(super) struct Known {
    pub(super) circuit: CircuitState,
    pub(super) unknown_events: BTreeMap<String, u64>,
}

/// What the gateway on this port knows, by provider; none if there is no gateway, or it does not say.
pub(super) async fn known(port: u16, key: Option<&str>) -> Option<BTreeMap<String, Known>> {
    let body = timeout(PATIENCE, ask(port, key)).await.ok()?.ok()?;
    let report: Report = serde_json::from_str(&body).ok()?;
    let known = |provider: Provider| {
        (provider.name, Known { circuit: provider.circuit, unknown_events: provider.unknown_events })
    };
    Some(report.providers.into_iter().map(known).collect())
}

/// HTTP/1.0, so that the answer comes in one piece and the connection ends with it.
async fn ask(port: u16, key: Option<&str>) -> io::Result<String> {
    let mut socket = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?;
    let key = key.map(|key| format!("authorization: Bearer {}\r\n", key.trim())).unwrap_or_default();
    let request = format!("GET /health/providers HTTP/1.0\r\nhost: 127.0.0.1:{port}\r\n{key}\r\n");
    socket.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    socket.take(LONGEST).read_to_string(&mut answer).await?;
    let (_, body) = answer.split_once("\r\n\r\n").ok_or(io::ErrorKind::InvalidData)?;
    Ok(body.to_owned())
}

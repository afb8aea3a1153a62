//! Probes a port: is it free, is it a gateway, or something else?

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use serde::Deserialize;

use super::port_owner;

/// Timeout for each socket operation. Loopback is fast; a longer wait means that the server hangs.
const IO_TIMEOUT: Duration = Duration::from_secs(3);

/// Upper bound of a response to `GET /health`; a gateway's is far smaller.
const MAX_RESPONSE_BYTES: u64 = 64 * 1024;

#[derive(Debug, PartialEq, Eq)]
pub(super) enum ProbeResult {
    /// Nothing listens on the port.
    Free,
    Gateway,
    /// A gateway that is shutting down.
    Draining,
    /// Something else, with a short description for the user.
    Other(String),
}

/// Body of the gateway's response to `GET /health`. The unused fields must exist: they tell a gateway from other
/// servers.
#[derive(Deserialize)]
struct GatewayHealth {
    status: String,
    #[serde(rename = "version")]
    _version: String,
    #[serde(rename = "models")]
    _models: u64,
}

pub(super) fn probe(port: u16) -> ProbeResult {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let socket = match TcpStream::connect_timeout(&address, IO_TIMEOUT) {
        Ok(socket) => socket,
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => return ProbeResult::Free,
        Err(error) => return ProbeResult::Other(error.to_string()),
    };
    if let Some(uid) = port_owner::foreign_uid(port) {
        return ProbeResult::Other(format!("it belongs to another user (uid {uid})"));
    }
    match exchange(socket, address) {
        Ok(response) => classify(&response),
        Err(error) => ProbeResult::Other(format!("it does not speak HTTP ({error})")),
    }
}

/// Returns a port that is free at the moment.
pub(crate) fn free_port() -> Option<u16> {
    Some(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).ok()?.local_addr().ok()?.port())
}

fn exchange(mut socket: TcpStream, address: SocketAddr) -> std::io::Result<String> {
    socket.set_read_timeout(Some(IO_TIMEOUT))?;
    socket.set_write_timeout(Some(IO_TIMEOUT))?;
    // HTTP/1.0: the response is not chunked, and the server closes the connection after it.
    socket.write_all(format!("GET /health HTTP/1.0\r\nhost: {address}\r\n\r\n").as_bytes())?;
    let mut response = Vec::new();
    socket.take(MAX_RESPONSE_BYTES).read_to_end(&mut response)?;
    Ok(String::from_utf8_lossy(&response).into_owned())
}

fn classify(response: &str) -> ProbeResult {
    let (head, body) = response.split_once("\r\n\r\n").unwrap_or((response, ""));
    let status = head.lines().next().unwrap_or_default().trim();
    let other = || ProbeResult::Other(if status.is_empty() { "it sent no response".into() } else { describe(status) });
    match serde_json::from_str::<GatewayHealth>(body).ok().map(|health| health.status).as_deref() {
        Some("ok") => ProbeResult::Gateway,
        Some("draining") => ProbeResult::Draining,
        Some(_) | None => other(),
    }
}

fn describe(status: &str) -> String {
    let printable: String = status.chars().filter(|c| !c.is_control()).take(80).collect();
    format!("it responded {printable:?}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gateway_is_recognised_by_its_health_response() {
        for (response, expected) in [
            (
                "HTTP/1.1 200 OK\r\na: b\r\n\r\n{\"status\":\"ok\",\"version\":\"0.1.0\",\"models\":3,\"waiting\":0}",
                ProbeResult::Gateway,
            ),
            (
                "HTTP/1.1 503 X\r\n\r\n{\"status\":\"draining\",\"version\":\"0.1.0\",\"models\":3}",
                ProbeResult::Draining,
            ),
            (
                "HTTP/1.1 200 OK\r\n\r\n{\"status\":\"ok\"}",
                ProbeResult::Other("it responded \"HTTP/1.1 200 OK\"".into()),
            ),
            ("HTTP/1.1 404 Not Found\r\n\r\n", ProbeResult::Other("it responded \"HTTP/1.1 404 Not Found\"".into())),
            ("SSH-2.0-OpenSSH_9.2\r\n", ProbeResult::Other("it responded \"SSH-2.0-OpenSSH_9.2\"".into())),
            ("", ProbeResult::Other("it sent no response".into())),
        ] {
            assert_eq!(classify(response), expected, "{response}");
        }
    }

    #[test]
    fn free_port_is_reported_as_free() {
        assert_eq!(probe(free_port().unwrap()), ProbeResult::Free);
    }
}

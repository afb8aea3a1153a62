//! Who answers on a port.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use serde::Deserialize;

use super::owner;

/// Loopback answers at once, or hangs.
const PATIENCE: Duration = Duration::from_secs(3);

/// More than a gateway has to say of its health.
const LONGEST: u64 = 64 * 1024;

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Nobody,
    Gateway,
    /// A gateway that takes no more work.
    Draining,
    /// What it is, in a few words.
    Another(String),
}

/// `GET /health`, as a gateway answers it.
#[derive(Deserialize)]
struct Health {
    status: String,
    #[serde(rename = "version")]
    _version: String,
    #[serde(rename = "models")]
    _models: u64,
}

pub(super) fn ask(port: u16) -> Answer {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let socket = match TcpStream::connect_timeout(&address, PATIENCE) {
        Ok(socket) => socket,
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => return Answer::Nobody,
        Err(error) => return Answer::Another(error.to_string()),
    };
    if let Some(user) = owner::stranger(port) {
        return Answer::Another(format!("it belongs to another user (number {user})"));
    }
    match exchange(socket, address) {
        Ok(reply) => judge(&reply),
        Err(error) => Answer::Another(format!("it does not speak HTTP ({error})")),
    }
}

/// A port that nobody has just now.
pub(crate) fn free_port() -> Option<u16> {
    Some(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).ok()?.local_addr().ok()?.port())
}

fn exchange(mut socket: TcpStream, address: SocketAddr) -> std::io::Result<String> {
    socket.set_read_timeout(Some(PATIENCE))?;
    socket.set_write_timeout(Some(PATIENCE))?;
    // HTTP/1.0: the answer comes in one piece, and the connection ends with it.
    socket.write_all(format!("GET /health HTTP/1.0\r\nhost: {address}\r\n\r\n").as_bytes())?;
    let mut reply = Vec::new();
    socket.take(LONGEST).read_to_end(&mut reply)?;
    Ok(String::from_utf8_lossy(&reply).into_owned())
}

fn judge(reply: &str) -> Answer {
    let (head, body) = reply.split_once("\r\n\r\n").unwrap_or((reply, ""));
    let status = head.lines().next().unwrap_or_default().trim();
    let another = || Answer::Another(if status.is_empty() { "it says nothing".into() } else { brief(status) });
    match serde_json::from_str::<Health>(body).ok().map(|health| health.status).as_deref() {
        Some("ok") => Answer::Gateway,
        Some("draining") => Answer::Draining,
        Some(_) | None => another(),
    }
}

fn brief(status: &str) -> String {
    let printable: String = status.chars().filter(|c| !c.is_control()).take(80).collect();
    format!("it says {printable:?}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gateway_is_known_by_its_health() {
        for (reply, expected) in [
            (
                "HTTP/1.1 200 OK\r\na: b\r\n\r\n{\"status\":\"ok\",\"version\":\"0.1.0\",\"models\":3,\"waiting\":0}",
                Answer::Gateway,
            ),
            ("HTTP/1.1 503 X\r\n\r\n{\"status\":\"draining\",\"version\":\"0.1.0\",\"models\":3}", Answer::Draining),
            ("HTTP/1.1 200 OK\r\n\r\n{\"status\":\"ok\"}", Answer::Another("it says \"HTTP/1.1 200 OK\"".into())),
            ("HTTP/1.1 404 Not Found\r\n\r\n", Answer::Another("it says \"HTTP/1.1 404 Not Found\"".into())),
            ("SSH-2.0-OpenSSH_9.2\r\n", Answer::Another("it says \"SSH-2.0-OpenSSH_9.2\"".into())),
            ("", Answer::Another("it says nothing".into())),
        ] {
            assert_eq!(judge(reply), expected, "{reply}");
        }
    }

    #[test]
    fn nobody_answers_on_a_free_port() {
        assert_eq!(ask(free_port().unwrap()), Answer::Nobody);
    }
}

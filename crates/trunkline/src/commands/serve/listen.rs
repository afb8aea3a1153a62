//! Addresses to listen on.

use std::io;
use std::net::{IpAddr, SocketAddr};

use anyhow::Result;
use tokio::net::TcpListener;

use crate::commands::gateway::is_gateway;

/// Default port of the metrics.
const DEFAULT_METRICS_PORT: u16 = 9464;

/// Address of an argument: `127.0.0.1`, `[::1]:8765`, `localhost`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ListenAddress {
    pub(super) ip: IpAddr,
    /// Takes precedence over `--port`.
    pub(super) port: Option<u16>,
}

impl ListenAddress {
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let text = text.replacen("localhost", "127.0.0.1", 1);
        if let Ok(ip) = text.trim_matches(['[', ']']).parse() {
            return Ok(Self { ip, port: None });
        }
        match text.parse::<SocketAddr>() {
            Ok(address) => Ok(Self { ip: address.ip(), port: Some(address.port()) }),
            Err(_) => Err("not an address: write 127.0.0.1, 0.0.0.0:8765 or [::1]:8765".to_owned()),
        }
    }
}

/// Purpose of an address.
#[derive(Debug, Clone, Copy)]
pub(super) enum ListenerPurpose {
    Api,
    Metrics,
}

/// Error for an address that cannot be listened on, with advice.
pub(super) async fn bind_error(address: SocketAddr, listener: ListenerPurpose, error: io::Error) -> anyhow::Error {
    let port = match listener {
        ListenerPurpose::Api => "another port with --port N (0 picks a free one)",
        ListenerPurpose::Metrics => "another with --metrics ADDR:PORT",
    };
    let kind = error.kind();
    let advice = if kind == io::ErrorKind::AddrInUse && is_gateway(address).await {
        format!("a trunkline gateway runs there already; use it, or choose {port}")
    } else if kind == io::ErrorKind::AddrInUse {
        format!("another program listens there; stop it, or choose {port}")
    } else if kind == io::ErrorKind::PermissionDenied {
        format!("ports below 1024 are for root; choose {port}")
    } else if kind == io::ErrorKind::AddrNotAvailable {
        "this machine has no such address; --listen names another".to_owned()
    } else {
        format!("choose {port}")
    };
    anyhow::Error::msg(format!("cannot listen on {address}: {error}: {advice}"))
}

/// Listens for requests of metrics.
pub(super) async fn metrics_listener(listen: ListenAddress) -> Result<TcpListener> {
    let address = SocketAddr::new(listen.ip, listen.port.unwrap_or(DEFAULT_METRICS_PORT));
    let listener = match TcpListener::bind(address).await {
        Ok(listener) => listener,
        Err(error) => return Err(bind_error(address, ListenerPurpose::Metrics, error).await.context("metrics")),
    };
    let address = listener.local_addr()?;
    if address.ip().is_loopback() {
        tracing::info!("metrics on http://{address}/metrics");
    } else {
        tracing::warn!("metrics on http://{address}/metrics, for everyone who can reach it");
    }
    Ok(listener)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_addresses() {
        let parsed = |text: &str| ListenAddress::parse(text).map(|listen| (listen.ip.to_string(), listen.port)).ok();
        for (text, ip, port) in [
            ("127.0.0.1", "127.0.0.1", None),
            ("localhost:0", "127.0.0.1", Some(0)),
            ("::1", "::1", None),
            ("[::1]", "::1", None),
            ("[::1]:80", "::1", Some(80)),
            ("0.0.0.0:8765", "0.0.0.0", Some(8765)),
        ] {
            assert_eq!(parsed(text), Some((ip.to_owned(), port)), "{text}");
        }
        assert_eq!(parsed("example.com"), None);
    }
}

//! Parser of `OLLAMA_HOST`, with the same rules as Ollama's own client.

use std::net::IpAddr;

/// Returns the base URL of the server, such as `http://127.0.0.1:11434`.
///
/// Users often share one setting between server and client. For the server `0.0.0.0` means all interfaces; for a client
/// it means this machine.
pub(crate) fn base_url(setting: Option<&str>) -> Result<String, String> {
    let setting = setting.unwrap_or_default().trim().trim_matches(['"', '\'']).trim();
    let (scheme, address) = setting.split_once("://").unwrap_or(("http", setting));
    let default_port = match (scheme, setting.contains("://")) {
        ("http", false) => 11434,
        ("http", true) => 80,
        ("https", _) => {
            return Err(format!(
                "not configured: OLLAMA_HOST is {setting:?}, and this provider speaks plain http only; \
                 point it at http://…, or at a local proxy that adds TLS"
            ));
        }
        _ => return Err(format!("invalid config: OLLAMA_HOST is {setting:?}; write host:port or http://host:port")),
    };
    let (address, path) = address.split_once('/').unwrap_or((address, ""));
    let (host, port) = split_port(address);
    let port = match port {
        None => default_port,
        Some(port) => port.parse::<u16>().map_err(|_| {
            format!("invalid config: {port:?} in OLLAMA_HOST {setting:?} is not a port; write host:port")
        })?,
    };
    let host = match host.trim_matches(['[', ']']).parse::<IpAddr>() {
        Ok(IpAddr::V4(ip)) if ip.is_unspecified() => "127.0.0.1".to_owned(),
        Ok(IpAddr::V6(ip)) if ip.is_unspecified() => "[::1]".to_owned(),
        Ok(IpAddr::V6(ip)) => format!("[{ip}]"),
        Ok(IpAddr::V4(ip)) => ip.to_string(),
        Err(_) if host.is_empty() => "127.0.0.1".to_owned(),
        Err(_) => host.to_owned(),
    };
    let path = path.trim_matches('/');
    let slash = if path.is_empty() { "" } else { "/" };
    Ok(format!("http://{host}:{port}{slash}{path}"))
}

/// Splits an address into host and optional port. A bare IPv6 address contains colons but no port.
fn split_port(address: &str) -> (&str, Option<&str>) {
    if address.parse::<IpAddr>().is_ok() || address.ends_with(']') {
        return (address, None);
    }
    match address.rsplit_once(':') {
        Some((host, port)) => (host, Some(port)),
        None => (address, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepts_all_common_spellings_of_an_address() {
        let table = [
            ("", "http://127.0.0.1:11434"),
            ("localhost", "http://localhost:11434"),
            ("localhost:1234", "http://localhost:1234"),
            ("box.lan:80", "http://box.lan:80"),
            ("http://box.lan:8080", "http://box.lan:8080"),
            ("http://box.lan", "http://box.lan:80"),
            ("http://box.lan:8080/", "http://box.lan:8080"),
            ("http://box.lan/ollama/", "http://box.lan:80/ollama"),
            ("0.0.0.0", "http://127.0.0.1:11434"),
            ("0.0.0.0:1234", "http://127.0.0.1:1234"),
            (":1234", "http://127.0.0.1:1234"),
            ("[::]:1234", "http://[::1]:1234"),
            ("::1", "http://[::1]:11434"),
            ("[::1]", "http://[::1]:11434"),
            ("[fe80::1]:99", "http://[fe80::1]:99"),
            (" \"10.0.0.7\" ", "http://10.0.0.7:11434"),
        ];
        for (setting, expected) in table {
            assert_eq!(base_url(Some(setting)).as_deref(), Ok(expected), "{setting:?}");
        }
        assert_eq!(base_url(None).as_deref(), Ok("http://127.0.0.1:11434"));
    }

    #[test]
    fn error_names_the_problem_when_setting_is_unusable() {
        for (setting, expected) in [
            ("https://box.lan:443", "plain http only"),
            ("ftp://box.lan", "write host:port"),
            ("box.lan:99999", "\"99999\" in OLLAMA_HOST"),
            ("box.lan:", "is not a port"),
        ] {
            let error = base_url(Some(setting)).unwrap_err();
            assert!(error.contains(expected), "{setting:?}: {error}");
        }
    }
}

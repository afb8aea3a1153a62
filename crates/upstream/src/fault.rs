//! Classifies transport errors: the connection to an upstream failed, or broke inside its answer.

use std::error::Error;
use std::io;
use std::time::Duration;

use rustls::CertificateError;
use trunkline_core::failure::{Category, Failure};

/// Time that establishing a connection may take.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Converts a transport error into a failure. The error's own text is not used: it quotes the URL.
pub(crate) fn failure(error: &reqwest::Error, host: &str) -> Failure {
    let reason = reason(error);
    if let Some(tls) = causes(error).find_map(|cause| cause.downcast_ref::<rustls::Error>()) {
        return tls_failure(tls, host);
    }
    if error.is_builder() {
        return Failure::new(Category::Configuration, format!("cannot call {host}: {reason}"));
    }
    if error.is_connect() && error.is_timeout() {
        let message = format!("cannot connect to {host}: no answer within {} s", CONNECT_TIMEOUT.as_secs());
        return Failure::new(Category::Network, message).hint("check base_url and the network");
    }
    if error.is_connect() {
        let message = format!("cannot connect to {host}: {reason}");
        return Failure::new(Category::Network, message).hint("is it running? check base_url");
    }
    Failure::new(Category::Network, format!("the connection to {host} broke: {reason}"))
}

/// Returns the innermost cause, which tells what happened. The outer ones tell where.
pub(crate) fn reason(error: &reqwest::Error) -> String {
    causes(error).last().map(ToString::to_string).unwrap_or_default()
}

fn tls_failure(error: &rustls::Error, host: &str) -> Failure {
    if let rustls::Error::InvalidCertificate(why) = error {
        let message = format!("the certificate of {host} is not trusted: {error}");
        let misnamed =
            matches!(why, CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. });
        let hint = if misnamed {
            "base_url must name the host as its certificate does"
        } else {
            "add its issuer to the system's certificates, or name a file of them in SSL_CERT_FILE"
        };
        return Failure::new(Category::Configuration, message).hint(hint);
    }
    let hint = "does it speak https? base_url may have to begin with http://";
    Failure::new(Category::Network, format!("cannot speak TLS with {host}: {error}")).hint(hint)
}

/// Iterates over an error and its causes. `source` of an I/O error skips the error inside it.
fn causes<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |&error| {
        let inside = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        inside.map(|inside| inside as &(dyn Error + 'static)).or_else(|| error.source())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cause_inside_an_io_error_is_found() {
        let tls = rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer);
        let error = io::Error::other(io::Error::other(tls.clone()));
        let last = causes(&error).last().unwrap();
        assert_eq!(last.downcast_ref::<rustls::Error>(), Some(&tls));
    }

    #[test]
    fn tls_failure_has_a_hint() {
        for (error, category, hint) in [
            (CertificateError::UnknownIssuer.into(), Category::Configuration, "SSL_CERT_FILE"),
            (CertificateError::NotValidForName.into(), Category::Configuration, "name the host"),
            (rustls::InvalidMessage::InvalidContentType.into(), Category::Network, "http://"),
        ] {
            let failure = tls_failure(&error, "the.host:1");
            assert_eq!(failure.category, category, "{error}");
            assert!(failure.message.contains("the.host:1") && failure.hint.unwrap().contains(hint), "{error}");
        }
    }
}

//! Interface to a service manager (systemd's `Type=notify`): readiness, stop and watchdog notifications, and socket
//! activation. Does nothing without a service manager.

use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};

use crate::config::Environment;

/// The first file descriptor that a service manager passes, `SD_LISTEN_FDS_START`.
const FIRST_PASSED_FD: i32 = 3;

/// The service manager that started this process, if there is one.
pub(crate) struct ServiceManager {
    notify_socket: Option<(UnixDatagram, SocketAddr)>,
    /// Interval of watchdog notifications.
    watchdog: Option<Duration>,
}

impl ServiceManager {
    pub(crate) fn of(environment: &Environment) -> Self {
        // Not blocking: a manager that does not read must not delay us.
        let socket = UnixDatagram::unbound().and_then(|socket| socket.set_nonblocking(true).map(|()| socket)).ok();
        let notify_socket = environment.variable("NOTIFY_SOCKET").and_then(address).zip(socket);
        let own = environment.variable("WATCHDOG_PID").is_none_or(is_us);
        let limit = environment.variable("WATCHDOG_USEC").and_then(|micros| micros.parse().ok()).filter(|_| own);
        // Twice per interval, so that one notification may be late.
        let watchdog = limit.map(|micros| Duration::from_micros(micros) / 2).filter(|every| !every.is_zero());
        Self { notify_socket: notify_socket.map(|(address, socket)| (socket, address)), watchdog }
    }

    pub(crate) fn ready(&self) {
        self.notify("READY=1");
    }

    pub(crate) fn stopping(&self) {
        self.notify("STOPPING=1\nSTATUS=waiting for open answers to finish");
    }

    /// Sends watchdog notifications. Never returns.
    pub(crate) async fn feed_watchdog(&self) {
        let Some(every) = self.watchdog else { return std::future::pending().await };
        loop {
            self.notify("WATCHDOG=1");
            tokio::time::sleep(every).await;
        }
    }

    fn notify(&self, message: &str) {
        if let Some((socket, address)) = &self.notify_socket
            && let Err(error) = socket.send_to_addr(message.as_bytes(), address)
        {
            tracing::warn!(%error, "cannot notify the service manager: {message:?}");
        }
    }
}

/// The address of `NOTIFY_SOCKET`: a path, or with `@` an abstract name.
fn address(socket: &str) -> Option<SocketAddr> {
    match socket.strip_prefix('@') {
        Some(name) => SocketAddr::from_abstract_name(name).ok(),
        None if socket.starts_with('/') => SocketAddr::from_pathname(socket).ok(),
        None => None,
    }
}

/// The listening socket that a service manager opened for us. Connections made before our start are queued in it.
pub(crate) fn inherited(environment: &Environment) -> std::io::Result<Option<TcpListener>> {
    let ours = environment.variable("LISTEN_PID").is_some_and(is_us);
    let count: u32 = environment.variable("LISTEN_FDS").and_then(|count| count.parse().ok()).unwrap_or(0);
    if !ours || count == 0 {
        return Ok(None);
    }
    // Owning a raw descriptor number needs `unsafe`; the kernel gives us a safe duplicate of it instead.
    let us = pidfd_open(getpid(), PidfdFlags::empty())?;
    let socket: OwnedFd = pidfd_getfd(us, FIRST_PASSED_FD, PidfdGetfdFlags::empty())?;
    let listener = TcpListener::from(socket);
    listener.set_nonblocking(true)?;
    // Fails if it is not a socket, or of an unknown address family.
    listener.local_addr()?;
    Ok(Some(listener))
}

fn is_us(pid: &str) -> bool {
    pid.parse() == Ok(std::process::id())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(variables: &[(&str, &str)]) -> Environment {
        let env = variables.iter().map(|(name, value)| (name.into(), value.into())).collect();
        Environment { env, folder: "/".into() }
    }

    fn received(socket: &UnixDatagram) -> String {
        let mut buffer = [0; 256];
        let count = socket.recv(&mut buffer).unwrap();
        String::from_utf8(buffer[..count].to_vec()).unwrap()
    }

    #[test]
    fn notifies_by_path_and_by_abstract_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let name = format!("trunkline-test-{}", std::process::id());
        let abstract_name = SocketAddr::from_abstract_name(&name).unwrap();
        for (socket, address) in [
            (UnixDatagram::bind(&path).unwrap(), path.to_str().unwrap().to_owned()),
            (UnixDatagram::bind_addr(&abstract_name).unwrap(), format!("@{name}")),
        ] {
            let manager = ServiceManager::of(&environment(&[("NOTIFY_SOCKET", &address)]));
            manager.ready();
            assert_eq!(received(&socket), "READY=1");
            manager.stopping();
            assert!(received(&socket).starts_with("STOPPING=1\n"));
            // A full socket does not block.
            (0..1000).for_each(|_| manager.ready());
        }
    }

    #[test]
    fn watchdog_is_ignored_when_it_is_for_another_process() {
        let us = std::process::id().to_string();
        let every = |variables: &[(&str, &str)]| ServiceManager::of(&environment(variables)).watchdog;
        assert_eq!(every(&[("WATCHDOG_USEC", "30000000")]), Some(Duration::from_secs(15)));
        assert_eq!(every(&[("WATCHDOG_USEC", "30000000"), ("WATCHDOG_PID", &us)]), Some(Duration::from_secs(15)));
        assert_eq!(every(&[("WATCHDOG_USEC", "30000000"), ("WATCHDOG_PID", "1")]), None);
        for nothing in ["", "0", "soon"] {
            assert_eq!(every(&[("WATCHDOG_USEC", nothing)]), None);
        }
    }

    #[test]
    fn does_nothing_without_a_service_manager() {
        for variables in [&[][..], &[("NOTIFY_SOCKET", "")], &[("NOTIFY_SOCKET", "relative")]] {
            assert!(ServiceManager::of(&environment(variables)).notify_socket.is_none(), "{variables:?}");
        }
        ServiceManager::of(&environment(&[("NOTIFY_SOCKET", "/nowhere/at/all")])).ready();
        assert!(inherited(&environment(&[("LISTEN_FDS", "1"), ("LISTEN_PID", "1")])).unwrap().is_none());
        assert!(inherited(&environment(&[("LISTEN_FDS", "1")])).unwrap().is_none());
    }
}

//! What a service manager is told (systemd's `Type=notify`), and what it may hand over: that we are ready, that we stop, that
//! we live; and a socket that is already open. Without one all of this is nothing.

use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};

use crate::config::Surroundings;

/// The first descriptor that a service manager hands over.
const FIRST: i32 = 3;

/// Whoever started us, if they want to be told.
pub(crate) struct Manager {
    told: Option<(UnixDatagram, SocketAddr)>,
    /// How often it wants to hear that we live.
    watchdog: Option<Duration>,
}

impl Manager {
    pub(crate) fn of(around: &Surroundings) -> Self {
        // A manager that does not listen must not hold us up.
        let socket = UnixDatagram::unbound().and_then(|socket| socket.set_nonblocking(true).map(|()| socket)).ok();
        let told = around.variable("NOTIFY_SOCKET").and_then(address).zip(socket);
        let own = around.variable("WATCHDOG_PID").is_none_or(is_us);
        let limit = around.variable("WATCHDOG_USEC").and_then(|micros| micros.parse().ok()).filter(|_| own);
        // Twice in its time, so that one may be late.
        let watchdog = limit.map(|micros| Duration::from_micros(micros) / 2).filter(|every| !every.is_zero());
        Self { told: told.map(|(address, socket)| (socket, address)), watchdog }
    }

    pub(crate) fn ready(&self) {
        self.tell("READY=1");
    }

    pub(crate) fn stopping(&self) {
        self.tell("STOPPING=1\nSTATUS=lets open answers end");
    }

    /// Says that we live, for as long as that is so. Never returns.
    pub(crate) async fn keep_telling(&self) {
        let Some(every) = self.watchdog else { return std::future::pending().await };
        loop {
            self.tell("WATCHDOG=1");
            tokio::time::sleep(every).await;
        }
    }

    fn tell(&self, what: &str) {
        if let Some((socket, address)) = &self.told
            && let Err(error) = socket.send_to_addr(what.as_bytes(), address)
        {
            tracing::warn!(%error, "the service manager cannot be told {what:?}");
        }
    }
}

/// A path, or with `@` a name that is not in the file system.
fn address(socket: &str) -> Option<SocketAddr> {
    match socket.strip_prefix('@') {
        Some(name) => SocketAddr::from_abstract_name(name).ok(),
        None if socket.starts_with('/') => SocketAddr::from_pathname(socket).ok(),
        None => None,
    }
}

/// The socket that a service manager opened for us: requests that came before we were there wait in it.
pub(crate) fn inherited(around: &Surroundings) -> std::io::Result<Option<TcpListener>> {
    let ours = around.variable("LISTEN_PID").is_some_and(is_us);
    let count: u32 = around.variable("LISTEN_FDS").and_then(|count| count.parse().ok()).unwrap_or(0);
    if !ours || count == 0 {
        return Ok(None);
    }
    // A number is no descriptor yet, and to believe it would be unsafe; the kernel is asked for a copy of what it names.
    let us = pidfd_open(getpid(), PidfdFlags::empty())?;
    let socket: OwnedFd = pidfd_getfd(us, FIRST, PidfdGetfdFlags::empty())?;
    let listener = TcpListener::from(socket);
    listener.set_nonblocking(true)?;
    // That it is one, and of a kind that we know.
    listener.local_addr()?;
    Ok(Some(listener))
}

fn is_us(pid: &str) -> bool {
    pid.parse() == Ok(std::process::id())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn around(variables: &[(&str, &str)]) -> Surroundings {
        let env = variables.iter().map(|(name, value)| (name.into(), value.into())).collect();
        Surroundings { env, folder: "/".into() }
    }

    fn heard(socket: &UnixDatagram) -> String {
        let mut words = [0; 256];
        let count = socket.recv(&mut words).unwrap();
        String::from_utf8(words[..count].to_vec()).unwrap()
    }

    #[test]
    fn a_manager_is_told_by_path_and_by_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let name = format!("trunkline-test-{}", std::process::id());
        let abstract_name = SocketAddr::from_abstract_name(&name).unwrap();
        for (socket, address) in [
            (UnixDatagram::bind(&path).unwrap(), path.to_str().unwrap().to_owned()),
            (UnixDatagram::bind_addr(&abstract_name).unwrap(), format!("@{name}")),
        ] {
            let manager = Manager::of(&around(&[("NOTIFY_SOCKET", &address)]));
            manager.ready();
            assert_eq!(heard(&socket), "READY=1");
            manager.stopping();
            assert!(heard(&socket).starts_with("STOPPING=1\n"));
            // It does not listen any more: nobody waits for it.
            (0..1000).for_each(|_| manager.ready());
        }
    }

    #[test]
    fn a_watchdog_is_ours_only_if_it_says_so() {
        let us = std::process::id().to_string();
        let every = |variables: &[(&str, &str)]| Manager::of(&around(variables)).watchdog;
        assert_eq!(every(&[("WATCHDOG_USEC", "30000000")]), Some(Duration::from_secs(15)));
        assert_eq!(every(&[("WATCHDOG_USEC", "30000000"), ("WATCHDOG_PID", &us)]), Some(Duration::from_secs(15)));
        assert_eq!(every(&[("WATCHDOG_USEC", "30000000"), ("WATCHDOG_PID", "1")]), None);
        for nothing in ["", "0", "soon"] {
            assert_eq!(every(&[("WATCHDOG_USEC", nothing)]), None);
        }
    }

    #[test]
    fn nobody_is_told_where_nobody_asks() {
        for variables in [&[][..], &[("NOTIFY_SOCKET", "")], &[("NOTIFY_SOCKET", "relative")]] {
            assert!(Manager::of(&around(variables)).told.is_none(), "{variables:?}");
        }
        Manager::of(&around(&[("NOTIFY_SOCKET", "/nowhere/at/all")])).ready();
        assert!(inherited(&around(&[("LISTEN_FDS", "1"), ("LISTEN_PID", "1")])).unwrap().is_none());
        assert!(inherited(&around(&[("LISTEN_FDS", "1")])).unwrap().is_none());
    }
}

//! Single-instance lock: there is one window per user.
//!
//! The first process holds a file lock and listens on a Unix socket. A second process asks it over that socket to show
//! its window, waits for the acknowledgement, and exits. If the first process is already shutting down, it sends none;
//! the second then waits for the lock and becomes the instance.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use tao::event_loop::EventLoopProxy;

use crate::app::AppEvent;
use crate::paths::{DesktopPaths, variable};

/// Upper bound of an activation token; longer than any desktop's.
const MAX_TOKEN_BYTES: u64 = 512;

/// Byte that acknowledges a [`ShowRequest`] once the window is visible.
const ACK: u8 = b'+';

/// Time for the other instance to show its window or to exit. Longer than the shutdown of the gateway that it stops.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The right to open the window. The kernel releases the lock when the process ends, even after a crash.
pub(crate) struct Instance {
    listener: UnixListener,
    lock: File,
}

impl Instance {
    /// Takes the lock. Returns `None` if another instance holds it and has shown its window.
    pub(crate) fn claim(paths: &DesktopPaths) -> Result<Option<Self>> {
        let path = paths.lock();
        let lock = OpenOptions::new().create(true).append(true).mode(0o600).open(&path);
        let lock = lock.with_context(|| format!("cannot open {}", path.display()))?;
        let since = Instant::now();
        loop {
            match lock.try_lock() {
                Ok(()) => break,
                Err(TryLockError::WouldBlock) if request_show(paths) => return Ok(None),
                // The other instance does not listen yet, or it is exiting and will release the lock.
                Err(TryLockError::WouldBlock) if since.elapsed() < TIMEOUT => thread::sleep(Duration::from_millis(50)),
                Err(TryLockError::WouldBlock) => bail!("Trunkline is already open, but its window does not respond"),
                Err(TryLockError::Error(error)) => {
                    return Err(error).context(format!("cannot lock {}", path.display()));
                }
            }
        }
        // We hold the lock, so a socket file that exists is left over from an instance that has ended.
        let _ = fs::remove_file(paths.socket());
        let listener = UnixListener::bind(paths.socket());
        let listener = listener.with_context(|| format!("cannot listen on {}", paths.socket().display()))?;
        Ok(Some(Self { listener, lock }))
    }

    /// Starts the thread that accepts [`ShowRequest`]s from other instances.
    pub(crate) fn listen(self, events: EventLoopProxy<AppEvent>) -> Result<()> {
        let Self { listener, lock } = self;
        let accept = move || {
            // The thread owns the lock: it is held for as long as requests are accepted.
            let _lock = lock;
            for socket in listener.incoming().flatten() {
                if events.send_event(AppEvent::Raise(Some(ShowRequest::read(socket)))).is_err() {
                    return;
                }
            }
        };
        thread::Builder::new().name("instance".into()).spawn(accept).context("cannot start a thread")?;
        Ok(())
    }
}

/// Request of another instance to show the window.
#[derive(Debug)]
pub(crate) struct ShowRequest {
    socket: UnixStream,
    /// Activation token that the other instance got from its desktop.
    pub(crate) token: Option<String>,
}

impl ShowRequest {
    fn read(socket: UnixStream) -> Self {
        let mut token = String::new();
        // Without a token the desktop may only highlight the window; that is no reason to refuse the request.
        let _ = socket.set_read_timeout(Some(Duration::from_secs(1)));
        let _ = (&socket).take(MAX_TOKEN_BYTES).read_to_string(&mut token);
        Self { socket, token: Some(token.trim().to_owned()).filter(|token| !token.is_empty()) }
    }

    /// Tells the other instance that the window is visible. Without this it opens a window of its own once we have
    /// exited.
    pub(crate) fn acknowledge(mut self) {
        let _ = self.socket.write_all(&[ACK]);
    }
}

/// Asks the instance that holds the lock to show its window. Returns whether it did.
fn request_show(paths: &DesktopPaths) -> bool {
    let ask = || {
        let mut other = UnixStream::connect(paths.socket())?;
        // The desktop lets the other window come to the front only with the token that this process was started with.
        let token = variable("XDG_ACTIVATION_TOKEN").or_else(|| variable("DESKTOP_STARTUP_ID")).unwrap_or_default();
        other.write_all(token.as_os_str().as_encoded_bytes())?;
        other.shutdown(Shutdown::Write)?;
        other.set_read_timeout(Some(TIMEOUT))?;
        let mut reply = [0];
        other.read_exact(&mut reply)?;
        std::io::Result::Ok(reply == [ACK])
    };
    ask().unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn second_instance_finds_first_and_ignores_socket_of_dead_one() {
        let folder = tempfile::tempdir().unwrap();
        let paths = DesktopPaths::within(folder.path());
        let first = Instance::claim(&paths).unwrap().expect("the first instance gets the lock");
        thread::scope(|scope| {
            let second = scope.spawn(|| Instance::claim(&paths).unwrap().is_none());
            ShowRequest::read(first.listener.accept().expect("a request arrives").0).acknowledge();
            assert!(second.join().unwrap(), "the second instance got the acknowledgement");
        });
        // The socket file stays behind, as after a crash.
        drop(first);
        assert!(paths.socket().exists() && Instance::claim(&paths).unwrap().is_some());
    }

    #[test]
    fn second_instance_takes_over_when_first_is_exiting() {
        let folder = tempfile::tempdir().unwrap();
        let paths = DesktopPaths::within(folder.path());
        let first = Instance::claim(&paths).unwrap().expect("the first instance gets the lock");
        thread::scope(|scope| {
            let second = scope.spawn(|| Instance::claim(&paths).unwrap().is_some());
            let request = ShowRequest::read(first.listener.accept().expect("a request arrives").0);
            drop((first, request));
            assert!(second.join().unwrap(), "the second instance holds the lock");
        });
    }
}

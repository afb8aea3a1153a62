//! One window for each user: whoever comes second asks the first to show itself, and goes.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use tao::event_loop::EventLoopProxy;

use crate::app::Said;
use crate::places::{Places, variable};

/// Longer than any token of a desktop that started us.
const LONGEST: u64 = 512;

/// What a window answers once it is seen.
const SHOWN: u8 = b'+';

/// How long another may take to show itself, or to go: longer than the gateway that it takes along.
const PATIENCE: Duration = Duration::from_secs(30);

/// The right to be the one window; ends with the process, however that ends.
pub(crate) struct Instance {
    listener: UnixListener,
    lock: File,
}

impl Instance {
    /// None if there is another, which was asked to show itself.
    pub(crate) fn claim(places: &Places) -> Result<Option<Self>> {
        let path = places.lock();
        let lock = OpenOptions::new().create(true).append(true).mode(0o600).open(&path);
        let lock = lock.with_context(|| format!("cannot open {}", path.display()))?;
        let since = Instant::now();
        loop {
            match lock.try_lock() {
                Ok(()) => break,
                Err(TryLockError::WouldBlock) if the_other_shows_itself(places) => return Ok(None),
                // It does not listen yet, or is on its way out: then there is room for us in a moment.
                Err(TryLockError::WouldBlock) if since.elapsed() < PATIENCE => thread::sleep(Duration::from_millis(50)),
                Err(TryLockError::WouldBlock) => bail!("Trunkline is open already, but does not answer"),
                Err(TryLockError::Error(error)) => {
                    return Err(error).context(format!("cannot lock {}", path.display()));
                }
            }
        }
        // Nobody holds the lock, so nobody listens there.
        let _none = fs::remove_file(places.socket());
        let listener = UnixListener::bind(places.socket());
        let listener = listener.with_context(|| format!("cannot listen on {}", places.socket().display()))?;
        Ok(Some(Self { listener, lock }))
    }

    /// From here on others can have the window shown.
    pub(crate) fn listen(self, said: EventLoopProxy<Said>) -> Result<()> {
        let Self { listener, lock } = self;
        let hear = move || {
            // Held as long as anybody is heard.
            let _lock = lock;
            for caller in listener.incoming().flatten() {
                if said.send_event(Said::Raise(Some(Caller::hear(caller)))).is_err() {
                    return;
                }
            }
        };
        thread::Builder::new().name("instance".into()).spawn(hear).context("cannot start a thread")?;
        Ok(())
    }
}

/// Somebody who wants to see the window.
#[derive(Debug)]
pub(crate) struct Caller {
    socket: UnixStream,
    /// Of the desktop that started them.
    pub(crate) token: Option<String>,
}

impl Caller {
    fn hear(socket: UnixStream) -> Self {
        let mut token = String::new();
        let _unhurried = socket.set_read_timeout(Some(Duration::from_secs(1)));
        let _without = (&socket).take(LONGEST).read_to_string(&mut token);
        Self { socket, token: Some(token.trim().to_owned()).filter(|token| !token.is_empty()) }
    }

    /// They see it. Whoever gets no answer has called a window that is going, and opens their own.
    pub(crate) fn answer(mut self) {
        let _gone = self.socket.write_all(&[SHOWN]);
    }
}

/// Asks the window that holds the lock to show itself; whether it did.
fn the_other_shows_itself(places: &Places) -> bool {
    let ask = || {
        let mut other = UnixStream::connect(places.socket())?;
        // With the token of whoever started us, a desktop lets the other window come to the front.
        let token = variable("XDG_ACTIVATION_TOKEN").or_else(|| variable("DESKTOP_STARTUP_ID")).unwrap_or_default();
        other.write_all(token.as_os_str().as_encoded_bytes())?;
        other.shutdown(Shutdown::Write)?;
        other.set_read_timeout(Some(PATIENCE))?;
        let mut answer = [0];
        other.read_exact(&mut answer)?;
        std::io::Result::Ok(answer == [SHOWN])
    };
    ask().unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_finds_the_first_and_a_dead_one_is_no_hindrance() {
        let folder = tempfile::tempdir().unwrap();
        let places = Places::within(folder.path());
        let first = Instance::claim(&places).unwrap().expect("nobody else is there");
        thread::scope(|scope| {
            let second = scope.spawn(|| Instance::claim(&places).unwrap().is_none());
            Caller::hear(first.listener.accept().expect("it was asked").0).answer();
            assert!(second.join().unwrap(), "it was answered");
        });
        // Its socket stays behind, as after a crash.
        drop(first);
        assert!(places.socket().exists() && Instance::claim(&places).unwrap().is_some());
    }

    #[test]
    fn whoever_calls_a_window_that_is_going_comes_after_it() {
        let folder = tempfile::tempdir().unwrap();
        let places = Places::within(folder.path());
        let first = Instance::claim(&places).unwrap().expect("nobody else is there");
        thread::scope(|scope| {
            let second = scope.spawn(|| Instance::claim(&places).unwrap().is_some());
            let caller = Caller::hear(first.listener.accept().expect("it was asked").0);
            drop((first, caller));
            assert!(second.join().unwrap(), "it is the one now");
        });
    }
}

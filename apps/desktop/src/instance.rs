//! One window for each user: whoever comes second asks the first to show itself, and goes.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use tao::event_loop::EventLoopProxy;

use crate::app::Said;
use crate::places::{Places, variable};

/// Longer than any token of a desktop that started us.
const LONGEST: u64 = 512;

/// How long the first instance may take to begin to listen.
const PATIENCE: Duration = Duration::from_secs(10);

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
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return raise_the_other(places).map(|()| None),
            Err(TryLockError::Error(error)) => return Err(error).context(format!("cannot lock {}", path.display())),
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
                let mut token = String::new();
                let _unhurried = caller.set_read_timeout(Some(Duration::from_secs(1)));
                let _without = caller.take(LONGEST).read_to_string(&mut token);
                let token = Some(token.trim().to_owned()).filter(|token| !token.is_empty());
                if said.send_event(Said::Raise(token)).is_err() {
                    return;
                }
            }
        };
        thread::Builder::new().name("instance".into()).spawn(hear).context("cannot start a thread")?;
        Ok(())
    }
}

fn raise_the_other(places: &Places) -> Result<()> {
    let tries = PATIENCE.as_millis() / 50;
    let other = (0..tries).find_map(|_| {
        // It holds the lock a moment before it listens.
        UnixStream::connect(places.socket()).map_err(|_| thread::sleep(Duration::from_millis(50))).ok()
    });
    let mut other = other.context("Trunkline is open already, but does not answer")?;
    // With the token of whoever started us, a desktop lets the other window come to the front.
    let token = variable("XDG_ACTIVATION_TOKEN").or_else(|| variable("DESKTOP_STARTUP_ID")).unwrap_or_default();
    other.write_all(token.as_os_str().as_encoded_bytes()).context("Trunkline is open already, but does not listen")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_finds_the_first_and_a_dead_one_is_no_hindrance() {
        let folder = tempfile::tempdir().unwrap();
        let places = Places::within(folder.path());
        let first = Instance::claim(&places).unwrap().expect("nobody else is there");
        assert!(Instance::claim(&places).unwrap().is_none());
        first.listener.accept().expect("it was asked");
        // Its socket stays behind, as after a crash.
        drop(first);
        assert!(places.socket().exists() && Instance::claim(&places).unwrap().is_some());
    }
}

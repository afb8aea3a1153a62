//! The gateway behind the window: one that is already running, or one that we start.

mod port_owner;
mod probe;
mod spawned;

use std::thread;
use std::time::{Duration, Instant};

use crate::paths::DesktopPaths;

pub(crate) use probe::free_port;
use probe::{ProbeResult, probe};
pub(crate) use spawned::SpawnedGateway;

/// Time for another gateway on the port to drain and exit.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(60);

/// Progress of a connection attempt, in the order in which the events occur.
#[derive(Debug)]
pub(crate) enum GatewayEvent {
    /// A log line of a gateway that we started, or of the attempt itself. Can occur any number of times, at any time.
    Log(String),
    /// We have started a gateway.
    Started(SpawnedGateway),
    /// The gateway responds at this origin.
    Ready(String),
    /// There is no usable gateway, for this reason.
    Failed(String),
    /// A gateway that we started has exited after it was ready.
    Exited,
}

/// Finds or starts the gateway on this port, on a thread of its own. The attempt ends early once `is_wanted` is false.
pub(crate) fn connect(
    paths: &DesktopPaths,
    port: u16,
    is_wanted: impl Fn() -> bool + Send + 'static,
    send: impl Fn(GatewayEvent) + Clone + Send + 'static,
) {
    let paths = paths.clone();
    drop(thread::spawn(move || match must_start(port, &is_wanted, &send) {
        Ok(true) if !is_wanted() => {}
        Ok(true) => spawned::run(&paths, port, &send),
        Ok(false) => send(GatewayEvent::Ready(origin(port))),
        Err(reason) => send(GatewayEvent::Failed(reason)),
    }));
}

fn origin(port: u16) -> String {
    format!("http://127.0.0.1:{port}")
}

/// Returns true if the port is free, false if a usable gateway listens there, and an error if something else does.
fn must_start(port: u16, is_wanted: &impl Fn() -> bool, send: &impl Fn(GatewayEvent)) -> Result<bool, String> {
    let since = Instant::now();
    loop {
        match probe(port) {
            ProbeResult::Free => return Ok(true),
            ProbeResult::Gateway => return Ok(false),
            ProbeResult::Draining if is_wanted() && since.elapsed() < DRAIN_TIMEOUT => {
                send(GatewayEvent::Log(format!("the gateway on port {port} is stopping: waiting until it has exited")));
                thread::sleep(Duration::from_millis(500));
            }
            ProbeResult::Draining => {
                return Err(format!("The gateway on port {port} is stopping, but does not exit"));
            }
            ProbeResult::Other(details) => {
                return Err(format!("Port {port} is in use by another program: {details}"));
            }
        }
    }
}

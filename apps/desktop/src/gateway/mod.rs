//! The gateway behind the window: one that answers already, or one that we start.

mod owner;
mod probe;
mod server;

use std::thread;
use std::time::{Duration, Instant};

use crate::places::Places;

pub(crate) use probe::free_port;
use probe::{Answer, ask};
pub(crate) use server::Server;

/// A gateway that is going down may finish what it does.
const DRAIN: Duration = Duration::from_secs(60);

/// What becomes known on the way to a gateway, in this order.
#[derive(Debug)]
pub(crate) enum News {
    /// A line that a gateway of ours, or we ourselves, have to say; any number of them, at any time.
    Log(String),
    /// A gateway of ours was started.
    Started(Server),
    /// It answers at this origin.
    Ready(String),
    /// There is none, for this reason.
    Failed(String),
    /// One that we started, and that was ready, has ended.
    Ended,
}

/// Finds or starts the gateway of this port, on a thread of its own, for as long as it is wanted.
pub(crate) fn connect(
    places: &Places,
    port: u16,
    wanted: impl Fn() -> bool + Send + 'static,
    tell: impl Fn(News) + Clone + Send + 'static,
) {
    let places = places.clone();
    drop(thread::spawn(move || match ready_to_start(port, &wanted, &tell) {
        Ok(true) if !wanted() => {}
        Ok(true) => server::start(&places, port, &tell),
        Ok(false) => tell(News::Ready(origin(port))),
        Err(why) => tell(News::Failed(why)),
    }));
}

fn origin(port: u16) -> String {
    format!("http://127.0.0.1:{port}")
}

/// Whether the port is free; not if a gateway is there that can be used; or why neither.
fn ready_to_start(port: u16, wanted: &impl Fn() -> bool, tell: &impl Fn(News)) -> Result<bool, String> {
    let since = Instant::now();
    loop {
        match ask(port) {
            Answer::Nobody => return Ok(true),
            Answer::Gateway => return Ok(false),
            Answer::Draining if wanted() && since.elapsed() < DRAIN => {
                tell(News::Log(format!("the gateway on port {port} is stopping: waiting for its end")));
                thread::sleep(Duration::from_millis(500));
            }
            Answer::Draining => {
                return Err(format!("The gateway on port {port} is stopping, and does not come to an end"));
            }
            Answer::Another(what) => {
                return Err(format!("Something else than Trunkline answers on port {port}: {what}"));
            }
        }
    }
}

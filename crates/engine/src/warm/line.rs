//! One process that is kept: how it comes up, and how it waits.

use std::ffi::OsString;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;
use trunkline_core::limits::Limits;
use trunkline_core::live::{Line, Stage};
use trunkline_process::{Keepers, Running, Step};

use super::{Boot, Stamps};
use crate::attempt::environment::RUN;
use crate::attempt::scratch::Scratch;

/// How long one may take to come up.
const BOOT: Duration = Duration::from_secs(120);

/// The most of a program's complaint that is kept.
const MAX_WORDS: usize = 300;

/// A process that takes turns, and what belongs to it.
pub(crate) struct WarmProcess {
    pub(crate) running: Running,
    pub(crate) line: Line,
    pub(crate) boot: Arc<Boot>,
    pub(crate) stamps: Stamps,
    /// Its files, gone when it is.
    pub(crate) scratch: Scratch,
}

impl WarmProcess {
    /// Starts and greets one, and waits until it is ready.
    pub(crate) async fn boot(
        boot: Arc<Boot>,
        stamps: Stamps,
        id: &str,
        mut scratch: Scratch,
        keepers: &Keepers,
    ) -> Result<Self, String> {
        let mut spec = boot.spec.clone();
        set(&mut spec.env, RUN, id.into());
        if boot.private_tmp {
            let folder = scratch.folder("tmp").map_err(|failure| failure.message)?;
            if let Some(confinement) = &mut spec.confinement {
                confinement.writable.push(folder.clone().into());
            }
            set(&mut spec.env, "TMPDIR", folder.into());
        }
        let (line, greeting) = Line::new(boot.protocol, boot.greeting.clone());
        spec.stdin = greeting;
        spec.limits = Limits { total: BOOT, ..Limits::NONE };
        let running = keepers.spawn_open(spec).await.map_err(|error| error.to_string())?;
        let mut kept = Self { running, line, boot, stamps, scratch };
        loop {
            match kept.line.stage() {
                Stage::Ready => break,
                Stage::Broken(why) => return Err(brief(why)),
                Stage::Booting | Stage::Busy => {}
            }
            match kept.running.next().await {
                Step::Stdout(bytes) => kept.hear(&bytes),
                Step::Exited(exit) => {
                    let stderr = kept.running.stderr_tail();
                    let said = stderr.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("it said nothing");
                    return Err(format!("it ended ({exit:?}): {}", brief(said)));
                }
                Step::Limit(_) => return Err(format!("it was not up within {} s", BOOT.as_secs())),
            }
        }
        kept.running.limit(Limits::NONE);
        Ok(kept)
    }

    /// Waits to be wanted, for so long. Gives itself to whoever asks; otherwise ends, and with it this future.
    pub(crate) async fn wait(
        mut self,
        asked: oneshot::Receiver<oneshot::Sender<Self>>,
        patience: Option<Duration>,
        linger: Duration,
    ) {
        let until = patience.map(|patience| Instant::now() + patience);
        let idle = async {
            match until {
                Some(until) => tokio::time::sleep_until(until).await,
                None => std::future::pending().await,
            }
        };
        let asked = tokio::select! {
            asked = asked => asked.ok(),
            () = self.gone() => None,
            () = idle => None,
        };
        let unwanted = match asked {
            Some(taker) => taker.send(self).err(),
            None => Some(self),
        };
        if let Some(unwanted) = unwanted {
            unwanted.end(linger).await;
        }
    }

    /// Returns when it can take no turn any more. Cancel safe.
    async fn gone(&mut self) {
        loop {
            match self.running.next().await {
                Step::Stdout(bytes) => self.hear(&bytes),
                Step::Exited(_) | Step::Limit(_) => return,
            }
            if *self.line.stage() != Stage::Ready {
                return;
            }
        }
    }

    /// What it says between turns is nobody's.
    fn hear(&mut self, bytes: &[u8]) {
        let heard = self.line.hear(bytes);
        self.running.write(&heard.reply);
    }

    /// Its input ends, and it may exit by itself; nothing of it is left on return.
    pub(crate) async fn end(self, linger: Duration) {
        self.running.finish(linger).await;
        drop(self.scratch);
    }
}

fn set(env: &mut Vec<(OsString, OsString)>, name: &str, value: OsString) {
    match env.iter_mut().find(|(key, _)| key == name) {
        Some(found) => found.1 = value,
        None => env.push((name.into(), value)),
    }
}

fn brief(words: &str) -> String {
    trunkline_core::ansi::strip(words).trim().chars().take(MAX_WORDS).collect()
}

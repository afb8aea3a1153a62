//! One CLI measured: by hand, cold, warm and in a session, in turns, so that whatever else the machine does is done to
//! each of them alike.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::by_hand;
use super::client::Client;
use super::subject::{PROMPT, Subject};
use super::ways::{Measured, Way};
use crate::conformance::http::Pending;
use crate::conformance::look::until;
use crate::conformance::place::{Listening, Place};

/// How long a process may take to be ready.
const BOOT: Duration = Duration::from_secs(120);

/// How many rounds there are at least, however long they take.
const LEAST: usize = 5;

/// A CLI in a place of its own, behind two gateways: one that keeps processes, and one that does not.
struct Rig<'a> {
    subject: &'a Subject,
    place: Place,
    cold: Listening,
    warm: Listening,
}

/// Takes rounds until there are enough, or there is no more time.
pub(crate) async fn measure(
    subject: &Subject,
    binary: &Path,
    folder: &Path,
    rounds: usize,
    until: Instant,
) -> Result<Measured> {
    let place = Place::new(subject.home, &subject.bin, folder)?;
    let keeps_none = ["--warm", "0", "--warm-memory", "0"];
    // One that waits, and one that holds the session of the round.
    let keeps_two = ["--warm", "2", "--warm-memory", "65536"];
    let cold = place.gateway(binary, "cold", &subject.models(&place, 0), &[], &keeps_none)?;
    // Its first run makes its home. What is found to have changed there since a process came up makes the process stale.
    by_hand::turn(subject, &place).await?;
    let warm = place.gateway(binary, "warm", &subject.models(&place, 1), &[], &keeps_two)?;
    let rig = Rig { subject, place, cold, warm };
    let mut measured = Measured::new(subject.name, subject.version.clone());
    // What is read from the disk the first time is in the cache then.
    rig.round(0, &mut measured.clone()).await?;
    for round in 0..rounds {
        if round >= LEAST && Instant::now() > until {
            break;
        }
        rig.round(round, &mut measured).await.with_context(|| format!("round {} of {}", round + 1, subject.name))?;
    }
    Ok(measured)
}

impl Rig<'_> {
    async fn round(&self, number: usize, measured: &mut Measured) -> Result<()> {
        // Who goes first changes: the second finds files in the cache.
        let order = if number.is_multiple_of(2) { [Way::Bare, Way::Cold] } else { [Way::Cold, Way::Bare] };
        for way in order {
            let (first, total) = match way {
                Way::Bare => by_hand::turn(self.subject, &self.place).await?,
                Way::Cold | Way::Warm | Way::Live => self.turn(&self.cold, None).await?.took(),
            };
            measured.push(way, first, total);
        }
        self.ready()?;
        let used = self.warm()?;
        let said = self.turn(&self.warm, None).await?;
        // The next process comes up after this turn, and is not to be in the way of another's.
        self.ready()?;
        let session = said.session.clone().context("no session")?;
        let went_on = self.turn(&self.warm, Some(&session)).await?;
        let counted = |name: &str, before: &Value, now: &Value| now[name].as_u64() > before[name].as_u64();
        let now = self.warm()?;
        if !counted("hits", &used, &now) || !counted("resumed", &used, &now) {
            bail!("the process that was ready was not used: {now}");
        }
        for (way, turn) in [(Way::Warm, said), (Way::Live, went_on)] {
            let (first, total) = turn.took();
            measured.push(way, first, total);
        }
        Ok(())
    }

    async fn turn(&self, gateway: &Listening, session: Option<&str>) -> Result<super::client::Spoken> {
        Client::connect(gateway.address).await?.turn(self.subject.name, PROMPT, session).await
    }

    /// Waits until a process is up, and nothing else comes up.
    fn ready(&self) -> Result<()> {
        until(BOOT, "a process is ready", || {
            let warm = self.warm().ok()?;
            (warm["ready"].as_u64() >= Some(1)).then_some(())
        })
    }

    fn warm(&self) -> Result<Value> {
        let health = Pending::get(self.warm.address, "/health/providers", &[])?.reply()?.json();
        Ok(health["providers"][0]["warm"].clone())
    }
}

//! Measurement of one CLI: by hand, cold, warm and in a session, in turns, so that other work on the machine affects each
//! of them alike.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::by_hand;
use super::client::BenchClient;
use super::subject::{BenchSubject, PROMPT};
use super::variants::{BenchVariant, CliTimes};
use crate::conformance::environment::{CliEnvironment, TrunklineChild};
use crate::conformance::http::SentHttpRequest;
use crate::conformance::observe::wait_until;

/// Limit for a warm process to become ready.
const BOOT_TIMEOUT: Duration = Duration::from_secs(120);

/// Rounds that are taken even if the time is up.
const MIN_ROUNDS: usize = 5;

/// A CLI behind two gateways: one with warm processes and one without.
struct BenchRig<'a> {
    subject: &'a BenchSubject,
    environment: CliEnvironment,
    cold: TrunklineChild,
    warm: TrunklineChild,
}

/// Takes `rounds` rounds, or fewer if the deadline passes.
pub(crate) async fn measure(
    subject: &BenchSubject,
    binary: &Path,
    folder: &Path,
    rounds: usize,
    deadline: Instant,
) -> Result<CliTimes> {
    let environment = CliEnvironment::new(subject.home, &subject.bin, folder)?;
    let without_warm = ["--warm", "0", "--warm-memory", "0"];
    // One ready process, and one that has the session of the round.
    let with_warm = ["--warm", "2", "--warm-memory", "65536"];
    let cold = environment.gateway(binary, "cold", &subject.models(&environment, 0), &[], &without_warm)?;
    // The first run of a CLI writes to its home, and such a change makes the warm processes that already run stale.
    by_hand::turn(subject, &environment).await?;
    let warm = environment.gateway(binary, "warm", &subject.models(&environment, 1), &[], &with_warm)?;
    let rig = BenchRig { subject, environment, cold, warm };
    let mut measured = CliTimes::new(subject.name, subject.version.clone());
    // This round is not counted; it fills the page cache.
    rig.round(0, &mut measured.clone()).await?;
    for round in 0..rounds {
        if round >= MIN_ROUNDS && Instant::now() > deadline {
            break;
        }
        rig.round(round, &mut measured).await.with_context(|| format!("round {} of {}", round + 1, subject.name))?;
    }
    Ok(measured)
}

impl BenchRig<'_> {
    async fn round(&self, number: usize, measured: &mut CliTimes) -> Result<()> {
        // The order alternates, because the second finds files in the page cache.
        let order = if number.is_multiple_of(2) {
            [BenchVariant::Bare, BenchVariant::Cold]
        } else {
            [BenchVariant::Cold, BenchVariant::Bare]
        };
        for variant in order {
            let (first, total) = match variant {
                BenchVariant::Bare => by_hand::turn(self.subject, &self.environment).await?,
                BenchVariant::Cold | BenchVariant::Warm | BenchVariant::Live => {
                    self.turn(&self.cold, None).await?.times()
                }
            };
            measured.push(variant, first, total);
        }
        self.wait_until_ready()?;
        let before = self.warm_counts()?;
        let first_turn = self.turn(&self.warm, None).await?;
        // After this turn the next warm process starts, which must not slow down the second turn.
        self.wait_until_ready()?;
        let session = first_turn.session.clone().context("no session")?;
        let second_turn = self.turn(&self.warm, Some(&session)).await?;
        let now = self.warm_counts()?;
        let increased = |name: &str| now[name].as_u64() > before[name].as_u64();
        if !increased("hits") || !increased("resumed") {
            bail!("the warm process was not used: {now}");
        }
        for (variant, turn) in [(BenchVariant::Warm, first_turn), (BenchVariant::Live, second_turn)] {
            let (first, total) = turn.times();
            measured.push(variant, first, total);
        }
        Ok(())
    }

    async fn turn(&self, gateway: &TrunklineChild, session: Option<&str>) -> Result<super::client::StreamedTurn> {
        BenchClient::connect(gateway.address).await?.turn(self.subject.name, PROMPT, session).await
    }

    /// Waits until a warm process is ready.
    fn wait_until_ready(&self) -> Result<()> {
        wait_until(BOOT_TIMEOUT, "a warm process is ready", || {
            let warm = self.warm_counts().ok()?;
            (warm["ready"].as_u64() >= Some(1)).then_some(())
        })
    }

    /// The provider's `warm` object in `/health/providers`.
    fn warm_counts(&self) -> Result<Value> {
        let health = SentHttpRequest::get(self.warm.address, "/health/providers", &[])?.reply()?.json();
        Ok(health["providers"][0]["warm"].clone())
    }
}

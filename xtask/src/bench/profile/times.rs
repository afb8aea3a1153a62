//! Times and rates, compared with the minimal gateway, in turns in the same run.

use std::net::SocketAddr;
use std::time::Instant;

use anyhow::Result;

use super::ProfilePrograms;
use super::lines::{ProfileLine, ProfileUnit};
use super::recipe::ProfileRecipe;
use crate::bench::client::{alternating, first_tokens, requests};
use crate::bench::figure::BenchThreshold;
use crate::bench::minimal::MinimalGateway;
use crate::bench::samples::Samples;

/// Concurrent requests or streams that saturate the machine.
pub(super) const MANY_IN_FLIGHT: usize = 64;

/// A gateway with the models for whole and for streamed answers.
#[derive(Clone, Copy)]
struct TimedPath {
    address: SocketAddr,
    whole: &'static str,
    streamed: &'static str,
}

#[derive(Default)]
struct PathTimes {
    /// Seconds of a turn with one in flight.
    turn: Samples,
    /// Turns per second with [`MANY_IN_FLIGHT`] in flight, one sample for each round.
    rate: Samples,
    /// Seconds to the first token of a stream, with as many at the same time.
    first_token: Samples,
}

pub(super) async fn measure(programs: &ProfilePrograms, rounds: usize, requests: usize) -> Result<Vec<ProfileLine>> {
    let minimal = MinimalGateway::start(&programs.minimal_gateway, &programs.agent).await?;
    let gateway = programs.start_gateway().await?;
    let with = |recipe: ProfileRecipe| TimedPath {
        address: gateway.address,
        whole: recipe.model(),
        streamed: recipe.stream_model(),
    };
    let reference = TimedPath { address: minimal.address, whole: "noop", streamed: "stream" };
    let paths = [reference, with(ProfileRecipe::Plain), with(ProfileRecipe::Codex)];
    // This round is not counted; it fills caches.
    for path in paths {
        PathTimes::default().take(path, requests).await?;
    }
    let mut times = paths.map(|_| PathTimes::default());
    for round in 0..rounds {
        eprintln!("times, round {} of {rounds}", round + 1);
        let turns = alternating(&paths.map(|path| (path.address, path.whole)), requests).await?;
        times.iter_mut().zip(turns).for_each(|(times, turns)| times.turn.extend(turns));
        for position in 0..paths.len() {
            // Another path is the first in each round.
            let path = (position + round) % paths.len();
            times[path].take(paths[path], requests).await?;
        }
    }
    gateway.stop().await?;
    minimal.stop().await?;
    let [reference, plain, codex] = &times;
    let recipes = [(ProfileRecipe::Plain, plain), (ProfileRecipe::Codex, codex)];
    Ok(recipes.into_iter().flat_map(|(recipe, times)| times.lines(recipe, reference)).collect())
}

impl PathTimes {
    /// Measures with many in flight.
    async fn take(&mut self, path: TimedPath, count: usize) -> Result<()> {
        let (began, count) = (Instant::now(), count * 4);
        requests(path.address, path.whole, MANY_IN_FLIGHT, count).await?;
        self.rate.push(count as f64 / began.elapsed().as_secs_f64());
        self.first_token.extend(first_tokens(path.address, path.streamed, MANY_IN_FLIGHT).await?);
        Ok(())
    }

    fn lines(&self, recipe: ProfileRecipe, minimal: &Self) -> [ProfileLine; 3] {
        let compared = |what: &str, ours: &Samples, theirs: &Samples, shown: fn(f64) -> String, bar| {
            let (ours, theirs) = (ours.median(), theirs.median());
            let what = format!("{what}, {}: {} / minimal gateway's {}", recipe.name(), shown(ours), shown(theirs));
            ProfileLine::new(what, ProfileUnit::Times, ours / theirs, bar)
        };
        let millis = |seconds: f64| format!("{:.2} ms", seconds * 1e3);
        let rate = |rate: f64| format!("{rate:.0}/s");
        [
            compared("turn p50, 1 in flight", &self.turn, &minimal.turn, millis, BenchThreshold::AtMost(2.0)),
            compared("turns, 64 in flight", &self.rate, &minimal.rate, rate, BenchThreshold::AtLeast(0.65)),
            compared(
                "first token p50, 64 streams",
                &self.first_token,
                &minimal.first_token,
                millis,
                BenchThreshold::AtMost(3.0),
            ),
        ]
    }
}

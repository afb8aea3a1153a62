//! The other API dialects, compared with chat completions in the same run: a turn, and a stream of many deltas.

use std::time::Instant;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::counter::read_counter;
use super::instructions::{self, CountedRequest};
use super::lines::{ProfileLine, ProfileUnit};
use super::programs::COUNT_ALLOCATIONS;
use super::recipe::{DELTAS, DELTAS_MODEL, ProfileRecipe, configured_folder};
use super::{ProfilePrograms, SETTLE_TIME};
use crate::bench::client::BenchClient;
use crate::bench::figure::BenchThreshold;
use crate::bench::gateway::{BenchGateway, GatewayCommand};
use crate::bench::samples::Samples;

/// Most that another dialect may take of what chat completions take.
const MAX_RATIO_TO_CHAT: f64 = 1.10;

/// Most allocations of a delta: its decoding, its record and its frame.
const MAX_ALLOCATIONS_PER_DELTA: f64 = 16.0;

/// Streams before a count of allocations, and counted ones.
const COUNTED_STREAMS: usize = 10;

/// An API dialect, as a client asks in it.
struct BenchDialect {
    name: &'static str,
    path: &'static str,
    body: fn(model: &str, stream: bool) -> Value,
    /// A text of the last frame of a stream.
    end: &'static str,
}

const DIALECTS: [BenchDialect; 4] = [
    BenchDialect { name: "chat", path: "/v1/chat/completions", body: chat, end: "[DONE]" },
    BenchDialect {
        name: "responses",
        path: "/v1/responses",
        body: |model, stream| json!({"model": model, "input": "hi", "stream": stream}),
        end: "\"type\":\"response.completed\"",
    },
    BenchDialect {
        name: "messages",
        path: "/v1/messages",
        body: |model, stream| {
            let mut body = chat(model, stream);
            body["max_tokens"] = 1000.into();
            body
        },
        end: "\"type\":\"message_stop\"",
    },
    BenchDialect { name: "ollama", path: "/api/chat", body: chat, end: "\"done\":true" },
];

fn chat(model: &str, stream: bool) -> Value {
    json!({"model": model, "stream": stream, "messages": [{"role": "user", "content": "hi"}]})
}

impl BenchDialect {
    fn turn(&self, recipe: ProfileRecipe) -> CountedRequest {
        CountedRequest { name: self.name, path: self.path, body: (self.body)(recipe.model(), false).to_string() }
    }
}

/// A turn of chat completions with this recipe.
pub(super) fn chat_turn(recipe: ProfileRecipe) -> CountedRequest {
    CountedRequest { name: recipe.name(), ..DIALECTS[0].turn(recipe) }
}

/// Instructions of a turn, relative to chat completions.
pub(super) async fn count_instructions(programs: &ProfilePrograms) -> Vec<ProfileLine> {
    let mut counts = Vec::new();
    for dialect in &DIALECTS {
        let counted = instructions::count(programs, &dialect.turn(ProfileRecipe::Codex)).await;
        counts.push(counted.map(|count| count.per_turn).map_err(super::reason));
    }
    let compared = DIALECTS.iter().zip(&counts).skip(1).map(|(dialect, ours)| {
        let what = format!("user instructions of a turn, {}", dialect.name);
        match (ours, &counts[0]) {
            (Ok(ours), Ok(chat)) => ProfileLine::new(
                format!("{what}: {ours:.0} / chat's {chat:.0}"),
                ProfileUnit::Times,
                ours / chat,
                BenchThreshold::AtMost(MAX_RATIO_TO_CHAT),
            ),
            (Err(why), _) | (_, Err(why)) => ProfileLine::counted(what, Err(why.clone()), MAX_RATIO_TO_CHAT),
        }
    });
    compared.collect()
}

/// Figures of one dialect.
#[derive(Default, Clone)]
struct DialectTimes {
    /// Seconds of a whole answer.
    turn: Samples,
    /// Seconds of a stream of [`DELTAS`] deltas.
    stream: Samples,
    /// Allocations of such a stream, per delta.
    allocations: Option<f64>,
}

pub(super) async fn measure(programs: &ProfilePrograms, turns: usize, streams: usize) -> Result<Vec<ProfileLine>> {
    let gateway = programs.start_gateway().await?;
    let mut figures = vec![DialectTimes::default(); DIALECTS.len()];
    take(&gateway, turns / 4, streams / 4, &mut figures).await?;
    tokio::time::sleep(SETTLE_TIME).await;
    figures.fill(DialectTimes::default());
    take(&gateway, turns, streams, &mut figures).await?;
    gateway.stop().await?;
    let counted = count_allocations(programs, &mut figures).await.map_err(super::reason);
    let mut lines = Vec::new();
    for (dialect, figure) in DIALECTS.iter().zip(&figures).skip(1) {
        lines.extend(figure.compared(dialect.name, &figures[0], counted.as_ref().err()));
    }
    Ok(lines)
}

/// Measures all dialects in turns.
async fn take(gateway: &BenchGateway, turns: usize, streams: usize, figures: &mut [DialectTimes]) -> Result<()> {
    let mut client = gateway.client().await?;
    for round in 0..turns {
        for position in 0..DIALECTS.len() {
            // Another dialect is the first in each round.
            let index = (position + round) % DIALECTS.len();
            let body = (DIALECTS[index].body)(ProfileRecipe::Codex.model(), false).to_string();
            let began = Instant::now();
            client.ask(DIALECTS[index].path, &body).await?;
            figures[index].turn.push(began.elapsed().as_secs_f64());
        }
    }
    for round in 0..streams {
        for position in 0..DIALECTS.len() {
            let index = (position + round) % DIALECTS.len();
            let seconds = stream(gateway, &DIALECTS[index]).await?;
            figures[index].stream.push(seconds);
        }
    }
    Ok(())
}

/// Reads a stream to its end; returns its seconds.
async fn stream(gateway: &BenchGateway, dialect: &BenchDialect) -> Result<f64> {
    let mut client = BenchClient::connect(gateway.address).await?;
    let body = (dialect.body)(DELTAS_MODEL, true).to_string();
    let began = Instant::now();
    client.open(dialect.path, &body).await?;
    while !client.line().await?.context("a stream without an end")?.contains(dialect.end) {}
    Ok(began.elapsed().as_secs_f64())
}

async fn count_allocations(programs: &ProfilePrograms, figures: &mut [DialectTimes]) -> Result<()> {
    let library = COUNT_ALLOCATIONS.build(&programs.folder)?;
    let scratch = tempfile::tempdir()?;
    let counter = scratch.path().join("allocations");
    let command = GatewayCommand::new(&programs.gateway).env("LD_PRELOAD", library).env("ALLOCATION_COUNTER", &counter);
    let gateway = BenchGateway::start_in(configured_folder(&programs.agent)?, &command).await?;
    let counter = counter.with_extension(gateway.pid()?.to_string());
    for (dialect, figure) in DIALECTS.iter().zip(figures) {
        for _ in 0..COUNTED_STREAMS {
            stream(&gateway, dialect).await?;
        }
        let before = read_counter(&counter).context("the gateway does not use the C library's malloc")?;
        for _ in 0..COUNTED_STREAMS {
            stream(&gateway, dialect).await?;
        }
        let count = read_counter(&counter)? - before;
        figure.allocations = Some(count as f64 / (COUNTED_STREAMS * DELTAS) as f64);
    }
    gateway.stop().await
}

impl DialectTimes {
    /// Lines that compare with chat completions. `uncounted` is the reason why allocations were not counted.
    fn compared(&self, name: &str, chat: &Self, uncounted: Option<&String>) -> [ProfileLine; 3] {
        let times = |what: &str, ours: f64, theirs: f64, unit: &str| {
            let what = format!("{what}, {name}: {ours:.2} {unit} / chat's {theirs:.2} {unit}");
            ProfileLine::new(what, ProfileUnit::Times, ours / theirs, BenchThreshold::AtMost(MAX_RATIO_TO_CHAT))
        };
        let allocations = match (self.allocations, chat.allocations) {
            (Some(ours), Some(theirs)) => {
                let what = format!("allocations per delta, {name}: chat's are {theirs:.1}");
                ProfileLine::counted(what, Ok(ours), MAX_ALLOCATIONS_PER_DELTA)
            }
            _ => {
                let why = uncounted.map_or("not counted", String::as_str).to_owned();
                ProfileLine::counted(format!("allocations per delta, {name}"), Err(why), MAX_ALLOCATIONS_PER_DELTA)
            }
        };
        let micros_of_delta = 1e6 / DELTAS as f64;
        [
            times("turn p50", self.turn.median() * 1e3, chat.turn.median() * 1e3, "ms"),
            times(
                "delta of a stream, p50",
                self.stream.median() * micros_of_delta,
                chat.stream.median() * micros_of_delta,
                "µs",
            ),
            allocations,
        ]
    }
}

//! Memory of idle streams: a thousand clients follow a run that prints nothing.

use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value;

use super::client::BenchClient;
use super::figure::{BenchFigure, BenchThreshold, FigureUnit};
use super::gateway::BenchGateway;
use super::samples::Spread;

const STREAMS: usize = 1000;

/// Memory of the gateway, in megabytes.
#[derive(Debug)]
pub(super) struct IdleStreams {
    before: f64,
    with_all: f64,
}

impl IdleStreams {
    pub(super) async fn measure(binary: &Path, agent: &Path) -> Result<Self> {
        let gateway = BenchGateway::start(binary, agent).await?;
        let mut client = BenchClient::connect(gateway.address).await?;
        client.stream("hang").await?;
        let run = loop {
            let line = client.line().await?.context("the stream ended")?;
            let frame: Value =
                line.strip_prefix("data: ").and_then(|data| serde_json::from_str(data).ok()).unwrap_or_default();
            if let Some(id) = frame["id"].as_str().and_then(|id| id.strip_prefix("cmpl-")) {
                break id.to_owned();
            }
        };
        let before = gateway.memory()?.gateway;
        let mut followers = Vec::new();
        for _ in 0..STREAMS {
            let mut follower = BenchClient::connect(gateway.address).await?;
            follower.follow(&run).await?;
            followers.push(follower);
        }
        let with_all = gateway.memory()?.gateway;
        drop(followers);
        gateway.stop().await?;
        Ok(Self { before, with_all })
    }

    pub(super) fn figures(&self) -> Vec<BenchFigure> {
        let (value, what) = (self.with_all, format!("memory of the gateway with {STREAMS} idle streams"));
        let spread = Spread { value, low: value, high: value };
        vec![BenchFigure::new("streams/memory", what, FigureUnit::Megabytes, spread, BenchThreshold::AtMost(64.0))]
    }

    /// A sentence in Markdown.
    pub(super) fn markdown(&self) -> String {
        let each = (self.with_all - self.before) / STREAMS as f64 * 1024.0;
        format!(
            "{STREAMS} idle streams: {:.1} MB with them, {:.1} MB before, {each:.1} KiB each.\n",
            self.with_all, self.before
        )
    }
}

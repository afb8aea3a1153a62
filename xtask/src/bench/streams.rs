//! What streams cost on which nothing is said: a thousand clients follow a run that hangs.

use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value;

use super::client::Client;
use super::finding::{Bar, Finding, Unit};
use super::gateway::Gateway;
use super::stats::Spread;

const STREAMS: usize = 1000;

/// Megabytes of the gateway.
#[derive(Debug)]
pub(super) struct Streams {
    before: f64,
    with_all: f64,
}

impl Streams {
    pub(super) async fn measure(binary: &Path, agent: &Path) -> Result<Self> {
        let gateway = Gateway::start(binary, agent).await?;
        let mut client = Client::connect(gateway.address).await?;
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
            let mut follower = Client::connect(gateway.address).await?;
            follower.follow(&run).await?;
            followers.push(follower);
        }
        let with_all = gateway.memory()?.gateway;
        drop(followers);
        gateway.stop().await?;
        Ok(Self { before, with_all })
    }

    pub(super) fn findings(&self) -> Vec<Finding> {
        let (value, what) = (self.with_all, format!("the gateway with {STREAMS} idle streams"));
        let once = Spread { value, low: value, high: value };
        vec![Finding::new("streams/memory", what, Unit::Megabytes, once, Bar::AtMost(64.0))]
    }

    /// A sentence in Markdown.
    pub(super) fn markdown(&self) -> String {
        let each = (self.with_all - self.before) / STREAMS as f64 * 1024.0;
        format!(
            "{STREAMS} streams on which nothing is said: {:.1} MB with them, {:.1} MB before, {each:.1} KiB each.\n",
            self.with_all, self.before
        )
    }
}

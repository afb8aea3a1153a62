//! Calls of clients' tools: the time from sending a result to its arrival in the CLI, the memory of a parked run, and whether
//! each result reaches the run that it belongs to.

use std::net::SocketAddr;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::client::BenchClient;
use super::figure::{BenchFigure, BenchThreshold, FigureUnit};
use super::gateway::BenchGateway;
use super::samples::{Samples, Spread};

/// Calls that are answered while no other run is parked.
const SINGLE_CALLS: usize = 100;

/// Parked runs of the second measurement.
const PARKED_RUNS: usize = 64;

/// Parked runs whose results are sent at the same time.
const MANY_RUNS: usize = 200;

/// Seconds from sending a result to the moment at which the CLI has read it.
#[derive(Debug)]
pub(super) struct ParkedCalls {
    single: Samples,
    /// One result after the other, while the other runs stay parked.
    among_parked: Samples,
    at_once: Samples,
    /// Memory of the gateway for each parked run, in KiB.
    memory_each: f64,
}

impl ParkedCalls {
    pub(super) async fn measure(binary: &Path, agent: &Path) -> Result<Self> {
        let gateway = BenchGateway::start(binary, agent).await?;
        let mut single = Samples::default();
        for _ in 0..SINGLE_CALLS {
            single.push(ParkedRun::start(&gateway).await?.answer().await?.context("a wrong result")?);
        }
        let before = gateway.memory()?.gateway;
        let parked = park(&gateway, MANY_RUNS).await?;
        let memory_each = (gateway.memory()?.gateway - before) / MANY_RUNS as f64 * 1024.0;
        answer_at_once(parked).await?;
        let mut among_parked = Samples::default();
        for run in park(&gateway, PARKED_RUNS).await? {
            among_parked.push(run.answer().await?.context("a wrong result")?);
        }
        let at_once = answer_at_once(park(&gateway, PARKED_RUNS).await?).await?;
        gateway.stop().await?;
        Ok(Self { single, among_parked, at_once, memory_each })
    }

    pub(super) fn figures(&self) -> Vec<BenchFigure> {
        let time = |id: &str, what: &str, samples: &Samples, most: f64| {
            let millis = |quantile| samples.quantile(quantile) * 1000.0;
            let spread = Spread { value: millis(0.5), low: millis(0.1), high: millis(0.9) };
            BenchFigure::new(id, what, FigureUnit::Millis, spread, BenchThreshold::AtMost(most))
        };
        vec![
            time("parked/one", "result of a tool to the CLI, one parked run", &self.single, 5.0),
            time("parked/64", "result of a tool to the CLI, 64 parked runs", &self.among_parked, 20.0),
        ]
    }

    /// Sentences in Markdown.
    pub(super) fn markdown(&self) -> String {
        let millis = |quantile| self.at_once.quantile(quantile) * 1000.0;
        format!(
            "A result of a client's tool reaches the CLI in {:.2} ms (median; {PARKED_RUNS} parked runs: {:.2} ms). When all \
             {PARKED_RUNS} results are sent in the same instant, the first arrives after {:.2} ms, half of them by {:.2} ms and \
             the last by {:.2} ms. {MANY_RUNS} parked runs take {:.0} KiB each; answered at once, each gets its own result.\n",
            self.single.median() * 1000.0,
            self.among_parked.median() * 1000.0,
            millis(0.0),
            millis(0.5),
            millis(1.0),
            self.memory_each,
        )
    }
}

/// A run that waits for the result of its call.
struct ParkedRun {
    address: SocketAddr,
    messages: Vec<Value>,
    token: String,
    call_id: Value,
}

impl ParkedRun {
    async fn start(gateway: &BenchGateway) -> Result<Self> {
        let address = gateway.address;
        let messages = vec![json!({"role": "user", "content": "call the tool"})];
        let answer = BenchClient::connect(address).await?.complete(&request(&messages)).await?;
        let message = answer["choices"][0]["message"].clone();
        let call_id = message["tool_calls"][0]["id"].clone();
        if !call_id.is_string() {
            bail!("an answer without a call: {answer}");
        }
        let token = format!("{:032x}", fastrand::u128(..));
        Ok(Self { address, messages: [messages, vec![message]].concat(), token, call_id })
    }

    /// Sends the result. Returns the seconds that it took to reach the CLI; nothing if another result reached it.
    async fn answer(mut self) -> Result<Option<f64>> {
        self.messages.push(json!({"role": "tool", "tool_call_id": self.call_id, "content": self.token}));
        let body = request(&self.messages);
        // The gateway may have closed the first connection, which was idle while other runs were started.
        let mut client = BenchClient::connect(self.address).await?;
        let sent = SystemTime::now().duration_since(UNIX_EPOCH)?.as_nanos();
        let answer = client.complete(&body).await?;
        let text = answer["choices"][0]["message"]["content"].as_str().unwrap_or_default();
        let Some((read_at, token)) = text.strip_prefix('<').and_then(|text| text.split_once('>')) else {
            bail!("an answer without a time: {answer}");
        };
        let seconds = read_at.parse::<u128>()?.saturating_sub(sent) as f64 / 1e9;
        Ok((token == self.token).then_some(seconds))
    }
}

async fn park(gateway: &BenchGateway, count: usize) -> Result<Vec<ParkedRun>> {
    let mut runs = Vec::new();
    for _ in 0..count {
        runs.push(ParkedRun::start(gateway).await?);
    }
    Ok(runs)
}

/// Answers all runs at the same time. Fails if a result is lost or reaches another run.
async fn answer_at_once(runs: Vec<ParkedRun>) -> Result<Samples> {
    let count = runs.len();
    let mut answers: JoinSet<_> = runs.into_iter().map(ParkedRun::answer).collect();
    let (mut samples, mut wrong) = (Samples::default(), Vec::new());
    while let Some(answer) = answers.join_next().await {
        match answer? {
            Ok(Some(seconds)) => samples.push(seconds),
            Ok(None) => wrong.push("another run's result".to_owned()),
            Err(error) => wrong.push(format!("{error:#}")),
        }
    }
    if let Some(first) = wrong.first() {
        bail!("{} of {count} results are lost or swapped, the first: {first}", wrong.len());
    }
    Ok(samples)
}

fn request(messages: &[Value]) -> Value {
    let function = json!({"name": "lookup", "parameters": {"type": "object", "properties": {}}});
    json!({"model": "tools", "messages": messages, "tools": [{"type": "function", "function": function}]})
}

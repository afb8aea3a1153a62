//! One call of an upstream: sends the request, reads the answer, and ends with exactly one final event.

use std::collections::VecDeque;
use std::pin::Pin;
use std::time::Duration;

use reqwest::Response;
use tokio::time::{Instant, timeout_at};
use trunkline_core::api::Api;
use trunkline_core::event::Event;
use trunkline_core::failure::{Category, Failure, FailureRule};
use trunkline_wire::upstream::UpstreamReader;

use crate::address::Address;
use crate::client::{RequestFacts, Upstream, UpstreamTimeouts, deadline, refused};
use crate::fault;

/// Time that a complete answer waits for its usage and its end mark: some servers never send them.
const END_MARK_TIMEOUT: Duration = Duration::from_secs(5);

/// One call of an upstream. Dropping it closes its connection, which tells the server to stop.
pub struct UpstreamCall {
    events: VecDeque<Event>,
    /// The pending operation. It is kept here so that nothing is lost if the future of `next` is dropped.
    pending: Option<PendingStep>,
}

type PendingStep = Pin<Box<dyn Future<Output = CallProgress> + Send>>;

/// The result of one step.
struct CallProgress {
    events: Vec<Event>,
    /// The answer if it is not complete. None once the final event is among the events.
    answer: Option<OpenAnswer>,
}

/// An answer that is being read.
struct OpenAnswer {
    address: Address,
    response: Response,
    reader: UpstreamReader,
    deadline: Instant,
    silence: Duration,
    prompt: String,
    /// Whether the model has finished. Only the usage and the end mark are awaited then, for [`END_MARK_TIMEOUT`].
    finishing: bool,
}

impl UpstreamCall {
    pub(crate) fn new(
        upstream: Upstream,
        api: &Api,
        body: Vec<u8>,
        rules: &[FailureRule],
        timeouts: UpstreamTimeouts,
        facts: RequestFacts,
    ) -> Self {
        let address = Address::new(api, &["chat", "completions"]);
        let rules = rules.to_vec();
        let first = async move {
            match address {
                Ok(address) => send(upstream, address, body, rules, timeouts, facts).await,
                Err(failure) => failed(failure),
            }
        };
        Self { events: VecDeque::new(), pending: Some(Box::pin(first)) }
    }

    /// Returns the next event. The last one is `Finished` or `Failed`, then `None` follows. Cancel safe.
    pub async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.events.pop_front() {
                return Some(event);
            }
            let CallProgress { events, answer } = self.pending.as_mut()?.await;
            self.events.extend(events);
            self.pending = answer.map(|answer| -> PendingStep { Box::pin(answer.read()) });
        }
    }
}

/// Sends the request and waits for the status of its answer.
async fn send(
    upstream: Upstream,
    address: Address,
    body: Vec<u8>,
    rules: Vec<FailureRule>,
    timeouts: UpstreamTimeouts,
    facts: RequestFacts,
) -> CallProgress {
    let until = deadline(timeouts.total);
    let request = match upstream.post(&address, body) {
        Ok(request) => request,
        Err(failure) => return failed(address.for_display(failure)),
    };
    match timeout_at(until.min(deadline(timeouts.silence)), request.send()).await {
        Err(_elapsed) => failed(timed_out()),
        Ok(Err(error)) => failed(address.for_display(fault::failure(&error, &address.host))),
        Ok(Ok(response)) if !response.status().is_success() => {
            let failure = refused(response, until, &rules).await;
            failed(address.for_display(failure))
        }
        Ok(Ok(response)) => {
            let reader = UpstreamReader::new(&rules).choices_wanted(facts.choices);
            CallProgress {
                events: Vec::new(),
                answer: Some(OpenAnswer {
                    address,
                    response,
                    reader,
                    deadline: until,
                    silence: timeouts.silence,
                    prompt: facts.prompt,
                    finishing: false,
                }),
            }
        }
    }
}

impl OpenAnswer {
    /// Reads until there are events.
    async fn read(mut self) -> CallProgress {
        loop {
            if self.reader.finished() && !self.finishing {
                self.finishing = true;
                self.deadline = self.deadline.min(Instant::now() + END_MARK_TIMEOUT);
            }
            let events = match timeout_at(self.deadline.min(deadline(self.silence)), self.response.chunk()).await {
                Ok(Ok(Some(bytes))) => self.reader.push(&bytes),
                Ok(Ok(None)) => return self.conclude(|failure| failure),
                Ok(Err(error)) => {
                    let reason = fault::reason(&error);
                    return self.conclude(|failure| {
                        let broke = failure.category == Category::Network;
                        let message = if broke { format!("{}: {reason}", failure.message) } else { failure.message };
                        Failure { message, ..failure }
                    });
                }
                Err(_elapsed) => return self.conclude(|_incomplete| timed_out()),
            };
            if self.reader.ended() {
                let last = self.conclude(|failure| failure);
                return CallProgress { events: events.into_iter().chain(last.events).collect(), answer: None };
            }
            if !events.is_empty() {
                return CallProgress { events, answer: Some(self) };
            }
        }
    }

    /// Returns the last events. If the answer is incomplete, `failure` adjusts the failure that it ends with.
    fn conclude(mut self, failure: impl FnOnce(Failure) -> Failure) -> CallProgress {
        let mut events = self.reader.conclude(&self.prompt);
        if let Some(Event::Failed(found)) = events.pop_if(|event| matches!(event, Event::Failed(_))) {
            events.push(Event::Failed(self.address.for_display(failure(found))));
        }
        CallProgress { events, answer: None }
    }
}

fn failed(failure: Failure) -> CallProgress {
    CallProgress { events: vec![Event::Failed(failure)], answer: None }
}

fn timed_out() -> Failure {
    Failure::timed_out().hint("the upstream took longer than its total limit (config.timeout)")
}

//! One call on its way: the request is sent, its answer read, and all of it ends in one last event.

use std::collections::VecDeque;
use std::pin::Pin;
use std::time::Duration;

use reqwest::Response;
use tokio::time::{Instant, timeout_at};
use trunkline_core::api::Api;
use trunkline_core::event::Event;
use trunkline_core::failure::{Category, Failure, Rule};
use trunkline_wire::upstream::Reader;

use crate::address::Address;
use crate::client::{Patience, Upstream, deadline, refused};
use crate::fault;

/// How long a complete answer waits for its usage and its end mark: some servers never send them.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// One call of an upstream. Dropping it closes its connection, which is how a server learns to stop.
pub struct Call {
    events: VecDeque<Event>,
    /// What is being waited for. It is kept here, so that nothing is lost with a `next` that is dropped.
    step: Option<Step>,
}

type Step = Pin<Box<dyn Future<Output = Progress> + Send>>;

struct Progress {
    events: Vec<Event>,
    /// The answer that goes on; none once the last event is there.
    answer: Option<Answer>,
}

/// An answer that is being read.
struct Answer {
    address: Address,
    response: Response,
    reader: Reader,
    deadline: Instant,
    silence: Duration,
    prompt: String,
    /// The model has finished; only the usage and the end mark are awaited, and not for long.
    finishing: bool,
}

impl Call {
    pub(crate) fn new(
        upstream: Upstream,
        api: &Api,
        body: Vec<u8>,
        rules: &[Rule],
        patience: Patience,
        prompt: String,
    ) -> Self {
        let address = Address::new(api, &["chat", "completions"]);
        let rules = rules.to_vec();
        let step = async move {
            match address {
                Ok(address) => send(upstream, address, body, rules, patience, prompt).await,
                Err(failure) => failed(failure),
            }
        };
        Self { events: VecDeque::new(), step: Some(Box::pin(step)) }
    }

    /// The next event; the last is `Finished` or `Failed`, then `None`. Cancel safe.
    pub async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.events.pop_front() {
                return Some(event);
            }
            let Progress { events, answer } = self.step.as_mut()?.await;
            self.events.extend(events);
            self.step = answer.map(|answer| -> Step { Box::pin(answer.read()) });
        }
    }
}

/// Sends the request and waits for the status of its answer.
async fn send(
    upstream: Upstream,
    address: Address,
    body: Vec<u8>,
    rules: Vec<Rule>,
    patience: Patience,
    prompt: String,
) -> Progress {
    let until = deadline(patience.total);
    let request = match upstream.post(&address, body) {
        Ok(request) => request,
        Err(failure) => return failed(address.told(failure)),
    };
    match timeout_at(until.min(deadline(patience.silence)), request.send()).await {
        Err(_elapsed) => failed(timed_out()),
        Ok(Err(error)) => failed(address.told(fault::failure(&error, &address.host))),
        Ok(Ok(response)) if !response.status().is_success() => {
            let failure = refused(response, until, &rules).await;
            failed(address.told(failure))
        }
        Ok(Ok(response)) => {
            let reader = Reader::new(&rules);
            Progress {
                events: Vec::new(),
                answer: Some(Answer {
                    address,
                    response,
                    reader,
                    deadline: until,
                    silence: patience.silence,
                    prompt,
                    finishing: false,
                }),
            }
        }
    }
}

impl Answer {
    /// Reads until there is something to tell.
    async fn read(mut self) -> Progress {
        loop {
            if self.reader.finished() && !self.finishing {
                self.finishing = true;
                self.deadline = self.deadline.min(Instant::now() + LAST_WORDS);
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
                Err(_elapsed) => return self.conclude(|_cut_off| timed_out()),
            };
            if self.reader.ended() {
                let last = self.conclude(|failure| failure);
                return Progress { events: events.into_iter().chain(last.events).collect(), answer: None };
            }
            if !events.is_empty() {
                return Progress { events, answer: Some(self) };
            }
        }
    }

    /// The last events. If the answer turns out to be none, `failure` says how that came about.
    fn conclude(mut self, failure: impl FnOnce(Failure) -> Failure) -> Progress {
        let mut events = self.reader.conclude(&self.prompt);
        if let Some(Event::Failed(found)) = events.pop_if(|event| matches!(event, Event::Failed(_))) {
            events.push(Event::Failed(self.address.told(failure(found))));
        }
        Progress { events, answer: None }
    }
}

fn failed(failure: Failure) -> Progress {
    Progress { events: vec![Event::Failed(failure)], answer: None }
}

fn timed_out() -> Failure {
    Failure::timed_out().hint("the upstream took longer than its total limit (config.timeout)")
}

//! Events of a run as an answer: one response here, a stream of frames in [`streaming`].
//!
//! The answer owns its run. When the client disconnects, hyper drops the handler or the body, and with it the run. No task is
//! spawned here, and nothing else holds the run.

pub(crate) mod reply;
pub(crate) mod streaming;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use http::StatusCode;
use http::header::{HeaderMap, HeaderValue};
use tokio::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;
use trunkline_core::event::{Answer, Attempted, Event};
use trunkline_core::failure::{Category, Failure};
use trunkline_core::secret::Secrets;
use trunkline_core::turn::Turn;
use trunkline_engine::{JoinedRun, StartError};
use trunkline_wire::error::{ApiError, StorageStatus};
use trunkline_wire::response::Trace;

use crate::answer::reply::HttpResponse;
use crate::door::Door;
use crate::door::RunEvents;

/// Context of an answer.
pub(crate) struct Terms {
    pub(crate) secrets: Arc<Secrets>,
    /// Start of the request.
    pub(crate) began: Instant,
    /// Interval of keep-alive comments.
    pub(crate) keep_alive: Duration,
    /// Number of turns that wait for a slot.
    pub(crate) waiting: Arc<dyn Fn() -> usize + Send + Sync>,
    /// Cancelled when the drain is over.
    pub(crate) expired: CancellationToken,
}

/// A run from its request on: starting, then running.
pub(crate) enum AnswerFeed<R> {
    Starting(Pin<Box<dyn Future<Output = Result<R, StartError>> + Send>>),
    Running(R),
    /// The run did not start. Contains its attempts; the id is empty if there is no run.
    Refused {
        run: String,
        attempts: Vec<Attempted>,
    },
}

/// Response extension: the answer belongs to no run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WithoutRun;

impl<R: RunEvents> AnswerFeed<R> {
    pub(crate) fn new<D: Door<Run = R>>(door: Arc<D>, turn: Turn) -> Self {
        Self::Starting(Box::pin(async move { door.start(turn).await }))
    }

    /// A run that other requests may have joined too.
    pub(crate) fn joining(joined: JoinedRun<R>) -> Self {
        Self::Starting(joined.start)
    }

    /// The next event, or the error if the run did not start. Cancel safe.
    pub(crate) async fn next(&mut self, secrets: &Secrets) -> Result<Event, ApiError> {
        loop {
            match self {
                Self::Starting(start) => match start.as_mut().await {
                    Ok(run) => *self = Self::Running(run),
                    Err(error) => return Err(self.refuse(error, secrets)),
                },
                Self::Running(run) => return Ok(run.next().await.unwrap_or_else(|| Event::Failed(unanswered()))),
                Self::Refused { .. } => return Ok(Event::Failed(unanswered())),
            }
        }
    }

    fn refuse(&mut self, error: StartError, secrets: &Secrets) -> ApiError {
        let told = start_refusal(&error, secrets);
        let (run, attempts) = match error {
            StartError::Failed { run, attempts, .. } => (run, attempts),
            StartError::UnknownModel { .. }
            | StartError::InvalidMember { .. }
            | StartError::Busy { .. }
            | StartError::Limited { .. }
            | StartError::Unavailable { .. }
            | StartError::Storage { .. } => (String::new(), Vec::new()),
        };
        *self = Self::Refused { run, attempts };
        told
    }

    /// Whether there is a run that the client could query.
    pub(crate) fn has_run(&self) -> bool {
        !matches!(self, Self::Refused { run, .. } if run.is_empty())
    }

    /// Adds run, provider and attempts to the trace.
    pub(crate) fn describe(&self, trace: &mut Trace) {
        match self {
            Self::Starting(_) => {}
            Self::Running(run) => {
                run.id().clone_into(&mut trace.run);
                run.provider().clone_into(&mut trace.provider);
                trace.resumption = run.resumption().cloned();
            }
            Self::Refused { run, attempts } => {
                trace.run.clone_from(run);
                trace.provider = attempts.last().map(|last| last.provider.clone()).unwrap_or_default();
                trace.attempts.clone_from(attempts);
            }
        }
    }

    /// Present phase as text, for keep-alive comments.
    pub(crate) fn doing(&self, waiting: impl FnOnce() -> usize) -> Option<String> {
        match self {
            Self::Starting(_) => Some(waiting())
                .filter(|count| *count > 0)
                .map(|count| format!("waiting to start; {count} in the queue")),
            Self::Running(run) => run.phase().map(|(phase, elapsed)| format!("{phase} for {} s", elapsed.as_secs())),
            Self::Refused { .. } => None,
        }
    }

    pub(crate) fn attempts(&self) -> usize {
        match self {
            Self::Starting(_) => 0,
            Self::Running(run) => run.attempts(),
            Self::Refused { attempts, .. } => attempts.len(),
        }
    }
}

/// The API error of a run that did not start.
pub(crate) fn start_refusal(error: &StartError, secrets: &Secrets) -> ApiError {
    match error {
        StartError::UnknownModel { near, models, cli } => {
            let error = ApiError::unknown_model(near).listing_models(models);
            match cli {
                Some(cli) => error.known_cli(&cli.why, &cli.remedy),
                None => error,
            }
        }
        StartError::InvalidMember { code, member, message } => {
            ApiError::invalid(code, secrets.mask(message)).about(member.as_str())
        }
        StartError::Busy { message, retry_after } => ApiError::busy(message, *retry_after),
        StartError::Limited { message, retry_after } => ApiError::limited(message, *retry_after),
        StartError::Unavailable { message, retry_after, last } => {
            ApiError::unavailable(message, *retry_after, last.as_ref(), secrets)
        }
        StartError::Storage { reason, retry_after } => {
            ApiError::storage(StorageStatus::Unavailable, &secrets.mask(reason), *retry_after)
        }
        StartError::Failed { failure, .. } => ApiError::not_started(failure, secrets),
    }
}

fn unanswered() -> Failure {
    Failure::new(Category::Unknown, "the run ended without an answer")
}

/// Encoder of an answer that is one response.
pub(crate) trait WholeAnswer: Send + 'static {
    /// Sees every event of the run, in order.
    fn observe(&mut self, _event: &Event) {}

    /// Returns the JSON body of the response.
    fn finish(self, trace: &Trace, answer: Answer) -> Vec<u8>;
}

/// Waits for the end of the run and answers with one response.
pub(crate) async fn whole<R: RunEvents, W: WholeAnswer>(
    mut feed: AnswerFeed<R>,
    mut encoder: W,
    terms: Terms,
) -> HttpResponse {
    let mut trace = Trace::default();
    let ended = loop {
        let event = tokio::select! {
            biased;
            () = terms.expired.cancelled() => Err(ApiError::stopping()),
            event = feed.next(&terms.secrets) => event,
        };
        match event {
            Err(error) => break Err(error),
            Ok(event) => {
                trace.observe(&event);
                encoder.observe(&event);
                if let Some(end) = event.end() {
                    break end.map_err(|failure| ApiError::failed(&failure, &terms.secrets));
                }
            }
        }
    };
    feed.describe(&mut trace);
    let mut response = match ended {
        Ok(answer) => reply::json_bytes(StatusCode::OK, encoder.finish(&trace, answer)),
        Err(error) => reply::error(&error.of_run(&trace)),
    };
    describe_in_headers(response.headers_mut(), &trace, feed.attempts());
    if !feed.has_run() {
        response.extensions_mut().insert(WithoutRun);
    }
    response
}

/// Adds headers for the provider, the session and the number of attempts.
pub(crate) fn describe_in_headers(headers: &mut HeaderMap, trace: &Trace, attempts: usize) {
    if attempts > 0 {
        headers.insert("x-trunkline-attempts", HeaderValue::from(attempts));
    }
    let session = trace.session.as_ref().map_or("", |session| &session.0);
    for (header, value) in [("x-trunkline-provider", trace.provider.as_str()), ("x-trunkline-session", session)] {
        if let (false, Ok(value)) = (value.is_empty(), HeaderValue::from_str(value)) {
            headers.insert(header, value);
        }
    }
}

#[cfg(test)]
mod tests;

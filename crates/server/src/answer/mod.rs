//! A turn's events become an answer: one response here, a stream of frames in [`crate::streaming`].
//!
//! The answer owns its run: when the client goes away, hyper drops the handler or the body, and with it the run. Nothing
//! here is spawned, and nothing else holds it.

pub(crate) mod reply;
pub(crate) mod streaming;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use http::StatusCode;
use http::header::{HeaderMap, HeaderValue};
use tokio::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;
use trunkline_core::event::{Attempted, Event};
use trunkline_core::failure::{Category, Failure};
use trunkline_core::secret::Secrets;
use trunkline_core::turn::Turn;
use trunkline_engine::{Joined, StartError};
use trunkline_wire::error::{ApiError, StorageStatus};
use trunkline_wire::response::{self, Head, Trace};

use crate::answer::reply::HttpResponse;
use crate::door::Door;
use crate::door::RunEvents;

/// What an answer needs besides its events.
pub(crate) struct Terms {
    pub(crate) secrets: Arc<Secrets>,
    /// When the turn was handed in.
    pub(crate) began: Instant,
    /// How long a stream may be silent.
    pub(crate) keep_alive: Duration,
    /// How many turns wait to be started.
    pub(crate) waiting: Arc<dyn Fn() -> usize + Send + Sync>,
    /// Cancelled when the server has no more time.
    pub(crate) expired: CancellationToken,
}

/// A turn from the moment it is handed in: waiting for its start, then running.
pub(crate) enum Feed<R> {
    Starting(Pin<Box<dyn Future<Output = Result<R, StartError>> + Send>>),
    Running(R),
    /// Nothing ever ran: what was tried, in the run it was to be; without a name where there is none.
    Refused {
        run: String,
        attempts: Vec<Attempted>,
    },
}

/// On an answer: it is no run's.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NoRun;

impl<R: RunEvents> Feed<R> {
    pub(crate) fn new<D: Door<Run = R>>(door: Arc<D>, turn: Turn) -> Self {
        Self::Starting(Box::pin(async move { door.start(turn).await }))
    }

    /// One that may be somebody else's, too.
    pub(crate) fn joining(joined: Joined<R>) -> Self {
        Self::Starting(joined.start)
    }

    /// The next event, or why there is no run. Cancel safe.
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
        let told = not_started(&error, secrets);
        let (run, attempts) = match error {
            StartError::Failed { run, attempts, .. } => (run, attempts),
            StartError::UnknownModel { .. }
            | StartError::Busy { .. }
            | StartError::Limited { .. }
            | StartError::Unavailable { .. }
            | StartError::Storage { .. } => (String::new(), Vec::new()),
        };
        *self = Self::Refused { run, attempts };
        told
    }

    /// Whether there is a run that a client could ask about.
    pub(crate) fn has_run(&self) -> bool {
        !matches!(self, Self::Refused { run, .. } if run.is_empty())
    }

    /// Says who runs it, as far as that is known.
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

    /// What is going on, in words, for who is kept waiting.
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

/// Why there is no run, as the client is told.
pub(crate) fn not_started(error: &StartError, secrets: &Secrets) -> ApiError {
    match error {
        StartError::UnknownModel { near, models, cli } => {
            let error = ApiError::unknown_model(near).listing_models(models);
            match cli {
                Some(cli) => error.known_cli(&cli.why, &cli.remedy),
                None => error,
            }
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

/// Waits for the end of the turn and answers once.
pub(crate) async fn whole<R: RunEvents>(mut feed: Feed<R>, head: Head, terms: Terms) -> HttpResponse {
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
                if let Some(end) = event.end() {
                    break end.map_err(|failure| ApiError::failed(&failure, &terms.secrets));
                }
            }
        }
    };
    feed.describe(&mut trace);
    let mut response = match ended {
        Ok(answer) => {
            let whole = response::whole(head, &trace, answer);
            reply::json(StatusCode::OK, &whole)
        }
        Err(error) => reply::error(&error.of_run(&trace)),
    };
    name(response.headers_mut(), &trace, feed.attempts());
    if !feed.has_run() {
        response.extensions_mut().insert(NoRun);
    }
    response
}

/// Says in the headers who answers.
pub(crate) fn name(headers: &mut HeaderMap, trace: &Trace, attempts: usize) {
    if attempts > 0 {
        headers.insert("x-trunkline-attempts", HeaderValue::from(attempts));
    }
    let session = trace.session.as_ref().map_or("", |session| session.0.as_str());
    for (header, value) in [("x-trunkline-provider", trace.provider.as_str()), ("x-trunkline-session", session)] {
        if let (false, Ok(value)) = (value.is_empty(), HeaderValue::from_str(value)) {
            headers.insert(header, value);
        }
    }
}

#[cfg(test)]
mod tests;

//! A turn's events become an answer: a stream of frames, or one response.
//!
//! The answer owns its run: when the client goes away, hyper drops the handler or the body, and with it the run. Nothing
//! here is spawned, and nothing else holds it.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use axum::body::Body;
use bytes::Bytes;
use futures_util::stream;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderMap, HeaderValue};
use http::{Response, StatusCode};
use tokio::time::{Duration, Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use trunkline_core::event::{Attempted, Event};
use trunkline_core::failure::{Category, Failure};
use trunkline_core::secret::Secrets;
use trunkline_core::turn::Turn;
use trunkline_engine::StartError;
use trunkline_wire::error::ApiError;
use trunkline_wire::response::{self, Head, Trace};
use trunkline_wire::sse;
use trunkline_wire::stream::{Chunks, Stream, UsageChunk};

use crate::{Door, Events, HttpResponse, reply};

/// What an answer needs besides its events.
pub(crate) struct Terms {
    pub(crate) head: Head,
    pub(crate) secrets: Arc<Secrets>,
    /// When the turn was handed in.
    pub(crate) began: Instant,
    /// How long a stream may be silent.
    pub(crate) keep_alive: Duration,
    /// Cancelled when the server has no more time.
    pub(crate) expired: CancellationToken,
}

/// A turn from the moment it is handed in: waiting for its start, then running.
pub(crate) enum Feed<R> {
    Starting(Pin<Box<dyn Future<Output = Result<R, StartError>> + Send>>),
    Running(R),
    /// Nothing ever ran: what was tried, in the run it was to be.
    Refused {
        run: String,
        attempts: Vec<Attempted>,
    },
}

impl<R: Events> Feed<R> {
    pub(crate) fn new<D: Door<Run = R>>(door: Arc<D>, turn: Turn) -> Self {
        Self::Starting(Box::pin(async move { door.start(turn).await }))
    }

    /// The next event, or why there is no run. Cancel safe.
    async fn next(&mut self, secrets: &Secrets) -> Result<Event, ApiError> {
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
        match error {
            StartError::UnknownModel { near } => ApiError::unknown_model(&near),
            StartError::Busy { message, retry_after } => ApiError::busy(&message, retry_after),
            StartError::Unavailable { message, retry_after } => ApiError::unavailable(&message, retry_after),
            StartError::Failed { failure, run, attempts } => {
                *self = Self::Refused { run, attempts };
                ApiError::not_started(&failure, secrets)
            }
        }
    }

    /// Says who runs it, as far as that is known.
    fn describe(&self, trace: &mut Trace) {
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

    fn attempts(&self) -> usize {
        match self {
            Self::Starting(_) => 0,
            Self::Running(run) => run.attempts(),
            Self::Refused { attempts, .. } => attempts.len(),
        }
    }
}

fn unanswered() -> Failure {
    Failure::new(Category::Unknown, "the run ended without an answer")
}

/// Waits for the end of the turn and answers once.
pub(crate) async fn whole<R: Events>(mut feed: Feed<R>, terms: Terms) -> HttpResponse {
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
            let whole = response::whole(terms.head, &trace, answer);
            reply::json(StatusCode::OK, &whole)
        }
        Err(error) => reply::error(&error.of_run(&trace)),
    };
    name(response.headers_mut(), &trace, feed.attempts());
    response
}

/// Answers with a stream, once there is something to show: a failure before that is a status of its own. But a client
/// is not left without headers for longer than a stream may be silent.
pub(crate) async fn streamed<R: Events>(feed: Feed<R>, usage: UsageChunk, terms: Terms) -> HttpResponse {
    let chunks = Chunks::new(terms.head.clone(), usage, Arc::clone(&terms.secrets));
    let mut streaming = Streaming { feed, chunks, sent: terms.began, terms };
    let mut frames = Vec::new();
    let opened = loop {
        match streaming.step().await {
            Step::Event(Event::Failed(failure)) => break Err(ApiError::failed(&failure, &streaming.terms.secrets)),
            Step::Refused(error) => break Err(error),
            Step::Silence => {
                frames.extend_from_slice(sse::KEEP_ALIVE);
                break Ok(Stream::Open);
            }
            Step::Event(event) => {
                let stream = streaming.push(&event, &mut frames);
                if is_visible(&event) {
                    break Ok(stream);
                }
            }
        }
    };
    streaming.feed.describe(&mut streaming.chunks.trace);
    let (trace, attempts) = (streaming.chunks.trace.clone(), streaming.feed.attempts());
    let mut response = match opened {
        Ok(stream) => {
            let mut response = Response::new(streaming.body(frames, stream));
            let headers = response.headers_mut();
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
            headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
            response
        }
        Err(error) => reply::error(&error.of_run(&trace)),
    };
    name(response.headers_mut(), &trace, attempts);
    response
}

/// A stream that is being sent.
struct Streaming<R> {
    feed: Feed<R>,
    chunks: Chunks,
    terms: Terms,
    /// When the client last heard from us.
    sent: Instant,
}

enum Step {
    Event(Event),
    /// There is no run, or no more time for it.
    Refused(ApiError),
    /// Nothing happened for as long as we may be silent.
    Silence,
}

impl<R: Events> Streaming<R> {
    async fn step(&mut self) -> Step {
        tokio::select! {
            biased;
            () = self.terms.expired.cancelled() => Step::Refused(ApiError::stopping()),
            event = self.feed.next(&self.terms.secrets) => match event {
                Ok(event) => Step::Event(event),
                Err(error) => Step::Refused(error),
            },
            () = sleep_until(self.sent + self.terms.keep_alive) => Step::Silence,
        }
    }

    fn push(&mut self, event: &Event, frames: &mut Vec<u8>) -> Stream {
        if matches!(event, Event::Finished(_) | Event::Failed(_)) {
            self.feed.describe(&mut self.chunks.trace);
        }
        self.chunks.push(event, frames)
    }

    /// The frames of the next step that has any.
    async fn frames(&mut self) -> (Vec<u8>, Stream) {
        let mut frames = Vec::new();
        loop {
            let stream = match self.step().await {
                Step::Event(event) => self.push(&event, &mut frames),
                Step::Refused(error) => {
                    self.feed.describe(&mut self.chunks.trace);
                    let error = error.of_run(&self.chunks.trace);
                    self.chunks.fail(&error, &mut frames)
                }
                Step::Silence => {
                    frames.extend_from_slice(sse::KEEP_ALIVE);
                    Stream::Open
                }
            };
            if stream == Stream::Ended || !frames.is_empty() {
                self.sent = Instant::now();
                return (frames, stream);
            }
        }
    }

    /// The body that begins with `first`. It ends with the last frame, and the run is dropped before that is sent.
    fn body(mut self, first: Vec<u8>, stream: Stream) -> Body {
        self.sent = Instant::now();
        let rest = (stream == Stream::Open).then_some(self);
        let frames = stream::unfold((Some(first), rest), |(first, rest)| async move {
            if let Some(first) = first {
                return Some((Ok::<_, Infallible>(Bytes::from(first)), (None, rest)));
            }
            let mut streaming = rest?;
            let (frames, stream) = streaming.frames().await;
            let rest = (stream == Stream::Open).then_some(streaming);
            Some((Ok(Bytes::from(frames)), (None, rest)))
        });
        Body::from_stream(frames)
    }
}

/// Whether an event is something to show, or the end.
const fn is_visible(event: &Event) -> bool {
    match event {
        Event::Text { .. }
        | Event::Thinking { .. }
        | Event::ToolStarted { .. }
        | Event::ToolCall { .. }
        | Event::Finished(_)
        | Event::Failed(_) => true,
        Event::Started { .. }
        | Event::ToolFinished { .. }
        | Event::Notice { .. }
        | Event::Unknown { .. }
        | Event::Workspace(_)
        | Event::Attempted(_) => false,
    }
}

fn name(headers: &mut HeaderMap, trace: &Trace, attempts: usize) {
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
#[path = "answer_tests.rs"]
mod tests;

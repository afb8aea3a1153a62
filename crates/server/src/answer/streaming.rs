//! A streamed answer: events become frames, and SSE comments keep a silent connection alive.
//!
//! [`Frames`] defines the format: the API's chunks, or the chat page's own.

use std::convert::Infallible;
use std::future::{Future, pending};

use axum::body::Body;
use bytes::Bytes;
use futures_util::stream;
use http::Response;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use tokio::time::{Instant, sleep_until};
use trunkline_core::event::Event;
use trunkline_core::failure::{Category, Failure};
use trunkline_wire::error::ApiError;
use trunkline_wire::response::Trace;
use trunkline_wire::sse;
use trunkline_wire::stream::{Chunks, Stream};

use crate::answer::reply;
use crate::answer::reply::HttpResponse;
use crate::answer::{AnswerFeed, Terms, WithoutRun, describe_in_headers};
use crate::door::RunEvents;

/// Conversion of events into frames.
pub(crate) trait Frames: Send + 'static {
    const CONTENT_TYPE: &'static str = "text/event-stream";

    fn trace(&mut self) -> &mut Trace;

    /// Appends the frames of an event, possibly none.
    fn push(&mut self, event: &Event, out: &mut Vec<u8>) -> Stream;

    /// Ends the stream with an error.
    fn fail(&mut self, error: &ApiError, out: &mut Vec<u8>) -> Stream;

    /// Whether an event starts the stream. After that a failure can no longer be an HTTP status.
    fn opens(&self, event: &Event) -> bool;

    /// Appends the frames that start a stream before its first event, because the client has waited for long.
    fn open(&mut self, _out: &mut Vec<u8>) {}

    /// Appends what keeps a silent connection alive. `doing` is the present phase of the run.
    fn keep_alive(&mut self, doing: Option<&str>, out: &mut Vec<u8>) {
        if let Some(doing) = doing {
            sse::comment(doing, out);
        }
        out.extend_from_slice(sse::KEEP_ALIVE);
    }

    /// How an error before the start of the stream is reported.
    fn refuse(&mut self, _error: &ApiError) -> ErrorReport {
        ErrorReport::Status
    }

    /// Returns when the answer is stopped from outside. Cancel safe.
    fn stopped(&self) -> impl Future<Output = ()> + Send {
        pending()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ErrorReport {
    Status,
    Frames,
}

impl Frames for Chunks {
    fn trace(&mut self) -> &mut Trace {
        &mut self.trace
    }

    fn push(&mut self, event: &Event, out: &mut Vec<u8>) -> Stream {
        Self::push(self, event, out)
    }

    fn fail(&mut self, error: &ApiError, out: &mut Vec<u8>) -> Stream {
        Self::fail(self, error, out)
    }

    fn opens(&self, event: &Event) -> bool {
        is_visible(event)
    }
}

/// Answers with a stream as soon as there is something to show; a failure before that is an HTTP status. The headers are sent at the
/// latest after the keep-alive interval.
pub(crate) async fn streamed<R: RunEvents, F: Frames>(feed: AnswerFeed<R>, frames: F, terms: Terms) -> HttpResponse {
    let mut streaming = Streaming { feed, frames, sent: terms.began, terms };
    let mut first = Vec::new();
    let opened = loop {
        match streaming.step().await {
            StreamStep::Event(event) => {
                if let Event::Failed(failure) = &event {
                    let error = ApiError::failed(failure, &streaming.terms.secrets);
                    if streaming.frames.refuse(&error) == ErrorReport::Status {
                        break Err(error);
                    }
                }
                let stream = streaming.push(&event, &mut first);
                if stream == Stream::Ended || streaming.frames.opens(&event) {
                    break Ok(stream);
                }
            }
            StreamStep::Refused(error) if streaming.frames.refuse(&error) == ErrorReport::Status => break Err(error),
            StreamStep::Refused(error) => break Ok(streaming.fail(error, &mut first)),
            StreamStep::Silence => {
                streaming.frames.open(&mut first);
                streaming.keep_alive(&mut first);
                break Ok(Stream::Open);
            }
        }
    };
    streaming.feed.describe(streaming.frames.trace());
    let (trace, attempts) = (streaming.frames.trace().clone(), streaming.feed.attempts());
    let no_run = opened.is_err() && !streaming.feed.has_run();
    let mut response = match opened {
        Ok(stream) => {
            let mut response = Response::new(streaming.body(first, stream));
            let headers = response.headers_mut();
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(F::CONTENT_TYPE));
            headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
            response
        }
        Err(error) => reply::error(&error.of_run(&trace)),
    };
    describe_in_headers(response.headers_mut(), &trace, attempts);
    if no_run {
        response.extensions_mut().insert(WithoutRun);
    }
    response
}

/// A stream that is being sent.
struct Streaming<R, F> {
    feed: AnswerFeed<R>,
    frames: F,
    terms: Terms,
    /// Time of the last frame.
    sent: Instant,
}

enum StreamStep {
    Event(Event),
    /// The run did not start, or the server is out of time.
    Refused(ApiError),
    /// The keep-alive interval has passed without an event.
    Silence,
}

impl<R: RunEvents, F: Frames> Streaming<R, F> {
    async fn step(&mut self) -> StreamStep {
        tokio::select! {
            biased;
            () = self.terms.expired.cancelled() => StreamStep::Refused(ApiError::stopping()),
            () = self.frames.stopped() => StreamStep::Event(Event::Failed(Failure::new(Category::Cancelled, "stopped"))),
            event = self.feed.next(&self.terms.secrets) => match event {
                Ok(event) => StreamStep::Event(event),
                Err(error) => StreamStep::Refused(error),
            },
            () = sleep_until(self.sent + self.terms.keep_alive) => StreamStep::Silence,
        }
    }

    fn push(&mut self, event: &Event, frames: &mut Vec<u8>) -> Stream {
        if matches!(event, Event::Finished(_) | Event::Failed(_)) {
            self.feed.describe(self.frames.trace());
        }
        self.frames.push(event, frames)
    }

    fn fail(&mut self, error: ApiError, frames: &mut Vec<u8>) -> Stream {
        self.feed.describe(self.frames.trace());
        let error = error.of_run(self.frames.trace());
        self.frames.fail(&error, frames)
    }

    fn keep_alive(&mut self, frames: &mut Vec<u8>) {
        let doing = self.feed.doing(&*self.terms.waiting);
        self.frames.keep_alive(doing.as_deref(), frames);
    }

    /// Frames of the next step that produces any.
    async fn next_frames(&mut self) -> (Vec<u8>, Stream) {
        let mut frames = Vec::new();
        loop {
            let stream = match self.step().await {
                StreamStep::Event(event) => self.push(&event, &mut frames),
                StreamStep::Refused(error) => self.fail(error, &mut frames),
                StreamStep::Silence => {
                    self.keep_alive(&mut frames);
                    Stream::Open
                }
            };
            if stream == Stream::Ended || !frames.is_empty() {
                self.sent = Instant::now();
                return (frames, stream);
            }
        }
    }

    /// The response body, which begins with `first`. It ends with the last frame; the run is dropped before that frame is sent.
    fn body(mut self, first: Vec<u8>, stream: Stream) -> Body {
        self.sent = Instant::now();
        let rest = (stream == Stream::Open).then_some(self);
        let frames = stream::unfold((Some(first), rest), |(first, rest)| async move {
            if let Some(first) = first {
                return Some((Ok::<_, Infallible>(Bytes::from(first)), (None, rest)));
            }
            let mut streaming = rest?;
            let (frames, stream) = streaming.next_frames().await;
            let rest = (stream == Stream::Open).then_some(streaming);
            Some((Ok(Bytes::from(frames)), (None, rest)))
        });
        Body::from_stream(frames)
    }
}

/// Whether an event is visible to the client, or the end.
pub(crate) const fn is_visible(event: &Event) -> bool {
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

//! An answer that is sent while it is made: events become frames, and silence is broken by comments.
//!
//! What the frames look like is up to [`Frames`]: the API's chunks, or the chat page's own.

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
use crate::answer::{Feed, NoRun, Terms, name};
use crate::door::RunEvents;

/// How the events of an answer become frames.
pub(crate) trait Frames: Send + 'static {
    fn trace(&mut self) -> &mut Trace;

    /// Appends the frames that an event is worth, possibly none.
    fn push(&mut self, event: &Event, out: &mut Vec<u8>) -> Stream;

    /// Ends the stream with an error.
    fn fail(&mut self, error: &ApiError, out: &mut Vec<u8>) -> Stream;

    /// Whether an event is reason enough to begin the stream, after which a failure can no longer be a status.
    fn opens(&self, event: &Event) -> bool;

    /// How an error before that is told.
    fn refuse(&mut self, _error: &ApiError) -> Told {
        Told::AsStatus
    }

    /// Returns when somebody else ends the answer. Cancel safe.
    fn stopped(&self) -> impl Future<Output = ()> + Send {
        pending()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Told {
    AsStatus,
    InFrames,
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

/// Answers with a stream, once there is something to show: a failure before that is a status of its own. But a client
/// is not left without headers for longer than a stream may be silent.
pub(crate) async fn streamed<R: RunEvents, F: Frames>(feed: Feed<R>, frames: F, terms: Terms) -> HttpResponse {
    let mut streaming = Streaming { feed, frames, sent: terms.began, terms };
    let mut first = Vec::new();
    let opened = loop {
        match streaming.step().await {
            Step::Event(event) => {
                if let Event::Failed(failure) = &event {
                    let error = ApiError::failed(failure, &streaming.terms.secrets);
                    if streaming.frames.refuse(&error) == Told::AsStatus {
                        break Err(error);
                    }
                }
                let stream = streaming.push(&event, &mut first);
                if stream == Stream::Ended || streaming.frames.opens(&event) {
                    break Ok(stream);
                }
            }
            Step::Refused(error) if streaming.frames.refuse(&error) == Told::AsStatus => break Err(error),
            Step::Refused(error) => break Ok(streaming.fail(error, &mut first)),
            Step::Silence => {
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
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
            headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
            response
        }
        Err(error) => reply::error(&error.of_run(&trace)),
    };
    name(response.headers_mut(), &trace, attempts);
    if no_run {
        response.extensions_mut().insert(NoRun);
    }
    response
}

/// A stream that is being sent.
struct Streaming<R, F> {
    feed: Feed<R>,
    frames: F,
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

impl<R: RunEvents, F: Frames> Streaming<R, F> {
    async fn step(&mut self) -> Step {
        tokio::select! {
            biased;
            () = self.terms.expired.cancelled() => Step::Refused(ApiError::stopping()),
            () = self.frames.stopped() => Step::Event(Event::Failed(Failure::new(Category::Cancelled, "stopped"))),
            event = self.feed.next(&self.terms.secrets) => match event {
                Ok(event) => Step::Event(event),
                Err(error) => Step::Refused(error),
            },
            () = sleep_until(self.sent + self.terms.keep_alive) => Step::Silence,
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

    /// Says that the stream lives, and to who looks closely, what it waits for.
    fn keep_alive(&self, frames: &mut Vec<u8>) {
        if let Some(doing) = self.feed.doing(&*self.terms.waiting) {
            sse::comment(&doing, frames);
        }
        frames.extend_from_slice(sse::KEEP_ALIVE);
    }

    /// The frames of the next step that has any.
    async fn next_frames(&mut self) -> (Vec<u8>, Stream) {
        let mut frames = Vec::new();
        loop {
            let stream = match self.step().await {
                Step::Event(event) => self.push(&event, &mut frames),
                Step::Refused(error) => self.fail(error, &mut frames),
                Step::Silence => {
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

    /// The body that begins with `first`. It ends with the last frame, and the run is dropped before that is sent.
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

//! API dialects. A dialect is a translation: it turns a request body into a [`Turn`], and the events of a run into an answer.
//! Everything else about a request is the same for all of them, and is done here, once:
//!
//! ```text
//! route ─▶ answer ─▶ read body ─▶ Dialect::read ─▶ admission ─▶ run ─┬▶ Delivery::Whole     WholeAnswer
//!                                  (Turn)          key, session,      ├▶ Delivery::Streamed  Frames
//!                                                  idempotency,       └▶ Delivery::Later     AnswerFormat::accepted
//!                                                  disconnect
//! ```
//!
//! An error is an [`ApiError`] with its status everywhere; only its body depends on the dialect ([`error_body`]).

mod abilities;
pub(crate) mod chat;
pub(crate) mod completions;
pub(crate) mod embeddings;
mod error_body;
mod estimate;
mod functions;
pub(crate) mod gemini;
mod json;
mod members;
pub(crate) mod messages;
pub(crate) mod ollama;
mod question;
mod reasoning;
pub(crate) mod responses;
#[cfg(test)]
mod test_events;
mod text_or;

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use http::header::USER_AGENT;
use http::request::Parts;
use trunkline_core::secret::Secrets;
use trunkline_core::turn::{OnDisconnect, Turn};
use trunkline_wire::answer_format::answer_format;
use trunkline_wire::error::ApiError;
use uuid::Uuid;

use crate::admission::{self, StartedRun};
use crate::answer::reply::HttpResponse;
use crate::answer::streaming::{Frames, streamed};
use crate::answer::{self, WholeAnswer, reply};
use crate::app::App;
use crate::connection::body;
use crate::door::Door;
use crate::repeat::{self, EarlierRequest, RequestIdentity};
pub(crate) use error_body::AnswerShape;
use members::MemberTable;

/// An API dialect, in which clients ask for turns.
pub(crate) trait Dialect: Send + 'static {
    type Format: AnswerFormat;

    /// The members of its requests.
    const MEMBERS: &'static MemberTable;

    /// Answers a request that asks for no turn. `None` if it asks for one.
    fn at_once<D: Door>(_app: &App<D>, _body: &[u8]) -> Option<Result<HttpResponse, ApiError>> {
        None
    }

    /// Everything that identifies a request besides its body.
    fn target(_head: &Parts) -> &str {
        ""
    }

    /// Translates a request. The owner, the session header, the idempotency key and the wishes in headers are not its concern.
    fn read<D: Door>(
        app: &App<D>,
        head: &Parts,
        body: &[u8],
    ) -> impl Future<Output = Result<Asked<Self::Format>, ApiError>> + Send;
}

/// A request in our words.
pub(crate) struct Asked<F> {
    pub(crate) turn: Turn,
    pub(crate) delivery: Delivery,
    pub(crate) format: F,
}

/// How the client wants its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Delivery {
    /// One response, at the end of the run.
    Whole,
    /// As it comes.
    Streamed,
    /// The client gets a reference at once, and fetches the answer later. The run continues without it.
    Later,
}

/// Format of an answer, with everything that the request said about it.
pub(crate) trait AnswerFormat: Send + 'static {
    type Frames: Frames;
    type Whole: WholeAnswer;

    /// The encoder of a streamed answer.
    fn frames(self, run: &RunHead, secrets: Arc<Secrets>) -> Self::Frames;

    /// The encoder of a whole answer.
    fn whole(self, run: &RunHead) -> Self::Whole;

    /// The response to a client that fetches its answer later.
    fn accepted(self, run: &RunHead) -> HttpResponse
    where
        Self: Sized,
    {
        admission::accepted(&run.id)
    }
}

/// Id of a run, and the start of the run in seconds since 1970. Ids and times of answers are derived from these, so that a repeated
/// request gets the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RunHead {
    pub(crate) id: String,
    pub(crate) created: u64,
}

impl RunHead {
    pub(crate) fn new(run: &str) -> Self {
        let begun = Uuid::parse_str(run).ok().and_then(|run| run.get_timestamp());
        Self { id: run.to_owned(), created: begun.map_or(0, |begun| begun.to_unix().0) }
    }
}

/// Handler of a route on which clients ask for turns in the dialect `T`.
pub(crate) async fn answer<T: Dialect, D: Door>(State(app): State<Arc<App<D>>>, request: Request) -> HttpResponse {
    let (head, body) = request.into_parts();
    let mut response = match exchange::<T, D>(&app, &head, body).await {
        Ok(response) => response,
        Err(error) => reply::error(&error),
    };
    if let Some(allowance) = app.door.allowance(&admission::client(&head)) {
        reply::name_allowance(response.headers_mut(), allowance);
    }
    response
}

async fn exchange<T: Dialect, D: Door>(app: &Arc<App<D>>, head: &Parts, body: Body) -> Result<HttpResponse, ApiError> {
    if app.stopping.is_cancelled() {
        return Err(ApiError::stopping());
    }
    let body = body::read_json(&head.headers, body, &app.config.limits).await?;
    if let Some(response) = T::at_once(app, &body) {
        return response;
    }
    let Asked { mut turn, delivery, format } = T::read(app, head, &body).await?;
    turn.members.extend(T::MEMBERS.read(&body));
    turn.answer_format = answer_format(&turn.options, T::MEMBERS.schema_place(&turn.members))?;
    let key = admission::idempotency_key(&head.headers, T::target(head), &body)?;
    let identity = key.is_none().then(|| RequestIdentity::new(head, &body));
    drop(body);
    if delivery == Delivery::Later {
        turn.on_disconnect = Some(OnDisconnect::Detach);
    }
    let mut request = admission::admit(turn, head, key)?;
    let user_agent = head.headers.get(USER_AGENT).and_then(|agent| agent.to_str().ok());
    request.turn.side = app.door.side_request(&request.turn, user_agent);
    if request.respond_async {
        return admission::respond_async(app, request).await;
    }
    if delivery == Delivery::Later {
        let (run, replayed) = admission::launch(app, request).await?;
        let mut response = format.accepted(&RunHead::new(&run));
        admission::identify(&mut response, &run, replayed);
        return Ok(response);
    }
    let joins = |model: &str| app.door.joins_repeats(model);
    let repeat_wait = app.config.limits.repeat_wait;
    request.turn.patience =
        repeat::patience(&head.headers, request.turn.shown, repeat_wait).filter(|_| joins(&request.turn.model));
    let earlier = identity.as_ref().and_then(|identity| app.repeats.find(identity));
    let joined = match earlier.filter(|_| joins(&request.turn.model)) {
        Some(EarlierRequest::Failure(error)) => return Err(*error),
        Some(EarlierRequest::Run(run)) => app.door.join(&request.turn.owner, &run, request.turn.patience).await,
        None => None,
    };
    let StartedRun { feed, run, replayed } = match joined {
        Some(joined) => StartedRun::joined(joined),
        None => admission::begin(app, request).await?,
    };
    let pending = identity.map(|identity| app.repeats.begin(&identity, &run));
    let (terms, run_head) = (app.terms(), RunHead::new(&run));
    let mut response = if delivery == Delivery::Streamed {
        streamed(feed, format.frames(&run_head, Arc::clone(&app.config.secrets)), terms).await
    } else {
        answer::whole(feed, format.whole(&run_head), terms).await
    };
    admission::identify(&mut response, &run, replayed);
    Ok(match pending {
        Some(pending) => repeat::track(response, pending),
        None => response,
    })
}

//! Everything about a request for a turn that does not depend on the API dialect: the client's key, the session header,
//! `Idempotency-Key`, `Prefer: respond-async`, and the choice of what happens when the client disconnects.
//!
//! A dialect only translates ([`crate::dialect`]): [`crate::dialect::answer`] passes its turn through [`admit`], and starts it with
//! [`begin`] or [`launch`].

use std::sync::Arc;

use http::header::LOCATION;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, StatusCode};
use serde::Serialize;
use trunkline_core::turn::{ClientId, OnDisconnect, OwnTools, Turn};
use trunkline_engine::{IdempotencyError, IdempotentTurn, JoinedRun, StartError};
use trunkline_wire::error::{ApiError, StorageStatus};
use trunkline_wire::request;
use uuid::Uuid;

use crate::answer::reply::HttpResponse;
use crate::answer::{AnswerFeed, WithoutRun, reply, start_refusal};
use crate::app::App;
use crate::door::{Door, RunEvents};

pub(crate) const SESSION_HEADER: &str = "x-trunkline-session";

const ON_DISCONNECT_HEADER: &str = "x-trunkline-on-disconnect";

const OWN_TOOLS_HEADER: &str = "x-trunkline-own-tools";

const IDEMPOTENCY_HEADER: &str = "idempotency-key";

/// Maximum length of an idempotency key, in bytes.
const MAX_KEY_BYTES: usize = 255;

const RESPOND_ASYNC: &str = "respond-async";

/// A turn with the wishes of its client.
pub(crate) struct AdmittedRequest {
    pub(crate) turn: Turn,
    key: Option<IdempotencyKey>,
    /// Whether the client wants the id of the run at once, and fetches the answer later.
    pub(crate) respond_async: bool,
}

/// The client's key, and a digest of everything that makes a difference to the answer.
pub(crate) struct IdempotencyKey {
    key: String,
    request: [u8; 32],
}

/// A run that was started, or joined, for a request.
pub(crate) struct StartedRun<R> {
    pub(crate) feed: AnswerFeed<R>,
    pub(crate) run: String,
    /// Whether an earlier request started the run.
    pub(crate) replayed: bool,
}

impl<R: RunEvents> StartedRun<R> {
    /// A run that other requests may have joined, too.
    pub(crate) fn joined(joined: JoinedRun<R>) -> Self {
        Self { run: joined.run.clone(), replayed: joined.replayed, feed: AnswerFeed::joining(joined) }
    }
}

/// The client that sent a request, as the key check left it.
pub(crate) fn client(head: &Parts) -> ClientId {
    head.extensions.get().cloned().unwrap_or_default()
}

/// The idempotency key of a request, if it has one. The body is part of its identity, and so is `target`.
pub(crate) fn idempotency_key(
    headers: &HeaderMap,
    target: &str,
    body: &[u8],
) -> Result<Option<IdempotencyKey>, ApiError> {
    let Some(key) = headers.get(IDEMPOTENCY_HEADER) else { return Ok(None) };
    match key.to_str() {
        Ok(key) if (1..=MAX_KEY_BYTES).contains(&key.len()) => {
            Ok(Some(IdempotencyKey { key: key.to_owned(), request: digest(headers, target, body) }))
        }
        Ok(_) | Err(_) => {
            let message = format!("an Idempotency-Key has 1 to {MAX_KEY_BYTES} characters, all of them ASCII");
            Err(ApiError::invalid("invalid_value", message).about("Idempotency-Key"))
        }
    }
}

/// Completes a turn by what the request's headers ask for.
pub(crate) fn admit(mut turn: Turn, head: &Parts, key: Option<IdempotencyKey>) -> Result<AdmittedRequest, ApiError> {
    let headers = &head.headers;
    turn.owner = client(head);
    if let Some(id) = headers.get(SESSION_HEADER) {
        let named = request::session(id.to_str().unwrap_or("\0"), SESSION_HEADER)?;
        turn.session = named.or(turn.session);
    }
    if let Some(wish) = headers.get(ON_DISCONNECT_HEADER) {
        turn.on_disconnect = Some(request::on_disconnect(wish.to_str().unwrap_or_default(), ON_DISCONNECT_HEADER)?);
    }
    if let Some(wish) = headers.get(OWN_TOOLS_HEADER) {
        turn.own_tools = Some(own_tools(wish.to_str().unwrap_or_default())?);
    }
    let respond_async = headers.get_all("prefer").iter().any(|wish| wish.to_str().is_ok_and(prefers_async));
    if respond_async {
        turn.on_disconnect = Some(OnDisconnect::Detach);
    }
    Ok(AdmittedRequest { turn, key, respond_async })
}

fn own_tools(wish: &str) -> Result<OwnTools, ApiError> {
    match wish {
        "keep" => Ok(OwnTools::Keep),
        "off" => Ok(OwnTools::Off),
        _ => Err(ApiError::invalid("invalid_value", "own tools are `keep` or `off`").about(OWN_TOOLS_HEADER)),
    }
}

/// Starts the run of a request. With an idempotency key the run may be one that an earlier request has started.
pub(crate) async fn begin<D: Door>(app: &App<D>, request: AdmittedRequest) -> Result<StartedRun<D::Run>, ApiError> {
    let AdmittedRequest { mut turn, key, respond_async } = request;
    let storage = if respond_async { StorageStatus::Insufficient } else { StorageStatus::Unavailable };
    let Some(IdempotencyKey { key, request }) = key else {
        let run = Uuid::now_v7().to_string();
        turn.run = Some(run.clone());
        return Ok(StartedRun { feed: AnswerFeed::new(Arc::clone(&app.door), turn), run, replayed: false });
    };
    let joined = app.door.once(IdempotentTurn { turn, key, request }).await.map_err(|error| match error {
        IdempotencyError::OtherRequest => {
            let message = "this Idempotency-Key was used for a request with another body";
            ApiError::unprocessable("idempotency_key_reused", message).hint("use a new key for each new request")
        }
        IdempotencyError::Start(error) => refusal(app, &error, storage),
    })?;
    Ok(StartedRun::joined(joined))
}

/// Starts a detached run. Returns its id, and whether an earlier request with the same idempotency key started it.
pub(crate) async fn launch<D: Door>(app: &App<D>, request: AdmittedRequest) -> Result<(String, bool), ApiError> {
    match request.key {
        // Dropping the feed of a detached run does not stop the run.
        Some(_) => begin(app, request).await.map(|started| (started.run, started.replayed)),
        None => {
            let launched = app.door.launch(request.turn).await;
            launched.map(|run| (run, false)).map_err(|error| refusal(app, &error, StorageStatus::Insufficient))
        }
    }
}

/// Starts a detached run and answers 202 with the place where its answer will be.
pub(crate) async fn respond_async<D: Door>(app: &App<D>, request: AdmittedRequest) -> Result<HttpResponse, ApiError> {
    let (run, replayed) = launch(app, request).await?;
    let mut response = accepted(&run);
    name_run(response.headers_mut(), &run, replayed);
    response.headers_mut().insert("preference-applied", HeaderValue::from_static(RESPOND_ASYNC));
    Ok(response)
}

/// 202 with the id of a run and the place where its answer will be.
pub(crate) fn accepted(run: &str) -> HttpResponse {
    let mut response = reply::json(StatusCode::ACCEPTED, &Accepted { object: "run", id: run });
    if let Ok(place) = HeaderValue::from_str(&format!("/v1/runs/{run}")) {
        response.headers_mut().insert(LOCATION, place);
    }
    response
}

#[derive(Serialize)]
struct Accepted<'a> {
    object: &'static str,
    id: &'a str,
}

/// Adds the headers that name the run of an answer, if the answer has a run.
pub(crate) fn identify(response: &mut HttpResponse, run: &str, replayed: bool) {
    if response.extensions().get::<WithoutRun>().is_none() {
        name_run(response.headers_mut(), run, replayed);
    }
}

fn name_run(headers: &mut HeaderMap, run: &str, replayed: bool) {
    if let Ok(run) = HeaderValue::from_str(run) {
        headers.insert("x-trunkline-run", run);
    }
    if replayed {
        headers.insert("idempotent-replayed", HeaderValue::from_static("true"));
    }
}

/// The error of a run that did not start. A full disk has its own status for a client that asked for a kept answer.
fn refusal<D>(app: &App<D>, error: &StartError, storage: StorageStatus) -> ApiError {
    match error {
        StartError::Storage { reason, retry_after } => {
            ApiError::storage(storage, &app.config.secrets.mask(reason), *retry_after)
        }
        StartError::UnknownModel { .. }
        | StartError::InvalidMember { .. }
        | StartError::Busy { .. }
        | StartError::Limited { .. }
        | StartError::Unavailable { .. }
        | StartError::Failed { .. } => start_refusal(error, &app.config.secrets),
    }
}

/// Whether one of the preferences in a `Prefer` header is `respond-async`.
fn prefers_async(preferences: &str) -> bool {
    preferences.split(',').any(|preference| preference.trim().eq_ignore_ascii_case(RESPOND_ASYNC))
}

/// Digest of everything that makes a difference to the answer.
fn digest(headers: &HeaderMap, target: &str, body: &[u8]) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new();
    let session = headers.get(SESSION_HEADER).map_or(&b""[..], HeaderValue::as_bytes);
    hasher.update(&(session.len() as u64).to_le_bytes()).update(session).update(target.as_bytes()).update(body);
    *hasher.finalize().as_bytes()
}

//! `POST /v1/chat/completions`: reads the request and hands it to [`crate::answer`] or [`crate::streaming`].

use std::sync::Arc;

use axum::extract::{Request, State};
use http::header::LOCATION;
use http::{HeaderMap, HeaderValue, StatusCode};
use serde::Serialize;
use trunkline_core::turn::{OnDisconnect, Owner, Turn};
use trunkline_engine::{NotOnce, Once, StartError};
use trunkline_wire::chat::ChatRequest;
use trunkline_wire::error::{ApiError, StorageStatus};
use trunkline_wire::request;
use trunkline_wire::response::Head;
use trunkline_wire::stream::{Chunks, UsageChunk};
use uuid::Uuid;

use crate::answer::{self, Feed, NoRun, not_started};
use crate::streaming::streamed;
use crate::{App, Door, HttpResponse, body, reply};

/// The longest key of a request that may be repeated.
const MAX_KEY: usize = 255;

/// A turn, and how its answer is to be given.
struct Ask {
    turn: Turn,
    /// None for one whole response.
    stream: Option<UsageChunk>,
    /// What makes it the same as an earlier one: the client's key, and the digest of what it asks.
    key: Option<(String, [u8; 32])>,
    /// The client asks for the run's name, and comes for the answer itself.
    later: bool,
}

/// The run of a request.
struct Begun<R> {
    feed: Feed<R>,
    run: String,
    replayed: bool,
}

pub(crate) async fn completions<D: Door>(State(app): State<Arc<App<D>>>, request: Request) -> HttpResponse {
    let owner: Owner = request.extensions().get().cloned().unwrap_or_default();
    let mut response = complete(&app, request).await;
    if let Some(allowance) = app.door.allowance(&owner) {
        reply::name_allowance(response.headers_mut(), allowance);
    }
    response
}

async fn complete<D: Door>(app: &Arc<App<D>>, request: Request) -> HttpResponse {
    let ask = match read(app, request).await {
        Ok(ask) => ask,
        Err(error) => return reply::error(&error),
    };
    if ask.later {
        return launch(app, ask).await;
    }
    let (stream, model) = (ask.stream, ask.turn.model.clone());
    let Begun { feed, run, replayed } = match begin(app, ask).await {
        Ok(begun) => begun,
        Err(error) => return reply::error(&error),
    };
    let (terms, head) = (app.terms(), head(&run, model));
    let mut response = match stream {
        Some(usage) => {
            let chunks = Chunks::new(head, usage, Arc::clone(&app.config.secrets));
            streamed(feed, chunks, terms).await
        }
        None => answer::whole(feed, head, terms).await,
    };
    if response.extensions().get::<NoRun>().is_none() {
        name_run(response.headers_mut(), &run, replayed);
    }
    response
}

fn name_run(headers: &mut HeaderMap, run: &str, replayed: bool) {
    if let Ok(run) = HeaderValue::from_str(run) {
        headers.insert("x-trunkline-run", run);
    }
    if replayed {
        headers.insert("idempotent-replayed", HeaderValue::from_static("true"));
    }
}

/// Starts a run that goes on by itself, and says where its answer will be.
async fn launch<D: Door>(app: &App<D>, ask: Ask) -> HttpResponse {
    let launched = match (ask.key.is_some(), app.door.runs()) {
        // Whoever lets go of a detached run leaves it to itself.
        (true, _) => begin(app, ask).await.map(|begun| (begun.run, begun.replayed)),
        (false, Some(engine)) => {
            let launched = engine.launch(ask.turn).await;
            launched.map(|run| (run, false)).map_err(|error| refusal(app, &error, StorageStatus::Insufficient))
        }
        (false, None) => Err(ApiError::unsupported("Prefer", "runs are not kept here")),
    };
    match launched {
        Ok((run, replayed)) => {
            let accepted = Accepted { object: "run", id: &run };
            let mut response = reply::json(StatusCode::ACCEPTED, &accepted);
            let headers = response.headers_mut();
            name_run(headers, &run, replayed);
            headers.insert("preference-applied", HeaderValue::from_static(LATER));
            if let Ok(place) = HeaderValue::from_str(&format!("/v1/runs/{run}")) {
                headers.insert(LOCATION, place);
            }
            response
        }
        Err(error) => reply::error(&error),
    }
}

#[derive(Serialize)]
struct Accepted<'a> {
    object: &'static str,
    id: &'a str,
}

/// An answer is called as its run, and is as old: whoever gets it again gets the same.
fn head(run: &str, model: String) -> Head {
    let begun = Uuid::parse_str(run).ok().and_then(|run| run.get_timestamp());
    Head { id: format!("cmpl-{run}"), created: begun.map_or(0, |begun| begun.to_unix().0), model }
}

async fn begin<D: Door>(app: &App<D>, ask: Ask) -> Result<Begun<D::Run>, ApiError> {
    let Ask { mut turn, key, later, .. } = ask;
    let storage = if later { StorageStatus::Insufficient } else { StorageStatus::Unavailable };
    let Some((key, request)) = key else {
        let run = Uuid::now_v7().to_string();
        turn.run = Some(run.clone());
        return Ok(Begun { feed: Feed::new(Arc::clone(&app.door), turn), run, replayed: false });
    };
    let joined = app.door.once(Once { turn, key, request }).await.map_err(|error| match error {
        NotOnce::OtherRequest => {
            let message = "this Idempotency-Key was used for a request with another body";
            ApiError::unprocessable("idempotency_key_reused", message).hint("use a new key for each new request")
        }
        NotOnce::Start(error) => refusal(app, &error, storage),
    })?;
    Ok(Begun { run: joined.run.clone(), replayed: joined.replayed, feed: Feed::joining(joined) })
}

/// Why nothing was started. A client that asked for the answer to be kept is told so if there is no room for it.
fn refusal<D>(app: &App<D>, error: &StartError, storage: StorageStatus) -> ApiError {
    match error {
        StartError::Storage { reason, retry_after } => {
            ApiError::storage(storage, &app.config.secrets.mask(reason), *retry_after)
        }
        StartError::UnknownModel { .. }
        | StartError::Busy { .. }
        | StartError::Limited { .. }
        | StartError::Unavailable { .. }
        | StartError::Failed { .. } => not_started(error, &app.config.secrets),
    }
}

async fn read<D: Door>(app: &App<D>, request: Request) -> Result<Ask, ApiError> {
    if app.stopping.is_cancelled() {
        return Err(ApiError::stopping());
    }
    let (head, body) = request.into_parts();
    let body = body::read_json(&head.headers, body, &app.config.limits).await?;
    let mut chat = ChatRequest::parse(&body)?;
    if chat.model.as_deref().is_some_and(|model| !app.door.keeps_sessions(model)) {
        chat.ignore_session();
    }
    let key = key(&head.headers)?.map(|key| (key, digest(&head.headers, &body)));
    drop(body);
    let usage = if chat.include_usage() { UsageChunk::Wanted } else { UsageChunk::No };
    let stream = chat.stream.unwrap_or(false).then_some(usage);
    let mut turn = chat.into_turn()?;
    turn.owner = head.extensions.get().cloned().unwrap_or_default();
    if let Some(id) = head.headers.get("x-trunkline-session") {
        let named = request::session(id.to_str().unwrap_or("\0"), "x-trunkline-session")?;
        turn.session = named.or(turn.session);
    }
    if let Some(wish) = head.headers.get(ON_DISCONNECT) {
        turn.on_disconnect = Some(request::on_disconnect(wish.to_str().unwrap_or_default(), ON_DISCONNECT)?);
    }
    let later = head.headers.get_all("prefer").iter().any(|wish| wish.to_str().is_ok_and(asks_later));
    if later {
        turn.on_disconnect = Some(OnDisconnect::Detach);
    }
    Ok(Ask { turn, stream, key, later })
}

/// Of several wishes in one header.
fn asks_later(wishes: &str) -> bool {
    wishes.split(',').any(|wish| wish.trim().eq_ignore_ascii_case(LATER))
}

const LATER: &str = "respond-async";

const ON_DISCONNECT: &str = "x-trunkline-on-disconnect";

const KEY: &str = "idempotency-key";

fn key(headers: &HeaderMap) -> Result<Option<String>, ApiError> {
    let Some(key) = headers.get(KEY) else { return Ok(None) };
    match key.to_str() {
        Ok(key) if (1..=MAX_KEY).contains(&key.len()) => Ok(Some(key.to_owned())),
        Ok(_) | Err(_) => {
            let message = format!("an Idempotency-Key has 1 to {MAX_KEY} characters, all of them ASCII");
            Err(ApiError::invalid("invalid_value", message).about("Idempotency-Key"))
        }
    }
}

/// Everything that makes a difference to the answer.
fn digest(headers: &HeaderMap, body: &[u8]) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new();
    let session = headers.get("x-trunkline-session").map_or(&b""[..], HeaderValue::as_bytes);
    hasher.update(&(session.len() as u64).to_le_bytes()).update(session).update(body);
    *hasher.finalize().as_bytes()
}

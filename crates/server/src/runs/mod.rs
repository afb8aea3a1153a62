//! `/v1/runs`: the runs of a client, their events and diffs, and cancellation.

use std::convert::Infallible;
use std::sync::Arc;

use axum::Extension;
use axum::body::Body;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use bytes::Bytes;
use futures_util::stream;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderMap, HeaderValue};
use http::{Response, StatusCode};
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, sleep_until};
use trunkline_core::turn::ClientId;
use trunkline_engine::{CancelOutcome, DiffError, RunFilter, RunLogEntry, RunQueryError, RunRow, RunState};
use trunkline_wire::error::ApiError;
use trunkline_wire::sse;

use crate::answer::Terms;
use crate::answer::reply;
use crate::answer::reply::HttpResponse;
use crate::app::App;
use crate::door::{Door, RunFeed};

/// Default number of runs in a list.
const DEFAULT_LIMIT: u32 = 20;
const MAX_LIMIT: u32 = 100;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RunQuery {
    state: Option<String>,
    model: Option<String>,
    session: Option<String>,
    after: Option<String>,
    limit: Option<u32>,
}

#[derive(Serialize)]
struct RunPage {
    object: &'static str,
    data: Vec<RunObject>,
    /// Value of `after` for the next page, if there is one.
    next: Option<String>,
}

#[derive(Serialize)]
struct RunObject {
    object: &'static str,
    #[serde(flatten)]
    run: RunRow,
}

impl From<RunRow> for RunObject {
    fn from(run: RunRow) -> Self {
        Self { object: "run", run }
    }
}

pub(crate) async fn list<D: Door>(
    State(app): State<Arc<App<D>>>,
    Extension(owner): Extension<ClientId>,
    query: Result<Query<RunQuery>, QueryRejection>,
) -> HttpResponse {
    match page(&app, &owner, query).await {
        Ok(page) => reply::json(StatusCode::OK, &page),
        Err(error) => reply::error(&error),
    }
}

async fn page<D: Door>(
    app: &App<D>,
    owner: &ClientId,
    query: Result<Query<RunQuery>, QueryRejection>,
) -> Result<RunPage, ApiError> {
    let Query(query) = query.map_err(|error| ApiError::invalid("invalid_value", error.body_text()))?;
    let state = match query.state.as_deref().map(|name| (name, RunState::from_name(name))) {
        None => None,
        Some((_, Some(state))) => Some(state),
        Some((name, None)) => {
            let names = RunState::ALL.map(RunState::name).join(", ");
            let message = format!("{name:?} is no state of a run: {names}");
            return Err(ApiError::invalid("invalid_value", message).about("state"));
        }
    };
    let limit = query.limit.unwrap_or(DEFAULT_LIMIT);
    if !(1..=MAX_LIMIT).contains(&limit) {
        return Err(ApiError::invalid("invalid_value", format!("limit is 1 to {MAX_LIMIT}")).about("limit"));
    }
    let RunQuery { model, session, after, .. } = query;
    // One more than requested, to know whether there is another page.
    let wanted = RunFilter { state, model, session, after, limit: limit + 1, ..RunFilter::default() };
    let mut runs = app.door.runs(owner, wanted).await.map_err(|error| refused(&error))?;
    let more = runs.len() > limit as usize;
    runs.truncate(limit as usize);
    let next = runs.last().filter(|_| more).map(|last| last.id.clone());
    Ok(RunPage { object: "list", data: runs.into_iter().map(RunObject::from).collect(), next })
}

pub(crate) async fn one<D: Door>(
    State(app): State<Arc<App<D>>>,
    Extension(owner): Extension<ClientId>,
    Path(id): Path<String>,
) -> HttpResponse {
    match app.door.run(&owner, &id).await {
        Ok(run) => reply::json(StatusCode::OK, &RunObject::from(run)),
        Err(error) => reply::error(&refused(&error)),
    }
}

/// Cancels a run, and answers when nothing of it is left. A run that has ended by itself is a conflict.
pub(crate) async fn cancel<D: Door>(
    State(app): State<Arc<App<D>>>,
    Extension(owner): Extension<ClientId>,
    Path(id): Path<String>,
) -> HttpResponse {
    match app.door.cancel(&owner, &id).await {
        Ok(CancelOutcome::Stopped(run)) => reply::json(StatusCode::OK, &RunObject::from(*run)),
        // It is cancelled already.
        Ok(CancelOutcome::WasOver(run)) if run.state == RunState::Cancelled => {
            reply::json(StatusCode::OK, &RunObject::from(*run))
        }
        Ok(CancelOutcome::WasOver(run)) => {
            reply::error(&ApiError::conflict("run_over", format!("the run is over: {}", run.state.name())))
        }
        Ok(CancelOutcome::Elsewhere(run)) => {
            let message = format!("the run is {} in another process of this machine", run.state.name());
            reply::error(&ApiError::conflict("run_elsewhere", message).hint("stop it there"))
        }
        Err(error) => reply::error(&refused(&error)),
    }
}

pub(crate) async fn diff<D: Door>(
    State(app): State<Arc<App<D>>>,
    Extension(owner): Extension<ClientId>,
    Path(id): Path<String>,
) -> HttpResponse {
    match app.door.diff(&owner, &id).await {
        Ok(patch) => {
            let mut response = Response::new(Body::from(patch));
            response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/x-diff"));
            response
        }
        Err(DiffError::Run(error)) => reply::error(&refused(&error)),
        Err(DiffError::Nothing(why)) => reply::error(&ApiError::not_found("no_diff", why)),
        Err(DiffError::Git(failure)) => {
            let message = app.config.secrets.mask(&failure.message);
            reply::error(&ApiError::not_found("no_diff", format!("the diff cannot be made: {message}")))
        }
    }
}

/// Streams the events after `Last-Event-ID`, then new events as they come.
pub(crate) async fn events<D: Door>(
    State(app): State<Arc<App<D>>>,
    Extension(owner): Extension<ClientId>,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> HttpResponse {
    let follow = async {
        let from = first_wanted(&headers)?;
        app.door.events(&owner, &id, from).await.map_err(|error| refused(&error))
    };
    let mut feed = match follow.await {
        Ok(feed) => feed,
        Err(error) => return reply::error(&error),
    };
    let first = tokio::select! {
        biased;
        first = feed.next() => first,
        // No event is available yet.
        () = std::future::ready(()) => None,
    };
    if first.is_none() && feed.is_over() {
        // A browser reconnects after the last event, unless it gets 204.
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::NO_CONTENT;
        return response;
    }
    let frames_of_run = EventFrames { feed, terms: app.terms(), sent: Instant::now() };
    let frames = stream::unfold((first, frames_of_run), |(first, mut frames_of_run)| async move {
        let frames = match first {
            Some(entry) => frame(&entry),
            None => frames_of_run.next().await?,
        };
        Some((Ok::<_, Infallible>(Bytes::from(frames)), (None, frames_of_run)))
    });
    let mut response = Response::new(Body::from_stream(frames));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    response
}

/// Frames of a run's events.
struct EventFrames<F> {
    feed: F,
    terms: Terms,
    sent: Instant,
}

impl<F: RunFeed> EventFrames<F> {
    async fn next(&mut self) -> Option<Vec<u8>> {
        let frames = tokio::select! {
            biased;
            () = self.terms.expired.cancelled() => return None,
            entry = self.feed.next() => frame(&entry?),
            () = sleep_until(self.sent + self.terms.keep_alive) => sse::KEEP_ALIVE.to_vec(),
        };
        self.sent = Instant::now();
        Some(frames)
    }
}

fn frame(entry: &RunLogEntry) -> Vec<u8> {
    let mut frame = Vec::new();
    let payload = serde_json::to_string(entry).expect("an event has no keys but strings");
    sse::numbered(&mut frame, entry.seq, &payload);
    frame
}

fn first_wanted(headers: &HeaderMap) -> Result<u64, ApiError> {
    let Some(last) = headers.get("last-event-id") else { return Ok(0) };
    let last = last.to_str().ok().and_then(|last| last.trim().parse::<u64>().ok());
    last.and_then(|last| last.checked_add(1)).ok_or_else(|| {
        ApiError::invalid("invalid_value", "Last-Event-ID is the number of an event").about("Last-Event-ID")
    })
}

/// The API error of a query that cannot be answered.
pub(crate) fn refused(error: &RunQueryError) -> ApiError {
    match error {
        RunQueryError::Unknown => ApiError::not_found("run_not_found", "there is no such run"),
        RunQueryError::NoMemory => ApiError::busy(&error.to_string(), std::time::Duration::from_secs(60)),
        RunQueryError::Store(error) => {
            tracing::error!(%error, "runs cannot be read");
            ApiError::internal()
        }
    }
}

//! `POST /v1/chat/completions`.

use std::sync::Arc;

use axum::extract::{Request, State};
use trunkline_wire::chat::ChatRequest;
use trunkline_wire::error::ApiError;
use trunkline_wire::response::Head;
use trunkline_wire::stream::{Chunks, UsageChunk};
use uuid::Uuid;

use crate::admission::{self, AdmittedRequest, StartedRun};
use crate::answer::reply::HttpResponse;
use crate::answer::streaming::streamed;
use crate::answer::{self, reply};
use crate::app::App;
use crate::connection::body;
use crate::door::Door;

/// A chat request. `stream` is `None` when the client wants one whole response.
struct Completion {
    request: AdmittedRequest,
    stream: Option<UsageChunk>,
}

pub(crate) async fn completions<D: Door>(State(app): State<Arc<App<D>>>, request: Request) -> HttpResponse {
    let (head, body) = request.into_parts();
    let client = admission::client(&head);
    let mut response = complete(&app, Request::from_parts(head, body)).await;
    if let Some(allowance) = app.door.allowance(&client) {
        reply::name_allowance(response.headers_mut(), allowance);
    }
    response
}

async fn complete<D: Door>(app: &Arc<App<D>>, request: Request) -> HttpResponse {
    let Completion { request, stream } = match read(app, request).await {
        Ok(completion) => completion,
        Err(error) => return reply::error(&error),
    };
    if request.respond_async {
        return admission::launch(app, request).await;
    }
    let model = request.turn.model.clone();
    let StartedRun { feed, run, replayed } = match admission::begin(app, request).await {
        Ok(started) => started,
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
    admission::identify(&mut response, &run, replayed);
    response
}

/// Id and time of an answer, both derived from its run: a repeated request gets the same.
fn head(run: &str, model: String) -> Head {
    let begun = Uuid::parse_str(run).ok().and_then(|run| run.get_timestamp());
    Head { id: ["cmpl-", run].concat(), created: begun.map_or(0, |begun| begun.to_unix().0), model }
}

async fn read<D: Door>(app: &App<D>, request: Request) -> Result<Completion, ApiError> {
    if app.stopping.is_cancelled() {
        return Err(ApiError::stopping());
    }
    let (head, body) = request.into_parts();
    let body = body::read_json(&head.headers, body, &app.config.limits).await?;
    let mut chat = ChatRequest::parse(&body)?;
    if chat.model.as_deref().is_some_and(|model| !app.door.keeps_sessions(model)) {
        chat.ignore_session();
    }
    let key = admission::idempotency_key(&head.headers, &body)?;
    drop(body);
    let usage = if chat.include_usage() { UsageChunk::Wanted } else { UsageChunk::No };
    let stream = chat.stream.unwrap_or(false).then_some(usage);
    let request = admission::admit(chat.into_turn()?, &head, key)?;
    Ok(Completion { request, stream })
}

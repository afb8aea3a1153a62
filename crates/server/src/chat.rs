//! `POST /v1/chat/completions`: reads the request and hands it to [`crate::answer`] or [`crate::streaming`].

use std::sync::Arc;

use axum::extract::{Request, State};
use trunkline_core::turn::Turn;
use trunkline_wire::chat::ChatRequest;
use trunkline_wire::error::ApiError;
use trunkline_wire::request;
use trunkline_wire::response::Head;
use trunkline_wire::stream::{Chunks, UsageChunk};
use uuid::Uuid;

use crate::answer::{self, Feed};
use crate::streaming::streamed;
use crate::{App, Door, HttpResponse, body, reply, unix_now};

/// A turn, and how its answer is to be given.
struct Ask {
    turn: Turn,
    /// None for one whole response.
    stream: Option<UsageChunk>,
}

pub(crate) async fn completions<D: Door>(State(app): State<Arc<App<D>>>, request: Request) -> HttpResponse {
    let ask = match read(&app, request).await {
        Ok(ask) => ask,
        Err(error) => return reply::error(&error),
    };
    let head = Head { id: format!("cmpl-{}", Uuid::new_v4()), created: unix_now(), model: ask.turn.model.clone() };
    let terms = app.terms();
    let feed = Feed::new(Arc::clone(&app.door), ask.turn);
    match ask.stream {
        Some(usage) => {
            let chunks = Chunks::new(head, usage, Arc::clone(&app.config.secrets));
            streamed(feed, chunks, terms).await
        }
        None => answer::whole(feed, head, terms).await,
    }
}

async fn read<D: Door>(app: &App<D>, request: Request) -> Result<Ask, ApiError> {
    if app.stopping.is_cancelled() {
        return Err(ApiError::stopping());
    }
    let (head, body) = request.into_parts();
    let body = body::read_json(&head.headers, body, &app.config.limits).await?;
    let chat = ChatRequest::parse(&body)?;
    drop(body);
    let usage = if chat.include_usage() { UsageChunk::Wanted } else { UsageChunk::No };
    let stream = chat.stream.unwrap_or(false).then_some(usage);
    let mut turn = chat.into_turn()?;
    turn.owner = head.extensions.get().cloned().unwrap_or_default();
    if let Some(id) = head.headers.get("x-trunkline-session") {
        let named = request::session(id.to_str().unwrap_or("\0"), "x-trunkline-session")?;
        turn.session = named.or(turn.session);
    }
    Ok(Ask { turn, stream })
}

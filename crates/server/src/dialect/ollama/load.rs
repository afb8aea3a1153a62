//! Requests without a prompt. Clients use them to load a model into memory ahead of time, or to unload it. Nothing has to be loaded
//! here, so they are answered at once, without a run.

use http::StatusCode;
use http::header::{CONTENT_TYPE, HeaderValue};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Value, json};
use trunkline_wire::error::ApiError;

use super::encoder::{NDJSON, Shape};
use super::names;
use super::times::rfc3339;
use crate::answer::reply;
use crate::answer::reply::HttpResponse;
use crate::app::App;
use crate::door::Door;

/// Requests that are longer have a prompt. The others are parsed twice.
const MAX_LOAD_BYTES: usize = 1024;

#[derive(Deserialize)]
struct LoadRequest {
    model: Option<String>,
    messages: Option<Vec<IgnoredAny>>,
    prompt: Option<String>,
    stream: Option<bool>,
    keep_alive: Option<Value>,
}

/// The answer to a request without a prompt. `None` if the request has one, or cannot be parsed.
pub(super) fn answer<D: Door>(app: &App<D>, shape: Shape, body: &[u8]) -> Option<Result<HttpResponse, ApiError>> {
    let request: LoadRequest = (body.len() <= MAX_LOAD_BYTES).then(|| serde_json::from_slice(body).ok())??;
    let asks = match shape {
        Shape::Chat => request.messages.is_some_and(|messages| !messages.is_empty()),
        Shape::Generate => request.prompt.is_some_and(|prompt| !prompt.is_empty()),
    };
    if asks {
        return None;
    }
    let unloads = request.keep_alive.is_some_and(|time| time == 0 || time == "0" || time == "0s");
    let reason = if unloads { "unload" } else { "load" };
    let named = names::required(request.model);
    Some(named.and_then(|model| {
        names::known(&*app.door, &model)?;
        let mut line = json!({"model": model, "created_at": rfc3339(app.started), "done": true, "done_reason": reason});
        match shape {
            Shape::Chat => line["message"] = json!({"role": "assistant", "content": ""}),
            Shape::Generate => line["response"] = json!(""),
        }
        let mut response = reply::json_bytes(StatusCode::OK, format!("{line}\n").into_bytes());
        if request.stream != Some(false) {
            response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(NDJSON));
        }
        Ok(response)
    }))
}

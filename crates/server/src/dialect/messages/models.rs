//! `GET /v1/models` in Anthropic's shape, for clients that send `anthropic-version`.

use http::{HeaderMap, StatusCode};
use serde::Serialize;
use trunkline_engine::Time;

use super::VERSION_HEADER;
use crate::answer::reply;
use crate::answer::reply::HttpResponse;
use crate::app::App;
use crate::dialect::abilities::Abilities;
use crate::door::Door;

#[derive(Serialize)]
struct ModelList<'a> {
    data: Vec<ModelInfo<'a>>,
    has_more: bool,
    first_id: Option<&'a str>,
    last_id: Option<&'a str>,
}

#[derive(Serialize)]
struct ModelInfo<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    id: &'a str,
    display_name: String,
    /// RFC 3339.
    created_at: String,
    trunkline: Option<Abilities>,
}

/// Whether a client expects this shape.
pub(crate) fn are_asked_for(headers: &HeaderMap) -> bool {
    headers.contains_key(VERSION_HEADER)
}

/// All models. There is one page: lists are short here.
pub(crate) fn list<D: Door>(app: &App<D>) -> HttpResponse {
    let models = app.door.models();
    let list = ModelList {
        data: models.iter().map(|id| info(app, id)).collect(),
        has_more: false,
        first_id: models.first().map(String::as_str),
        last_id: models.last().map(String::as_str),
    };
    reply::json(StatusCode::OK, &list)
}

/// One model, which exists.
pub(crate) fn one<D: Door>(app: &App<D>, id: &str) -> HttpResponse {
    reply::json(StatusCode::OK, &info(app, id))
}

fn info<'a, D: Door>(app: &App<D>, id: &'a str) -> ModelInfo<'a> {
    let started = i64::try_from(app.started).unwrap_or_default().saturating_mul(1000);
    ModelInfo {
        kind: "model",
        id,
        display_name: app.door.display_name(id).unwrap_or_else(|| id.to_owned()),
        created_at: Time::from_millis(started).to_string(),
        trunkline: Abilities::of(app, id),
    }
}
